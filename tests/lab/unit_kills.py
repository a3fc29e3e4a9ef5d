"""Draftmark is killed at a random moment of each phase of its work; the unit must be as it was."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .llm_unit import UNIT, Controller, LlmLab
from .unit_runs import PHASES, Phase, Scripts, keep_undone
from .unit_tune import KEPT, where

LEASE_S = 6
PERIOD_S = 1  # of the switch's timer, at that lease
BEGIN_S = LEASE_S + PERIOD_S
"""Promised: so long after the last sign of life the host begins to put the unit back."""
_SLACK_S = 1.0  # timers and processes of a machine with two busy cores
_STILL_S = 30.0  # a command that ran, and the unit's own stop and start
OPTIONS = ("--lease", str(LEASE_S))
# Of what a killed `open` leaves nothing concerns the unit, and the next Draftmark takes it away.
_HALF_OPEN = "run/draftmark"


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, and what came of it.

    Attributes:
        number: Of the point.
        kind: `local` or `ssh`.
        phase: Where it was meant to come.
        into_s: So long after the phase began.
        hit: The entry of the record, and the command on the unit's host, that it came in.
        harsh: The commands that ran on this computer were killed, too.
        way: `switch`, `restore`, or `restore from elsewhere`.
        began_s: From the kill until the host began to put it back; None where it had nothing to do.
        back_s: Until nothing of the run was left on the host.
        note: What else was seen.
        faults: What is not as it was.
    """

    number: int
    kind: str
    phase: Phase
    into_s: float
    hit: str
    harsh: bool
    way: str
    began_s: float | None
    back_s: float
    note: str = ""
    faults: tuple[str, ...] = field(default=())

    @property
    def line(self) -> str:
        """For the log."""
        began = "-" if self.began_s is None else f"{self.began_s:.1f} s"
        head = f"{self.number:3} {self.kind:5} {self.phase.name} +{self.into_s:.2f} s (in {self.hit})"
        tail = f"{self.way}: begun {began}, back {self.back_s:.1f} s {'harsh ' * self.harsh}{self.note}"
        return "\n".join((f"{head} -> {tail}", *(f"    WRONG {fault}" for fault in self.faults)))


class Kills:
    """Kills controllers of one kind of host."""

    def __init__(self, lab: LlmLab, host: str | None, other: str | None, chance: random.Random) -> None:
        self._lab = lab
        self._host = host
        self._other = other
        self._chance = chance
        self._scripts = Scripts(lab, host, options=OPTIONS)
        self._number = 0

    def kill(self, number: int, phase: Phase, way: str = "") -> Kill:
        """One, with everything looked at afterwards; `way` is how it is put back, at random if none is given."""
        before = self._lab.state()
        caught = self._scripts.catch(phase, self._chance)
        if caught is None:
            return Kill(number, where(self._host), phase, 0.0, "", False, "", None, 0.0, "", ("never hit",))
        controller, into = caught
        hit = "+".join((controller.phase, *self._lab.agent_commands()))
        harsh = self._host is None and number % 4 == 3
        killed, wall = time.monotonic(), time.time()
        _kill(controller, harsh=harsh)
        way = way or ("switch", "restore", "switch", "restore from elsewhere")[self._chance.randrange(4)]
        faults = list(self._restore(way) if way != "switch" else self._await_switch(killed))
        back = time.monotonic() - killed
        controller.wait(20)
        began, wrong = self._switch_began(wall)
        note = self._tidied(killed)
        faults += [*wrong, *self._lab.faults(before)]
        if faults:
            self._lab.draftmark("restore", "--force", host=self._host)
            self._lab.await_ready()
        return Kill(number, where(self._host), phase, into, hit, harsh, way, began, back, note, tuple(faults))

    def _restore(self, way: str) -> Iterator[str]:
        """From elsewhere it cannot be seen that the controller is dead; under its measurement nothing is forced."""
        elsewhere = way != "restore"
        words, host = (("--force",), self._other) if elsewhere else ((), self._host)
        deadline = time.monotonic() + BEGIN_S + _SLACK_S
        while (ended := self._lab.draftmark("restore", *words, host=host)).status == 30 and elsewhere:
            if "a measurement runs" not in ended.err or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        if ended.status != 0:
            yield f"restore: exit status {ended.status}: {ended.err}"

    def _await_switch(self, killed: float) -> Iterator[str]:
        deadline = killed + BEGIN_S + _SLACK_S + _STILL_S
        while self._lab.held() or self._lab.agent_commands():
            if time.monotonic() > deadline:
                armed = self._lab.machine.run(["systemctl", "is-active", f"draftmark-{UNIT}.timer"]).out.strip()
                yield f"not back {deadline - killed:.0f} s after the kill; the switch is {armed}"
                return
            time.sleep(0.05)

    def _switch_began(self, killed: float) -> tuple[float | None, list[str]]:
        """When the switch began, and whether that was in time."""
        entries = self._lab.machine.journal("-t", "draftmark", "--since", f"@{killed - 1:.0f}")
        begun = [
            int(entry["__REALTIME_TIMESTAMP"]) / 1e6 - killed
            for entry in entries
            if "is put back" in str(entry["MESSAGE"])
        ]
        if not begun:
            return None, []
        late = begun[0] > BEGIN_S + _SLACK_S
        return begun[0], [f"the switch began {begun[0]:.1f} s after the kill, not {BEGIN_S} s"] * late

    def _tidied(self, killed: float) -> str:
        """Undo a keep that was done when the kill came, and see to what a killed `open` leaves."""
        del killed
        kept = self._lab.root(KEPT).exists()
        if wrong := keep_undone(self._lab, self._host):
            return wrong[0]
        if kept:
            return "it was kept: undone by restore"
        left = self._lab.root(_HALF_OPEN)
        if left.exists() and not self._lab.held():
            self._lab.draftmark("restore", host=self._host)
            return "half-opened hold tidied by restore"
        return ""


def _kill(controller: Controller, *, harsh: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        pid = controller.pid
        children: Sequence[str] = ()
        if harsh:
            tasks = Path(f"/proc/{pid}/task").iterdir()
            children = [word for task in tasks for word in (task / "children").read_text().split()]
        os.kill(pid, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(child), signal.SIGKILL)


def kills(lab: LlmLab, count: int, seed: int = 1, only: str = "") -> Iterator[Kill]:
    """Half of them on the unit's own host, half over SSH, spread over all phases, or those of one script."""
    chance = random.Random(seed)
    ssh = f"root@127.0.0.1:{lab.ssh_port}"
    sides = [Kills(lab, None, ssh, chance), Kills(lab, ssh, None, chance)]
    phases = [phase for phase in PHASES if only in ("", phase.script)]
    plans = [[phases[index % len(phases)] for index in range((count + 1) // 2)] for _ in sides]
    for plan in plans:
        chance.shuffle(plan)
    for number in range(count):
        yield sides[number % 2].kill(number + 1, plans[number % 2][number // 2])


def table(found: Sequence[Kill]) -> str:
    """A line for each kind of host and phase."""
    rows: dict[tuple[str, str], list[Kill]] = {}
    for each in found:
        rows.setdefault((each.kind, each.phase.name), []).append(each)
    lines = [f"{'host':6}{'phase':24}{'n':>3}{'wrong':>6}  {'switch begins':>14}  {'back':>8}  {'restore':>8}"]
    for (kind, name), group in sorted(rows.items()):
        switched = [k for k in group if k.way == "switch"]
        by_hand = [k.back_s for k in group if k.way != "switch"]
        begins = _most([k.began_s for k in switched if k.began_s is not None])
        back = _most([k.back_s for k in switched])
        wrong = sum(bool(k.faults) for k in group)
        lines.append(f"{kind:6}{name:24}{len(group):3}{wrong:6}  {begins:>14}  {back:>8}  {_most(by_hand):>8}")
    good = sum(not k.faults for k in found)
    lines.append(
        f"{good} of {len(found)} back as they were; promised: begun within {BEGIN_S} s of the last sign of life"
    )
    return "\n".join(lines)


def _most(seconds: Sequence[float]) -> str:
    return f"{max(seconds):.1f} s" if seconds else "-"
