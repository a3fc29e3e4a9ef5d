"""`python -m tests.service.systemd.kill_points [N] [--seed S] [--mode ns|uml]`: a controller is killed N times.

Each time SIGKILL comes at another moment between its start and its end, for every other one to its running command
on the host as well; then the unit must be as it was, byte for byte, by the dead man's switch or by a `restore` from
a fresh process that knows nothing. Exit status 1 when one is not.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.lab.machine import Machine, Mode
from tests.lab.packages import UnavailableError

from draftmark.service.host import free_port

from .lab_host import SERVER

LEASE_S = 6
SLACK_S = 4.0  # for the restore itself, on a busy machine
UNIT = "llm.service"
LOG = "/tmp/steps"
KEPT_BEFORE = "# kept earlier\n[Service]\nEnvironment=EARLIER=1\n"
FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/run/draftmark", "/var/lib/draftmark")
SNAPSHOT = """
find "$@" -printf "%y %m %u %p %l\\n" 2>/dev/null | sort
find "$@" -type f -exec sha256sum {} + 2>/dev/null | sort
"""
RESTORE = f"""\
from draftmark.service.local import LocalHost
from draftmark.service.systemd.restore import restore
print(restore(LocalHost(), {UNIT!r}))
"""


@dataclass(frozen=True)
class State:
    files: str
    command: str
    active: str
    invocation: str


@dataclass(frozen=True)
class Point:
    """One kill.

    Attributes:
        after: When, as a part of the time that the controller takes undisturbed.
        harsh: The command that it runs on the host is killed first.
        by_hand: A fresh process restores, instead of the switch.
        up: The unit is active before.
        kept: There is a kept drop-in from before.
        keep: The controller keeps its choice at the end.
    """

    after: float
    harsh: bool
    by_hand: bool
    up: bool
    kept: bool
    keep: bool


@dataclass(frozen=True)
class Outcome:
    step: str
    seconds: float
    faults: tuple[str, ...]


class Bench:
    """A lab with the unit in it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._port = free_port()
        self._command = f"{sys.executable} {SERVER} --port {self._port} --depth 0"
        self._lasts: dict[bool, float] = {}
        machine.write(f"/etc/systemd/system/{UNIT}", f"[Service]\nExecStart={self._command}\nRestart=on-failure\n")
        machine.write(f"/etc/systemd/system/{UNIT}.d/10-mine.conf", "[Service]\nEnvironment=MINE='a b' OTHER=%n\n")

    def play(self, point: Point) -> Outcome:
        self._prepare(point)
        before = self._state()
        thread = threading.Thread(target=self._controller, args=(point,), daemon=True)
        lasts = self._lasts.get(point.keep) or self._measure(point)
        thread.start()
        while not (began := self._steps()) or not began[0].startswith("pid"):
            time.sleep(0.01)
        time.sleep(point.after * lasts)
        self._kill(int(began[0].split()[1]), harsh=point.harsh)
        killed = time.monotonic()
        thread.join()
        steps = self._steps()
        faults = self._await_restored(point, killed)
        seconds = time.monotonic() - killed
        return Outcome(steps[-1], seconds, (*faults, *self._faults(before, point, steps)))

    def _measure(self, point: Point) -> float:
        """How long it takes when nobody kills it."""
        began = time.monotonic()
        self._controller(point)
        lasts = time.monotonic() - began - 0.3  # the interpreter's start
        assert self._steps()[-1] == "end", self._steps()
        self._lasts[point.keep] = lasts
        self._prepare(point)
        return lasts

    def _prepare(self, point: Point) -> None:
        kept = f"/etc/systemd/system/{UNIT}.d/zz-draftmark.conf"
        self._machine.check(["sh", "-c", f"rm -rf {LOG} {kept} /var/lib/draftmark"])
        if point.kept:
            self._machine.write(kept, KEPT_BEFORE)
        self._machine.check(["systemctl", "daemon-reload"])
        self._machine.check(["systemctl", "restart" if point.up else "stop", UNIT])

    def _controller(self, point: Point) -> None:
        options = {
            "unit": UNIT,
            "port": self._port,
            "lease_s": LEASE_S,
            "command": self._command,
            "measure_s": 0.3,
            "log": LOG,
            "keep": point.keep,
        }
        program = Path(__file__).with_name("controller.py")
        self._machine.run([sys.executable, program, json.dumps(options)])

    def _steps(self) -> list[str]:
        return self._machine.run(["cat", LOG]).out.splitlines()

    def _kill(self, pid: int, *, harsh: bool) -> None:
        groups = f"$(for child in $(cat /proc/{pid}/task/*/children); do echo -$child; done)" if harsh else ""
        self._machine.run(["sh", "-c", f"env kill -9 -- {groups} {pid}"])

    def _await_restored(self, point: Point, killed: float) -> tuple[str, ...]:
        steps = self._steps()
        left = self._machine.run(["test", "-e", "/run/draftmark"]).status == 0
        if left and (point.by_hand or (point.harsh and not self._armed())):
            ended = self._machine.run([sys.executable, "-c", RESTORE])
            if ended.status != 0 and steps[-1] != "end":
                return (f"restore: {ended.out}{ended.err}",)
            return ()
        deadline = killed + LEASE_S + 1 + SLACK_S
        while self._machine.run(["test", "-e", "/run/draftmark"]).status == 0:
            if time.monotonic() > deadline:
                return ("the switch has not restored in time",)
            time.sleep(0.1)
        return ()

    def _armed(self) -> bool:
        return self._machine.run(["systemctl", "is-active", f"draftmark-{UNIT}.timer"]).status == 0

    def _state(self) -> State:
        shown = self._machine.show(UNIT)
        return State(
            files=self._machine.check(["sh", "-c", f"{SNAPSHOT}true", "x", *FOLDERS]),
            command=shown["ExecStart"].partition(" ; start_time=")[0],
            active=shown["ActiveState"],
            invocation=shown.get("InvocationID", ""),
        )

    def _faults(self, before: State, point: Point, steps: list[str]) -> list[str]:
        faults = []
        after = self._state()
        if point.keep and "keep" in steps and after.files != before.files:
            faults += self._undo_keep(after)
            after = self._state()
        if "keep" in steps and not point.up and after.active == "active":  # a keep is of a service that runs
            after, point = replace(after, active=before.active), replace(point, up=True)
        for name in ("files", "command", "active"):
            if (was := getattr(before, name)) != (now := getattr(after, name)):
                differing = difflib.unified_diff(
                    was.splitlines(), now.splitlines(), "before", "after", n=0, lineterm=""
                )
                faults.append("\n".join((name, *differing)))
        if "stop" not in steps and after.invocation != before.invocation:
            faults.append("it was restarted though nothing had stopped it")
        faults += self._left(point)
        return faults

    def _undo_keep(self, kept: State) -> list[str]:
        """The keep had succeeded when the kill came: the drop-in is whole and in force, and a restore undoes it."""
        faults = [] if "--depth 5" in kept.command else [f"half kept: {kept}"]
        ended = self._machine.run([sys.executable, "-c", RESTORE])
        return faults + ([] if ended.status == 0 else [f"undoing the keep: {ended.err}"])

    def _left(self, point: Point) -> list[str]:
        units = self._machine.check(["systemctl", "list-units", "--all", "--plain", "--no-legend", "draftmark*"])
        faults = [f"units are left: {units}"] if units.strip() else []
        running = self._machine.run(["pgrep", "-af", "counting_server"]).out
        if (
            point.up != (f"--port {self._port} --depth 0" in running)
            or "--depth 3" in running
            or "--depth 5" in running
        ):
            faults.append(f"what runs: {running}")
        if self._machine.run(["sh", "-c", "grep -ls '^State:.T' /proc/[0-9]*/status"]).out:
            faults.append("something is frozen")
        if self._machine.run(["pgrep", "-af", "draftmark/.*agent"]).out:
            faults.append("a command of the agent still runs")
        return faults


def points(count: int, seed: int) -> list[Point]:
    """Spread over the whole time, in random order, with every combination."""
    chance = random.Random(seed)
    found = [
        Point(
            after=(index + chance.random()) / count,
            harsh=bool(index % 2),
            by_hand=chance.random() < 0.4,
            up=chance.random() < 0.8,
            kept=chance.random() < 0.4,
            keep=chance.random() < 0.4,
        )
        for index in range(count)
    ]
    chance.shuffle(found)
    return found


def main() -> int:
    """Kill, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.service.systemd.kill_points")
    parser.add_argument("count", nargs="?", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", type=Mode, default=Mode.SHARED)
    options = parser.parse_args()
    try:
        machine = Machine.boot(options.mode)
    except UnavailableError as reason:
        print(f"no lab: {reason}")
        return 1
    bench, wrong = Bench(machine), 0
    for number, point in enumerate(points(options.count, options.seed), 1):
        outcome = bench.play(point)
        wrong += bool(outcome.faults)
        print(f"{number:3} {point}\n    in {outcome.step}, back after {outcome.seconds:.1f} s", flush=True)
        for fault in outcome.faults:
            print(f"    WRONG {fault}", flush=True)
    print(f"{options.count - wrong} of {options.count} back as they were")
    machine.close()
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
