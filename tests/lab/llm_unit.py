"""A lab with a live LLM server as `llm.service`, an sshd in it, and Draftmark at work on that unit.

The server is the embedded engine. The lab shares this machine's network, so that a controller outside reaches the
lab's sshd on the loopback; a controller "on the unit's own host" runs inside.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from draftmark.embedded.progress import NullProgress
from draftmark.embedded.provision import provision
from draftmark.service.host import free_port

from .machine import Ended, Machine, Mode
from .packages import UnavailableError
from .root import CHECKOUT, USER
from .sshd import PACKAGES, keygen, unpacked

UNIT = "llm.service"
FOLDERS = ("etc/systemd", "run/systemd/system", "run/draftmark", "var/lib/draftmark")
# Short, and deaf to a noisy machine: what is looked at here is the service, not its speed.
SWEEP = (
    *("--depth", "off,4", "--rounds", "1", "--workload", "copy", "--concurrency", "1"),
    *("--requests", "1", "--max-tokens", "8", "--max-foreign-cpu", "1000"),
)
_UNIT_TEXT = """\
[Unit]
Description=An LLM
[Service]
{environment}ExecStart={command}
Restart=on-failure
[Install]
WantedBy=multi-user.target
"""
_SOURCE = f"PYTHONPATH={CHECKOUT / 'src'}"
_DRAFTMARK = ("/usr/bin/env", _SOURCE, sys.executable, "-P", "-m", "draftmark")  # of this very checkout
_SSHD = "/etc/lab-sshd"
_LONGEST_S = 600.0  # of a whole run, on a busy machine


@dataclass(frozen=True, slots=True)
class State:
    """What must be the same before and after.

    Attributes:
        files: Path to kind, rights, owner and content of all that Draftmark could write, below `FOLDERS`.
        command: The effective ExecStart=.
        active: ActiveState.
        drop_ins: In force.
        stale: Whether systemd has not read what is on disk.
        units: Units of Draftmark's.
    """

    files: dict[str, str]
    command: str
    active: str
    drop_ins: str
    stale: str
    units: str

    def differences(self, now: State) -> list[str]:
        """What is not as it was, a line each."""
        found = []
        for field in fields(self):
            was, is_now = getattr(self, field.name), getattr(now, field.name)
            if field.name == "files":
                found += [
                    f"{path}: was {was.get(path)}, is {is_now.get(path)}"
                    for path in sorted(was.keys() | is_now.keys())
                    if was.get(path) != is_now.get(path)
                ]
            elif was != is_now:
                found.append(f"{field.name}: was {was!r}, is {is_now!r}")
        return found


class Controller:
    """A `draftmark` at work on the unit.

    Attributes:
        process: It, or what runs it inside the lab.
        run: Its run directory, as it is reached from outside.
        began: When, by the monotonic clock.
    """

    def __init__(self, process: subprocess.Popen[str], inside: bool, run: Path) -> None:
        self.process = process
        self.run = run
        self._inside = inside
        self._actions = run / "actions.jsonl"
        self.began = time.monotonic()

    @property
    def pid(self) -> int:
        """Of Draftmark itself, as this machine counts."""
        if not self._inside:
            return self.process.pid
        while self.process.poll() is None:
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
                if children:
                    return int(children[0])
            time.sleep(0.01)
        raise ProcessLookupError("it has ended already")

    def actions(self) -> list[str]:
        """What it has written to its record of actions so far."""
        try:
            lines = self._actions.read_text().splitlines()
        except OSError:
            return []
        return [json.loads(line)["what"] for line in lines if line.endswith("}")]

    @property
    def phase(self) -> str:
        """The last action; `prepare` before there is a run directory."""
        return (self.actions() or ["prepare"])[-1]

    def await_phase(self, phase: str, nth: int = 1, seconds: float = 180.0) -> bool:
        """Wait until the `nth` such action; False when it ended before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.actions().count(phase) >= nth:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.005)
        raise AssertionError(f"{phase} not reached within {seconds:.0f} s; it is at {self.phase}")

    def send(self, signum: signal.Signals) -> None:
        """A signal to Draftmark alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    def wait(self, seconds: float = 300.0) -> Ended:
        """Its end; killed, and status 124, when the time is up: then it says where it was."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGABRT)
            out, err = self.process.communicate()
            return Ended(124, out, err)
        return Ended(self.process.returncode, out, err)


class LlmLab:
    """One lab, from its making to `close`.

    Attributes:
        machine: The lab.
        home: HOME of whoever comes over SSH.
        base_url: Of the server.
    """

    def __init__(self, folder: Path) -> None:
        """Boot, start the server, wait until it is ready.

        Raises:
            UnavailableError: It cannot be had here.
        """
        self.folder = folder
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.ssh_port = free_port()
        self.home = folder / "home"
        self._runs = 0
        self.server = _server(self.port)
        self.machine = Machine.boot(Mode.SHARED)
        try:
            self._start()
        except BaseException:
            self.machine.close()
            raise

    def _start(self) -> None:
        command, environment = self.server
        lines = "".join(f'Environment="{name}={value}"\n' for name, value in environment.items())
        text = _UNIT_TEXT.format(environment=lines, command=shlex.join(command))
        self.machine.write(f"/etc/systemd/system/{UNIT}", text)
        self.machine.check(["systemctl", "daemon-reload"])
        self.machine.check(["systemctl", "start", UNIT])
        self.await_ready()

    def close(self) -> None:
        """End the lab."""
        self.machine.close()

    # --- the service ------------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether the server says that it is healthy."""
        try:
            with urllib.request.urlopen(f"{self.base_url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def await_ready(self, seconds: float = 90.0) -> None:
        """Until it is."""
        deadline = time.monotonic() + seconds
        while not self.ready():
            assert time.monotonic() < deadline, f"the server is not ready after {seconds:.0f} s"
            time.sleep(0.1)

    def root(self, path: str) -> Path:
        """A path of the lab as it is reached from outside."""
        return Path(f"/proc/{self.machine.first_process}/root", path.lstrip("/"))

    def invocation(self) -> str:
        """InvocationID of the unit."""
        return self.machine.check(["systemctl", "show", "--value", "-p", "InvocationID", UNIT]).strip()

    def held(self) -> bool:
        """Whether a run of Draftmark's holds the unit, as the host knows it."""
        return self.root(f"/run/draftmark/{UNIT}").exists()

    def agent_commands(self) -> list[str]:
        """Commands of Draftmark's that run on the unit's host right now."""
        running = self.machine.run(["pgrep", "-af", f"draftmark/.*agent|draftmark open|draftmark restore {UNIT}"])
        found = [
            re.search(rf"/agent (\S+)|draftmark (open|restore) {UNIT}", line) for line in running.out.splitlines()
        ]
        return sorted({match[1] or match[2] for match in found if match})

    def state(self) -> State:
        """All that must be the same afterwards."""
        shown = self.machine.show(UNIT)
        listed = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "draftmark*"]
        return State(
            files=dict(_listing(self.root("/"))),
            command=shown["ExecStart"].partition(" ; start_time=")[0],
            active=shown["ActiveState"],
            drop_ins=shown.get("DropInPaths", ""),
            stale=shown.get("NeedDaemonReload", ""),
            units=self.machine.check(listed).strip(),
        )

    def faults(self, before: State) -> list[str]:
        """What is not as before, or should not be there, a line each."""
        found = before.differences(self.state())
        try:
            self.await_ready(60)
        except AssertionError as error:
            found.append(str(error))
        stopped = self.machine.run(["sh", "-c", "grep -ls '^State:.T' /proc/[0-9]*/status"]).out
        if stopped:
            found.append(f"something is frozen: {stopped}")
        running = self.machine.run(["pgrep", "-af", "draftmark/.*agent"]).out
        if running:
            found.append(f"a command of the agent still runs: {running}")
        return found

    # --- Draftmark --------------------------------------------------------------------------------------------

    def words(self, verb: str, *words: str, host: str | None = None) -> tuple[str, ...]:
        """A command line of Draftmark's about the unit."""
        over = ("--host", host) if host else ()
        return (*_DRAFTMARK, verb, f"unit:{UNIT}", *over, *words)

    def controller(
        self,
        *words: str,
        host: str | None = None,
        user: str = "root",
        prefix: Sequence[str] = (),
        sweep: Sequence[str] = SWEEP,
        resume: Path | None = None,
    ) -> Controller:
        """Begin `draftmark tune`, inside the lab or, with a host, outside.

        Args:
            words: More of its options.
            host: SSH destination; None to run it on the unit's own host.
            user: Who runs it inside.
            prefix: A command that runs it outside, such as in a network namespace.
            sweep: What is measured.
            resume: The run directory, as of `new_run`, of a run to go on with; a new run where there is none.
        """
        run = resume or self.new_run(host)
        directory = ("--resume", str(run)) if resume else (*sweep, "--run", str(run))
        command = self.words("tune", *words, *directory, host=host)
        if host is None:
            return self._popen(self.machine.inside(command, user=user), self.root(str(run)), inside=True)
        return self._popen((*prefix, *command), run, inside=False)

    def new_run(self, host: str | None) -> Path:
        """Where there is no run directory yet, as whoever runs it names it."""
        self._runs += 1
        name = f"run-{os.getpid()}-{self._runs}"
        return Path("/tmp", name) if host is None else self.folder / name

    def seen(self, run: Path, host: str | None) -> Path:
        """A run directory as it is reached from outside."""
        return self.root(str(run)) if host is None else run

    def _popen(self, command: Sequence[str], run: Path, *, inside: bool) -> Controller:
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        return Controller(process, inside, run)

    @property
    def environment(self) -> dict[str, str]:
        """Of commands outside."""
        kept = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
        return {
            **kept,
            "HOME": str(self.home),
            "PYTHONPATH": str(CHECKOUT / "src"),
            "PYTHONFAULTHANDLER": "1",
            "COLUMNS": "200",
        }

    def draftmark(self, verb: str, *words: str, host: str | None = None, user: str = "root") -> Ended:
        """Another verb, to its end, by a fresh process that knows nothing of a run."""
        command = self.words(verb, *words, host=host)
        if host is None:
            return self.machine.run(command, user=user, seconds=_LONGEST_S)
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    # --- SSH --------------------------------------------------------------------------------------------------

    def start_sshd(self, address: str = "127.0.0.1", name: str = "lab-sshd") -> str:
        """An sshd in the lab; the destination for root there, whom `home` may log in as."""
        folder = self.folder / name
        key = keygen(folder / "host_key")
        client = self.home / ".ssh/id_ed25519"
        if not client.exists():
            client.parent.mkdir(parents=True, mode=0o700)
            keygen(client)
            self._accounts()
        port = self.ssh_port
        inside = f"{_SSHD}/{name}"
        self.machine.write(f"{inside}/host_key", key.read_text())
        self.machine.write(f"{inside}/authorized_keys", client.with_suffix(".pub").read_text())
        self.machine.write(f"{inside}/sshd_config", _sshd_config(inside, address, port))
        self.machine.check(["chmod", "600", f"{inside}/host_key"])
        self.run_sshd(name, address)
        with (self.home / ".ssh/known_hosts").open("a") as known:
            known.write(f"[{address}]:{port} {key.with_suffix('.pub').read_text()}")
        return f"root@{address}:{port}"

    def run_sshd(self, name: str = "lab-sshd", address: str = "127.0.0.1") -> None:
        """Let one that was there run again, after a reboot."""
        program, library_path = _sshd_program()
        self.machine.check(
            [
                "systemd-run",
                f"--unit={name}",
                f"--setenv=LD_LIBRARY_PATH={library_path}",
                "--property=RuntimeDirectory=sshd",
                *(str(program), "-D", "-e", "-f", f"{_SSHD}/{name}/sshd_config"),
            ]
        )
        listening = f"{socket.inet_aton(address)[::-1].hex()}:{self.ssh_port:04X} 00000000:0000 0A"
        self.machine.until(f"grep -qi '{listening}' /proc/net/tcp", seconds=30)

    def _accounts(self) -> None:
        """A locked account may not log in, and sshd needs one of its own."""
        self.machine.check(
            [
                "sh",
                "-c",
                "grep -q ^sshd: /etc/passwd || echo sshd:x:29999:65534::/run/sshd:/usr/sbin/nologin >>/etc/passwd; "
                f"sed -i 's/^root:[^:]*:/root:*:/' /etc/shadow; echo '{USER}:*:20000:0:99999:7:::' >>/etc/shadow; "
                "sed -i 's,^root:.*,root:x:0:0:root:/root:/bin/sh,' /etc/passwd; "
                "rm -f /root/.profile /root/.bashrc",
            ]
        )


def _server(port: int) -> tuple[tuple[str, ...], dict[str, str]]:
    ready = provision(NullProgress())
    command = list(ready.command)
    for option, value in (("--port", str(port)), ("-t", "1")):  # two threads wait for each other on a busy machine
        command[command.index(option) + 1] = value
    return tuple(command), dict(ready.env)


def _sshd_program() -> tuple[Path, str]:
    folder = unpacked(PACKAGES, "usr/sbin/sshd")
    return folder / "usr/sbin/sshd", ":".join(str(path) for path in sorted(folder.glob("usr/lib/*-linux-gnu")))


def _sshd_config(folder: str, address: str, port: int) -> str:
    return f"""\
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 200
"""


def _listing(root: Path) -> Iterator[tuple[str, str]]:
    for top in FOLDERS:
        for folder, folders, files in os.walk(root / top):
            for path in (Path(folder), *(Path(folder, name) for name in (*files, *folders))):
                yield str(path.relative_to(root)), _described(path)


def _described(path: Path) -> str:
    try:
        facts = path.lstat()
        what = f"{facts.st_mode:o} {facts.st_uid}:{facts.st_gid}"
        if path.is_symlink():
            return f"{what} -> {path.readlink()}"
        if path.is_file():
            return f"{what} {facts.st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    except FileNotFoundError:
        return "gone while it was looked at"
    return what


@contextlib.contextmanager
def llm_lab() -> Iterator[LlmLab]:
    """A lab with the service ready and an sshd on the loopback.

    Raises:
        UnavailableError: It cannot be had here.
    """
    with tempfile.TemporaryDirectory(prefix="draftmark-lab-") as folder:
        lab = LlmLab(Path(folder))
        try:
            lab.start_sshd()
            yield lab
        finally:
            lab.close()


__all__ = ["SWEEP", "UNIT", "Controller", "LlmLab", "State", "UnavailableError", "llm_lab"]
