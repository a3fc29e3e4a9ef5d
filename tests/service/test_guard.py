"""The guard alone, spoken to over its pipes."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmark.service import guard as guard_module
from draftmark.testing import programs
from draftmark.testing.supervisor_contract import eventually

GUARD = Path(guard_module.__file__)


class Talk:
    """One guard, and both pipes to it."""

    def __init__(self, tmp_path: Path) -> None:
        self.tag = f"tag-{secrets.token_hex(6)}"
        self.log = tmp_path / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def config(self, *argv: str, log: str | None = None, directory: str = "", env: tuple[str, ...] = ()) -> bytes:
        path = str(self.log) if log is None else log
        payload = b"".join(os.fsencode(word) + b"\0" for word in (path, directory, *argv, *env))
        return b"%d %d\n%b" % (len(payload), len(argv), payload)

    def event(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        event: dict[str, Any] = json.loads(line) if line else {"event": "end of file"}
        return event

    def start(self, manner: str, *arguments: str) -> int:
        self.send(self.config(*programs.command(manner, self.tag, *arguments)))
        event = self.event()
        assert event["event"] == "started"
        assert eventually(lambda: "ready" in self.log.read_text())
        pid: int = event["pid"]
        return pid

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def left(self) -> list[int]:
        return programs.processes(self.tag)


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    one = Talk(tmp_path)
    try:
        yield one
    finally:
        one.hang_up()
        assert one.process.wait(5) is not None
        assert one.process.stdout is not None
        one.process.stdout.close()
        assert eventually(lambda: one.left() == [], 2)


def test_reports_a_life(talk: Talk) -> None:
    pid = talk.start("serve")
    assert os.getpgid(pid) == pid
    assert os.getsid(pid) == talk.process.pid
    talk.send(b"signal TERM\n")
    assert talk.event() == {"event": "exited", "code": 0}
    assert talk.event() == {"event": "gone"}
    assert talk.process.wait(2) == 0


def test_reports_a_death_by_signal(talk: Talk) -> None:
    talk.start("die", str(int(signal.SIGABRT)))
    assert talk.event() == {"event": "exited", "code": -signal.SIGABRT}
    assert talk.event() == {"event": "gone"}


def test_commands_right_behind_the_configuration(talk: Talk) -> None:
    talk.send(talk.config(*programs.command("serve", talk.tag)) + b"nonsense\nsignal KILL\nsig")
    assert talk.event()["event"] == "started"
    assert talk.event() == {"event": "exited", "code": -signal.SIGKILL}
    assert talk.event() == {"event": "gone"}


@pytest.mark.parametrize("manner", ["serve", "stubborn", "family"])
def test_end_of_file_kills_the_tree(talk: Talk, manner: str) -> None:
    talk.start(manner)
    talk.hang_up()
    assert eventually(lambda: talk.left() == [], 1)
    assert talk.process.wait(2) == 0


def test_gone_only_when_the_last_descendant_is(talk: Talk) -> None:
    talk.start("orphan")
    assert talk.event() == {"event": "exited", "code": 3}
    assert len(talk.left()) == 1
    talk.send(b"signal TERM\n")  # which that one ignores
    talk.send(b"signal KILL\n")
    assert talk.event() == {"event": "gone"}
    assert talk.left() == []


def test_a_stopped_engine_hears_sigterm(talk: Talk) -> None:
    pid = talk.start("serve")
    os.kill(pid, signal.SIGSTOP)
    talk.send(b"signal TERM\n")
    assert talk.event() == {"event": "exited", "code": 0}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_guard_ignores_signals_meant_for_the_controller(talk: Talk, number: int) -> None:
    pid = talk.start("serve")
    os.kill(talk.process.pid, number)
    talk.send(b"signal TERM\n")
    assert talk.event() == {"event": "exited", "code": 0}
    assert pid not in talk.left()


def test_killed_guard_takes_the_engine_with_it(talk: Talk) -> None:
    talk.start("stubborn")
    talk.process.kill()
    assert eventually(lambda: talk.left() == [], 1)


@pytest.mark.parametrize("told", [b"", b"12", b"900 1\nhalf"])
def test_hung_up_before_the_configuration_was_whole(talk: Talk, told: bytes) -> None:
    talk.send(told)
    talk.hang_up()
    assert talk.event() == {"event": "end of file"}
    assert talk.process.wait(2) == 0


def test_exec_failure(talk: Talk) -> None:
    talk.send(talk.config("/no/such/program"))
    assert talk.event() == {
        "event": "exec-failed",
        "stage": "exec",
        "errno": 2,
        "error": "No such file or directory",
    }
    assert talk.event() == {"event": "end of file"}


@pytest.mark.parametrize(
    ("log", "number"), [("/dev/full", 28), ("/", 21), ("/no/such/log", 2)], ids=["full", "directory", "missing"]
)
def test_log_failure(talk: Talk, log: str, number: int) -> None:
    talk.send(talk.config(*programs.command("serve", talk.tag), log=log))
    event = talk.event()
    assert (event["event"], event["stage"], event["errno"]) == ("exec-failed", "log", number)
    assert talk.left() == []


def test_is_small_and_has_one_thread(talk: Talk) -> None:
    talk.start("serve")
    lines = Path(f"/proc/{talk.process.pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    assert status["Threads"].strip() == "1"
    assert int(status["VmRSS"].split()[0]) < 12 * 1024
    assert status["Name"].strip() == "draftmark-guard"


def test_children_without_the_kernels_list() -> None:
    """A kernel may lack /proc/PID/task/TID/children: the scan of all processes finds the same.

    In a process of one thread, as the guard is: the kernel's list is of the children of one thread alone.
    """
    code = (
        "import subprocess; from draftmark.service import guard\n"
        "child = subprocess.Popen(['sleep', '30'])\n"
        "print(child.pid, guard._children(), guard._children(guard._parents()))\n"
        "child.kill(); child.wait()\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said[1] == said[2] == f"[{said[0]}]"
