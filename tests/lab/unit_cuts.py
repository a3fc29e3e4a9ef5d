"""The link to the unit's host is cut at a random moment of each phase; the host must put the unit back itself."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from .llm_unit import LlmLab
from .machine import Ended
from .network import Cable, Cut
from .unit_kills import BEGIN_S, LEASE_S, OPTIONS
from .unit_runs import PHASES, Phase, Scripts, keep_undone

ENDS_S = 120.0
"""By then a controller without a link must have ended."""
_LONGEST_S = 300.0
_STILL_S = 30.0
_SLACK_S = 1.0
_LONG_LEASE_S = 30
SHORT_CUT_S = 5.0
_TOLD = re.compile(
    r"put(s|ting)? (it |the unit |the service )?back|as it was|nothing (was|of it) changed", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class CutPoint:
    """One cut, and what came of it.

    Attributes:
        number: Of the point.
        phase: Where it came.
        how: The way it was cut, and for how long.
        hit: The entry of the record, and the command on the unit's host, that it came in.
        status: Exit status of the controller.
        ended_s: From the cut until it ended.
        back_s: From the cut until nothing of the run was left on the host.
        said: Its message.
        faults: What is not as it must be.
    """

    number: int
    phase: Phase
    how: str
    hit: str
    status: int
    ended_s: float
    back_s: float
    said: str
    faults: tuple[str, ...]

    @property
    def line(self) -> str:
        """For the log."""
        head = f"{self.number:3} {self.how:14} {self.phase.name:22} (in {self.hit}) -> exit {self.status}"
        tail = f"after {self.ended_s:.1f} s, back {self.back_s:.1f} s"
        told = "\n".join(f"      {line}" for line in self.said.splitlines())
        return "\n".join((f"{head} {tail}", told, *(f"    WRONG {fault}" for fault in self.faults)))


class Cuts:
    """Cuts controllers off that run behind a cable."""

    def __init__(self, lab: LlmLab, cable: Cable, chance: random.Random) -> None:
        self._lab = lab
        self._cable = cable
        self._chance = chance
        self._host = lab.start_sshd(cable.address, "behind-cable")
        self._near = f"root@127.0.0.1:{lab.ssh_port}"
        self._scripts = Scripts(lab, self._host, prefix=cable.prefix, near=self._near)

    def cut(self, number: int, phase: Phase, how: Cut, *, for_good: bool = True) -> CutPoint:
        """Cut it off until the controller has ended, or only until the host has put the unit back."""
        before = self._lab.state()
        caught = self._scripts.catch(phase, self._chance, OPTIONS, late="finish")
        if caught is None:
            return CutPoint(number, phase, str(how), "", 0, 0.0, 0.0, "", ("never met",))
        controller, _ = caught
        hit = "+".join((controller.phase, *self._lab.agent_commands()))
        self._cable.cut(how)
        cut, held = time.monotonic(), self._lab.held()
        deadline = cut + BEGIN_S + _SLACK_S + _STILL_S
        back, ended_s = 0.0, 0.0
        while time.monotonic() < deadline and not (back and ended_s):
            now = time.monotonic() - cut
            if not back and not self._lab.held() and not self._lab.agent_commands():
                back = now
                if not for_good:
                    self._cable.mend()
            if not ended_s and controller.process.poll() is not None:
                ended_s = now
            time.sleep(0.05)
        faults = [] if back else [f"not back {deadline - cut:.0f} s after the cut"]
        ended = controller.wait(max(0.1, cut + _LONGEST_S - time.monotonic()))
        ended_s = ended_s or time.monotonic() - cut
        if ended_s > ENDS_S:
            faults.append(f"it had not ended {ENDS_S:.0f} s after the cut")
        self._cable.mend()
        faults += [*_wrong_end(ended, held=held), *keep_undone(self._lab, self._near), *self._lab.faults(before)]
        self._tidy(faults)
        return CutPoint(
            number, phase, f"{how}, for good", hit, ended.status, ended_s, back, _said(ended), tuple(faults)
        )

    def blink(self, number: int, phase: Phase, how: Cut) -> CutPoint:
        """Cut it off for a few seconds, which is shorter than the lease."""
        before = self._lab.state()
        caught = self._scripts.catch(phase, self._chance, ("--lease", str(_LONG_LEASE_S)), late="finish")
        if caught is None:
            return CutPoint(number, phase, str(how), "", 0, 0.0, 0.0, "", ("never met",))
        controller, _ = caught
        hit = "+".join((controller.phase, *self._lab.agent_commands()))
        self._cable.cut(how)
        cut, held = time.monotonic(), self._lab.held()
        time.sleep(SHORT_CUT_S)
        self._cable.mend()
        ended = controller.wait(300)
        ended_s = time.monotonic() - cut
        faults = [] if ended.status in (0, 10, 40) else list(_wrong_end(ended, held=held))
        deadline = cut + _LONG_LEASE_S * 1.2 + _STILL_S
        while self._lab.held() and time.monotonic() < max(deadline, cut + ended_s + 1):
            time.sleep(0.1)
        back = time.monotonic() - cut
        faults += [*keep_undone(self._lab, self._near), *self._lab.faults(before)]
        self._tidy(faults)
        told = "" if ended.status in (0, 10, 40) else _said(ended)
        how_long = f"{how}, {SHORT_CUT_S:.0f} s"
        return CutPoint(number, phase, how_long, hit, ended.status, ended_s, back, told, tuple(faults))

    def _tidy(self, faults: list[str]) -> None:
        if faults:
            self._lab.draftmark("restore", "--force", host=self._near)
            self._lab.await_ready()


def _said(ended: Ended) -> str:
    """The message at the end, without the progress before it."""
    lines = ended.err.strip().splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("error")), max(0, len(lines) - 6))
    return "\n".join(lines[start:])


def _wrong_end(ended: Ended, *, held: bool) -> Iterator[str]:
    if ended.status not in (50, 51):
        yield f"exit status {ended.status}: {ended.err[-800:]}"
    if "Traceback" in ended.err or "draftmark itself failed" in ended.err:
        yield f"no message for people: {ended.err[-800:]}"
    elif sum(line.startswith("error") for line in ended.err.splitlines()) != 1:
        yield f"not one message: {ended.err[-800:]}"
    elif held and _TOLD.search(_said(ended)) is None:
        yield "it does not say how the host is put back"


def cuts(lab: LlmLab, count: int, seed: int = 1) -> Iterator[CutPoint]:
    """`count` cuts for good over all phases, and half as many short ones."""
    chance = random.Random(seed)
    with Cable() as cable:
        player = Cuts(lab, cable, chance)
        phases = [phase for phase in PHASES if phase.action not in ("restored", "kept")]
        chance.shuffle(phases)
        ways = list(Cut)
        for number in range(count):
            yield player.cut(number + 1, phases[number % len(phases)], ways[number % len(ways)])
        for number in range(count // 2):
            phase = phases[(number * 2 + 1) % len(phases)]
            yield player.blink(count + number + 1, phase, ways[number % len(ways)])


__all__ = ["LEASE_S", "CutPoint", "cuts"]
