"""What CommandSupervisor does beyond the contract."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from draftmark.errors import DraftmarkError, StartError, StorageError, UnrestoredError
from draftmark.model import StopOutcome
from draftmark.service import command as command_module
from draftmark.service import guarded as guarded_module
from draftmark.service.command import CommandSupervisor
from draftmark.service.guarded import MARKER
from draftmark.testing import programs
from draftmark.testing.supervisor_contract import Bench, eventually


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def one(**options: Any) -> Bench:
        tag = f"tag-{secrets.token_hex(6)}"
        options = {"grace_s": 0.4, "second_grace_s": 0.2} | options
        supervisor = CommandSupervisor(programs.command("serve", tag), **options)
        made.append(Bench(supervisor, tmp_path / "server.log", tag))
        return made[-1]

    yield one
    for bench in made:
        bench.supervisor.stop()
        assert bench.left() == []


def guard_of(bench: Bench) -> int:
    """Its guard: the leader of the session that the service is in."""
    identity = bench.supervisor.identity()
    assert identity is not None
    return os.getsid(identity.pid)


def open_files() -> list[str]:
    return sorted(str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())


def zombies() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_bytes().rpartition(b")")[2].split()
            if fields[0] == b"Z" and int(fields[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


# --- what the service is given -------------------------------------------------------------------------------


def test_environment_directory_and_descriptors(make: Callable[..., Bench], tmp_path: Path) -> None:
    place = tmp_path / "naïve dir"
    place.mkdir()
    bench = make(env={"MODEL": "ä\nö=\udcff", "EMPTY": ""}, cwd=place)
    inherited = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        identity = bench.start("show", "EMPTY", MARKER, "HOME")
    finally:
        signal.signal(signal.SIGHUP, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.close(inherited)
    lines = bench.lines()
    assert f"cwd {place}" in lines
    assert "EMPTY=" in lines
    assert f"{MARKER}={identity.invocation}" in lines
    assert f"HOME={os.environ.get('HOME')}" in lines
    assert "leads True" in lines
    assert "stdin True" in lines
    assert "blocked 0000000000000000" in lines
    assert "ignored 0" in lines
    assert "files 0 1 2" in lines
    environ = Path(f"/proc/{identity.pid}/environ").read_bytes().split(b"\0")
    assert b"MODEL=\xc3\xa4\n\xc3\xb6=\xff" in environ


def test_large_command_line(make: Callable[..., Bench]) -> None:
    """More than a pipe holds at once."""
    bench = make(env={f"V{index}": "x" * 50_000 for index in range(6)})
    bench.start("serve", "y" * 100_000)
    assert bench.supervisor.stop().outcome is StopOutcome.CLEAN


# --- starts that fail ---------------------------------------------------------------------------------------


def refused(bench: Bench, *command: str) -> DraftmarkError:
    files = open_files()
    with pytest.raises(DraftmarkError) as caught:
        bench.supervisor.start(command, bench.log)
    assert bench.supervisor.identity() is None
    assert bench.supervisor.exit_code() is None
    assert open_files() == files
    assert zombies() == []
    return caught.value


def test_misspelt_program(make: Callable[..., Bench], tmp_path: Path) -> None:
    (tmp_path / "llama-server").write_text("#!/bin/sh\n")
    (tmp_path / "llama-server").chmod(0o755)
    (tmp_path / "llama-servr.txt").write_text("not executable")
    error = refused(make(env={"PATH": str(tmp_path)}), "llama-servr", "-m", "x y.gguf")
    assert isinstance(error, StartError)
    assert error.what == 'cannot run "llama-servr": no such file'
    assert error.evidence == (
        "ENOENT: No such file or directory",
        "command: llama-servr -m 'x y.gguf'",
        f"PATH={tmp_path}",
    )
    assert error.next_step == "did you mean llama-server?"
    beside = refused(make(), f"{tmp_path}/llama-servr")
    assert beside.next_step == f"did you mean {tmp_path}/llama-server?"
    relative = refused(make(cwd=tmp_path), "./lama-server")
    assert relative.next_step == "did you mean llama-server?"


def test_programs_that_cannot_be_executed(make: Callable[..., Bench], tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo hello\n")
    error = refused(make(), str(plain))
    assert error.what == f'cannot run "{plain}": it is not executable'
    assert error.next_step == f"chmod +x {plain}"
    plain.chmod(0o755)
    error = refused(make(), str(plain))
    assert "not a program that this machine can run" in error.what
    plain.write_text("#!/no/such/interpreter -x\n")
    error = refused(make(), str(plain))
    assert "interpreter" in error.what
    assert f"{plain}: #!/no/such/interpreter -x" in error.evidence
    error = refused(make(), str(tmp_path))
    assert error.what.endswith("it is a directory")
    assert refused(make(), "").what == refused(make(), "a\0b").what
    assert "NUL" in refused(make()).what


def test_directory_that_does_not_exist(make: Callable[..., Bench], tmp_path: Path) -> None:
    error = refused(make(cwd=tmp_path / "nowhere"), "sleep", "9")
    assert isinstance(error, StartError)
    assert error.what == f'cannot enter the working directory "{tmp_path / "nowhere"}": no such file'


@pytest.mark.parametrize(
    ("log", "words", "step"),
    [("/dev/full", "No space left", "make room"), ("/no/such/folder/log", "no such file", "create the directory")],
)
def test_log_that_cannot_be_written(make: Callable[..., Bench], log: str, words: str, step: str) -> None:
    bench = make()
    with pytest.raises(StorageError) as caught:
        bench.supervisor.start(programs.command("serve", bench.tag), Path(log))
    assert words in caught.value.what
    assert step in caught.value.next_step
    assert bench.left() == []


def test_guard_that_cannot_run(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guarded_module, "_GUARD", tmp_path / "lost.py")
    assert "it ended before it started anything" in refused(make(), "sleep", "9").what
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    error = refused(make(), "sleep", "9")
    assert error.what == "cannot start the guard process: no such file"


# --- a guard that is interfered with ------------------------------------------------------------------------


@pytest.mark.parametrize("manner", ["stubborn", "pair", "family"])
def test_killed_guard_is_noticed_and_nothing_is_left(make: Callable[..., Bench], manner: str) -> None:
    bench = make()
    bench.start(manner)
    os.kill(guard_of(bench), signal.SIGKILL)
    assert bench.ended()
    assert bench.left() == []
    assert bench.supervisor.exit_code() is None
    assert bench.supervisor.stop().outcome is StopOutcome.ALREADY_DEAD
    assert zombies() == []
    bench.start("serve")
    assert bench.supervisor.stop().outcome is StopOutcome.CLEAN


def test_guard_killed_while_stopping(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.start("stubborn")
    killer = threading.Timer(0.1, os.kill, (guard_of(bench), signal.SIGKILL))
    killer.start()
    report = bench.supervisor.stop()
    killer.join()
    assert report.outcome is StopOutcome.KILLED
    assert report.signals == ("SIGTERM",)
    assert report.exit_code is None
    assert bench.left() == []


def test_hung_guard_does_not_hang_the_stop(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "_KILL_WAIT_S", 0.2)
    bench = make()
    bench.start("family")
    os.kill(guard_of(bench), signal.SIGSTOP)
    assert bench.supervisor.stop().outcome is StopOutcome.KILLED
    assert bench.left() == []


def test_process_that_survives_sigkill(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """As one stuck in a driver would. Here the killing is what fails."""
    monkeypatch.setattr(command_module, "_KILL_WAIT_S", 0.1)
    monkeypatch.setattr(guarded_module, "_SWEEP_S", 0.1)
    bench = make()
    bench.start("pair")
    child = next(pid for pid in bench.left() if pid != getattr(bench.supervisor.identity(), "pid", 0))
    guard = guard_of(bench)
    with monkeypatch.context() as broken:
        broken.setattr(guarded_module, "kill_exactly", lambda _: None)
        os.kill(guard, signal.SIGSTOP)
        with pytest.raises(UnrestoredError) as caught:
            bench.supervisor.stop()
        assert f"pid {child}: state S" in caught.value.evidence
    os.kill(child, signal.SIGKILL)
    assert eventually(lambda: bench.left() == [])
    assert bench.supervisor.stop().exit_code is None


# --- interrupts ---------------------------------------------------------------------------------------------


def test_interrupted_stop_goes_on_with_the_next_signal(make: Callable[..., Bench]) -> None:
    class Interrupting:
        """A clock on which the first wait is interrupted."""

        interrupts = 1

        def monotonic(self) -> float:
            return time.monotonic()

        def now_iso(self) -> str:
            return ""

        def sleep(self, seconds: float) -> None:
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            time.sleep(seconds)

    bench = make(clock=Interrupting(), grace_s=60.0)
    bench.start("twice")
    with pytest.raises(KeyboardInterrupt):
        bench.supervisor.stop()
    assert eventually(lambda: "draining" in bench.lines())
    report = bench.supervisor.stop()
    assert report.outcome is StopOutcome.SLOW
    assert report.signals == ("SIGTERM", "SIGTERM")
    assert report.exit_code == 1


def test_interrupt_on_any_line_of_start_leaves_nothing(make: Callable[..., Bench]) -> None:
    """A KeyboardInterrupt is raised before the n-th line that Draftmark executes in a start, for each n."""
    files = ("guarded.py", "command.py")
    lines = 0
    raise_at = 0

    def tracer(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith(files) or frame.f_code.co_name in ("abandon", "__del__"):
            return None
        if event == "line":
            lines += 1
            if lines == raise_at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return tracer

    def traced_start(bench: Bench) -> None:
        nonlocal lines
        lines = 0
        previous = sys.gettrace()
        sys.settrace(tracer)
        try:
            bench.supervisor.start(programs.command("serve", bench.tag), bench.log)
        finally:
            sys.settrace(previous)

    bench = make()
    traced_start(bench)
    total = lines
    bench.supervisor.stop()
    before = open_files()
    assert total > 60
    for number in range(1, total, 5):
        raise_at = number
        with contextlib.suppress(KeyboardInterrupt):
            traced_start(bench)
            pytest.fail(f"no interrupt at line {number} of {total}")
        assert eventually(lambda: bench.left() == [], 2), number
        assert bench.supervisor.identity() is None
        assert zombies() == []
    # An interrupt between the making of a pipe and its being kept may cost that pipe, and no more.
    assert len(open_files()) <= len(before) + 4


# --- keeping house ------------------------------------------------------------------------------------------


def test_fifty_cycles_leak_nothing(make: Callable[..., Bench]) -> None:
    bench = make()
    command = ("sleep", "60")
    bench.supervisor.start(command, bench.log)
    bench.supervisor.stop()
    files = open_files()
    seen = set()
    for _ in range(50):
        seen.add(bench.supervisor.start(command, bench.log))
        assert bench.supervisor.stop().exit_code == -signal.SIGTERM
    assert len(seen) == 50
    assert open_files() == files
    assert zombies() == []


def test_forgotten_supervisor_takes_its_service_along(tmp_path: Path) -> None:
    tag = f"tag-{secrets.token_hex(6)}"
    supervisor = CommandSupervisor(programs.command("serve", tag))
    supervisor.start(supervisor.original, tmp_path / "log")
    guard = os.getsid(programs.processes(tag)[0])
    del supervisor
    assert eventually(lambda: programs.processes(tag) == [], 2)
    os.waitpid(guard, 0)  # nobody is left who would


def test_context_stops(tmp_path: Path) -> None:
    tag = f"tag-{secrets.token_hex(6)}"
    with CommandSupervisor(programs.command("serve", tag)) as supervisor:
        supervisor.start(supervisor.original, tmp_path / "log")
        assert len(programs.processes(tag)) == 1
        assert "guard process kills" in supervisor.if_left
    assert programs.processes(tag) == []


# --- CPU ----------------------------------------------------------------------------------------------------


def test_cpu_is_booked_on_who_used_it(make: Callable[..., Bench]) -> None:
    """Twice 0.3 s in the service, half of it in a child that is reaped; and after the stop it is still there."""
    bench = make()
    before = bench.supervisor.cpu()
    bench.start("burn", "0.3")
    during = bench.supervisor.cpu()
    bench.supervisor.stop()
    after = bench.supervisor.cpu()
    bench.start("serve")
    again = bench.supervisor.cpu()
    assert before is not None
    assert during is not None
    assert after is not None
    assert again is not None
    assert before.group_s == 0
    assert 0.55 <= during.group_s < 0.9
    assert during.group_s - 0.02 <= after.group_s <= again.group_s + 0.02 < 1.2
    assert during.busy_s - before.busy_s > 0.5
    assert after.own_s - before.own_s < 0.3
    assert during.cpus == os.sysconf("SC_NPROCESSORS_ONLN")


def test_cpu_of_orphans_is_kept(make: Callable[..., Bench]) -> None:
    """An orphan that ends is reaped by the guard: its CPU time stays with the service."""
    bench = make()
    script = "(python3 -I -S -c 'import time\nwhile time.process_time() < 0.2: pass' & ) ; sleep 60"
    bench.supervisor.start(("sh", "-c", script), bench.log)

    def used() -> float:
        sample = bench.supervisor.cpu()
        assert sample is not None
        return sample.group_s

    assert eventually(lambda: used() >= 0.19)
    first = used()
    time.sleep(0.3)
    assert used() >= first


def test_cpu_unreadable(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "machine_cpu_s", lambda: None)
    assert make().supervisor.cpu() is None


DRAINING = """
import os, signal, sys, time
child = os.fork()
if not child:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(600)
def drain(*_):
    time.sleep(0.2)
    gone, _status = os.waitpid(child, os.WNOHANG)
    print("crashed" if gone else "drained", flush=True)
    if not gone:
        os.kill(child, signal.SIGKILL)
    os._exit(0)
signal.signal(signal.SIGTERM, drain)
os.write(1, b"ready\\n")  # in one piece: the signal may come before a print has ended its line
while True:
    time.sleep(60)
"""


@pytest.mark.parametrize(("main_only", "said"), [(True, "drained"), (False, "crashed")])
def test_a_server_whose_children_die_of_a_signal_of_their_own(
    make: Callable[..., Bench], *, main_only: bool, said: str
) -> None:
    """As SGLang's do: only the main process is told, and drains."""
    bench = make(grace_s=10.0, main_only=main_only)
    bench.supervisor.start((sys.executable, "-c", DRAINING), bench.log)
    assert eventually(lambda: "ready" in bench.log.read_text())
    report = bench.supervisor.stop()
    assert (report.signals, report.exit_code) == (("SIGTERM",), 0)
    assert bench.log.read_text().split() == ["ready", said]
