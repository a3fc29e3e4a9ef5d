"""Nothing outlives the controller, whatever kills it and whenever."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import draftmark
from draftmark.testing import programs
from draftmark.testing.supervisor_contract import eventually

SOURCE = str(Path(draftmark.__file__).parent.parent)

# Starts and stops without end; a file says how far it has come. Interrupted, it leaves without stopping anything.
CONTROLLER = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from draftmark.service.command import CommandSupervisor
from draftmark.testing import programs
folder, manner, pause_s, after = Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5]
supervisor = CommandSupervisor(programs.command(manner, "x"), grace_s=0.05, second_grace_s=0.05)
if after == "shrug":
    signal.signal(signal.SIGINT, lambda *_: None)
print("go", flush=True)
try:
    while True:
        supervisor.start(supervisor.original, folder / "log")
        if after == "fork" and os.fork() == 0:
            while True:
                time.sleep(1)
        time.sleep(pause_s)
        if after in ("stay", "shrug"):
            time.sleep(60)
        supervisor.stop()
except KeyboardInterrupt:
    os._exit(130)
"""


class Controller:
    """A controller in a process of its own, whose descendants all carry a tag in their environment."""

    def __init__(self, folder: Path, manner: str, *, pause_s: float = 0.02, after: str = "stop") -> None:
        self.tag = f"tag-{secrets.token_hex(6)}"
        self.log = folder / "log"
        self.log.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, SOURCE, str(folder), manner, str(pause_s), after],
            stdout=subprocess.PIPE,
            env={**os.environ, "TEST_TAG": self.tag},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"go\n"

    def ready(self) -> None:
        assert eventually(lambda: self.log.exists() and "ready" in self.log.read_text())

    def end(self, number: int, *, group: bool = False) -> int:
        (os.killpg if group else os.kill)(self.process.pid, number)
        code = self.process.wait(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def nothing_left(self, seconds: float) -> bool:
        return eventually(lambda: programs.processes(self.tag) == [], seconds)


@pytest.mark.parametrize("seed", range(20))
def test_controller_killed_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    """A cycle of start, run and stop takes about 0.1 s: the moments are spread over the first few cycles."""
    chance = random.Random(seed)
    controller = Controller(tmp_path, chance.choice(["serve", "stubborn", "family", "pair", "twice", "orphan"]))
    time.sleep(chance.uniform(0, 0.25))
    assert controller.end(signal.SIGKILL) == -signal.SIGKILL
    assert controller.nothing_left(2)


@pytest.mark.parametrize("manner", ["stubborn", "family"])
def test_controller_killed_while_the_service_runs(tmp_path: Path, manner: str) -> None:
    """So that there certainly was something to clear away; and that within a second."""
    controller = Controller(tmp_path, manner, after="stay")
    controller.ready()
    assert len(programs.processes(controller.tag)) >= 3  # controller, guard, service
    controller.end(signal.SIGKILL)
    assert controller.nothing_left(1)


@pytest.mark.parametrize("seed", range(6))
def test_ctrl_c_at_a_random_moment_of_start(tmp_path: Path, seed: int) -> None:
    """As a terminal sends it: to the controller's whole process group. It leaves without stopping the service."""
    controller = Controller(tmp_path, "stubborn", after="stay")
    time.sleep(random.Random(seed).uniform(0, 0.08))
    assert controller.end(signal.SIGINT, group=True) == 130
    assert controller.nothing_left(2)


def test_a_controller_that_handles_ctrl_c_keeps_its_service(tmp_path: Path) -> None:
    """The guard and the service are the controller's to stop, however often the terminal interrupts its group."""
    controller = Controller(tmp_path, "serve", after="shrug", pause_s=60)
    for _ in range(40):
        os.killpg(controller.process.pid, signal.SIGINT)
        time.sleep(0.002)
    controller.ready()
    assert len(programs.processes(controller.tag)) == 3
    controller.end(signal.SIGKILL)
    assert controller.nothing_left(2)


def test_a_fork_of_the_controller_does_not_keep_the_service(tmp_path: Path) -> None:
    """It holds the pipe open, so the guard sees no end of file; it sees the controller's death all the same."""
    controller = Controller(tmp_path, "stubborn", after="fork", pause_s=60)
    controller.ready()
    # Controller, fork, guard, service.
    assert eventually(lambda: len(programs.processes(controller.tag)) == 4, 2)
    controller.end(signal.SIGKILL)
    assert eventually(lambda: len(programs.processes(controller.tag)) == 1, 1)
    os.killpg(controller.process.pid, signal.SIGKILL)
    assert controller.nothing_left(1)


def test_controller_without_standard_streams(tmp_path: Path) -> None:
    """Its pipes would get those descriptors, and be written to by whatever prints."""
    tag = f"tag-{secrets.token_hex(6)}"
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from draftmark.service.command import CommandSupervisor\n"
        "with CommandSupervisor(sys.argv[3:]) as supervisor:\n"
        "    supervisor.start(supervisor.original, Path(sys.argv[2]))\n"
        "    free = not any(Path(f'/proc/self/fd/{number}').exists() for number in range(3))\n"
        "    sys.exit(supervisor.stop().outcome != 'clean' or not free)\n"
    )
    argv = [sys.executable, "-c", script, SOURCE, str(tmp_path / "log"), "sleep", "60"]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *argv]
    assert subprocess.run(closed, env={**os.environ, "TEST_TAG": tag}, timeout=10, check=False).returncode == 0
    assert programs.processes(tag) == []
