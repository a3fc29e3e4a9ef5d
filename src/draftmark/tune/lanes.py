"""Which trial a node of a cluster runs next, from the records of a run and what runs elsewhere now. Pure.

Every node measures the baseline before its arms and after them, so that each figure is held against one of the same
machine. Arms are taken as nodes become free, a second start of an arm by another node where there is one. What a
lost node had is taken by the next. docs/cluster.md has the rules in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftmark.model import Arm, Trial, TrialStatus
from draftmark.run.records import RunInfo, RunRecord, Slot
from draftmark.tune.decide import Observation, astray
from draftmark.tune.observing import Measured, measurements, observations, steady_axes
from draftmark.tune.steering import disturbed

_BASELINE_TRIES = 2
_HOPELESS = 3  # trials in a row that were disturbed: this node cannot measure now


@dataclass(frozen=True, slots=True)
class Turn:
    """What a node does next.

    Attributes:
        slot: What it starts; None where there is nothing for it now.
        left: Why it will get nothing more in this run, in words; None while it may.
    """

    slot: Slot | None = None
    left: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of the work: an arm, and the how many-eth start of it."""

    round: int
    arm: Arm


def work(info: RunInfo) -> tuple[Place, ...]:
    """All starts but those of the baseline."""
    return in_rounds([a for a in info.arms if a != info.baseline and a.name not in info.refused], info.rounds)


def in_rounds(arms: Sequence[Arm], rounds: int) -> tuple[Place, ...]:
    """Every arm once a round, each round in the reverse order of the one before."""
    once = list(dict.fromkeys(arms))
    return tuple(
        Place(number, arm) for number in range(1, rounds + 1) for arm in (once if number % 2 else reversed(once))
    )


class Lanes:
    """A run over several nodes, as its records have it.

    Args:
        record: The run.
        known: Measurements by trial of an earlier look at the same run; those that are missing are added.
    """

    def __init__(self, record: RunRecord, known: dict[int, Measured] | None = None) -> None:
        self.info = record.info
        self.trials = [r.trial for r in record.trials]
        measured = {} if known is None else known
        for each in record.trials:
            if each.trial.number not in measured:
                measured[each.trial.number] = measurements(each, self.info)
        steady = steady_axes(self.trials, measured)
        found: list[Observation] = observations(self.trials, measured, self.info, steady)
        self._figures = {o.trial for o in found}
        # A node is judged once it is through: until then its one baseline is no fault.
        self.astray = {
            node: why
            for node, why in astray(found, baseline=self.info.baseline.name).items()
            if node and not self._between(node)
        }

    def of(self, node: str) -> list[Trial]:
        """Its trials, as they were started."""
        return sorted((t for t in self.trials if t.node == node), key=lambda t: t.number)

    @property
    def gone(self) -> frozenset[str]:
        """Arms that did not start somewhere: never retried blindly, on no node."""
        failed = (t.arm for t in self.trials if t.status is TrialStatus.DID_NOT_START)
        return frozenset(arm.name for arm in failed if arm != self.info.baseline)

    def pending(self, busy: Mapping[str, Slot]) -> list[Place]:
        """What nobody has done or is doing. What was done on a node that counts nowhere is to be done again."""
        taken = {Place(t.round, t.arm) for t in self.trials if self._stands(t)}
        taken |= {Place(slot.round, slot.arm) for slot in busy.values()}
        return [place for place in work(self.info) if place not in taken and place.arm.name not in self.gone]

    def _stands(self, trial: Trial) -> bool:
        if trial.node is None or self.left(trial.node) is None:
            return True
        return trial.node not in self.astray and not disturbed(trial)

    def left(self, node: str) -> str | None:
        """Why a node is done with, whatever is left to do; None while it is not."""
        own = self.of(node)
        if node in self.astray:
            return self.astray[node]
        if len(own) >= _HOPELESS and all(disturbed(t) for t in own[-_HOPELESS:]):
            return f"{_HOPELESS} trials in a row were disturbed"
        base = [t for t in own if t.arm == self.info.baseline]
        if any(t.status is TrialStatus.DID_NOT_START for t in base):
            return f"the service as it is does not start there: {base[-1].because}"
        if not any(self._usable(t) for t in base) and len(base) >= _BASELINE_TRIES:
            return f"the service as it is could not be measured there: {base[-1].because or 'it was disturbed'}"
        return None

    def turn(self, node: str, busy: Mapping[str, Slot], number: int) -> Turn:
        """What a free node does next.

        Args:
            node: Which.
            busy: What the others run now, by node.
            number: Of the slot, if there is one for it.
        """
        if (left := self.left(node)) is not None:
            return Turn(left=left)
        pending, opened = self.pending(busy), self._opened(node)
        if not opened:
            opening = sum(slot.arm == self.info.baseline and not self._opened(n) for n, slot in busy.items())
            return Turn(self._baseline(node, number)) if len(pending) > opening else Turn()
        if pending:
            # An arm is not started twice at once before it is known to start.
            untried = {slot.arm for slot in busy.values()} - {t.arm for t in self.trials}
            own = {t.arm for t in self.of(node)}
            ready = sorted((p for p in pending if p.arm not in untried), key=lambda p: p.arm in own)
            return Turn(Slot(number=number, round=ready[0].round, arm=ready[0].arm)) if ready else Turn()
        if self._between(node):
            tries = self._since(node)
            if sum(t.arm == self.info.baseline for t in tries) >= _BASELINE_TRIES:
                return Turn(left="the service as it is could not be measured again there")
            return Turn(self._baseline(node, number))
        return Turn()

    def _baseline(self, node: str, number: int) -> Slot:
        base = self.info.baseline
        return Slot(number=number, round=sum(t.arm == base for t in self.of(node)) + 1, arm=base)

    def _usable(self, trial: Trial) -> bool:
        return trial.status is TrialStatus.MEASURED and trial.number in self._figures

    def _opened(self, node: str) -> bool:
        return any(t.arm == self.info.baseline and self._usable(t) for t in self.of(node))

    def _since(self, node: str) -> Sequence[Trial]:
        """Its trials after the last measured arm."""
        own = self.of(node)
        last = max((i for i, t in enumerate(own) if t.arm != self.info.baseline and self._usable(t)), default=None)
        return [] if last is None else own[last + 1 :]

    def _between(self, node: str) -> bool:
        """Whether it has measured arms after its last baseline."""
        own = self.of(node)
        arms = any(t.arm != self.info.baseline and self._usable(t) for t in own)
        return arms and not any(t.arm == self.info.baseline and self._usable(t) for t in self._since(node))


def deal(places: Sequence[Place], baseline: Arm, nodes: int) -> tuple[tuple[Place, ...], ...]:
    """What each node starts, the baseline around it, if every trial takes as long as any other."""
    lanes: list[list[Place]] = [[] for _ in range(min(nodes, len(places)))]
    left = list(places)
    while left:
        for lane in lanes:
            own = {place.arm for place in lane}
            place = next((p for p in left if p.arm not in own), left[0] if left else None)
            if place is not None:
                left.remove(place)
                lane.append(place)
    return tuple((Place(1, baseline), *lane, Place(2, baseline)) for lane in lanes)


def makespan(info: RunInfo, nodes: int) -> tuple[int, int, tuple[tuple[str, ...], ...]]:
    """Trials of all, of the busiest node, and the arms that each node starts."""
    lanes = deal(work(info), info.baseline, nodes)
    sizes = [len(lane) for lane in lanes]
    return sum(sizes), max(sizes, default=0), tuple(tuple(p.arm.name for p in lane) for lane in lanes)
