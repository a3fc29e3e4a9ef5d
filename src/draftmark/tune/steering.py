"""Which trial comes next, from the records of a run alone. Pure: a resumed run goes on as it would have.

A grid has its schedule. A forecast is asked: the baseline, then what the search names (docs/search.md), then
repeats as far as the verdict needs them, and the baseline again. No search is stored: it is told the trials anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from draftmark.model import Arm, Refusal, Trial, TrialStatus
from draftmark.run.records import ENOUGH, FINISH, FORECAST, Action, RunRecord, Slot
from draftmark.tune.acceptance_model import AcceptanceEvidence, from_measurement
from draftmark.tune.capacity import limits_of_arm
from draftmark.tune.decide import Conclusion, Observation, conclude, decide, joint_levels
from draftmark.tune.forecast import Figure, Seen
from draftmark.tune.knobs.run import KnobRun, Vet
from draftmark.tune.knobs.space import Space
from draftmark.tune.observing import Measured, ceilings, measurements, observations, pooled, steady_axes
from draftmark.tune.search import Candidate, Problem, Search

_TRIES = 2  # starts of an arm whose measurements were disturbed, before it is left
_BASELINE_TRIES = 3
_DOUBT = 2.0  # tie margins by which a choice may look worse than the best


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What to do next.

    Attributes:
        slot: What is to be started and measured; None when it is enough.
        because: One line; empty where a schedule says it.
        predicted: Tokens per second by concurrency, forecast before the trial.
        closing: The baseline for the last time: nothing is started after it.
        asked: It was asked for, and stands in no schedule yet.
        left: Settings of knobs that were found not to start, on the way to this one.
    """

    slot: Slot | None
    because: str = ""
    predicted: Mapping[int, Figure] = field(default_factory=dict)
    closing: bool = False
    asked: bool = True
    left: Mapping[Arm, Refusal] = field(default_factory=dict)


def steer(record: RunRecord, vet: Vet | None = None) -> Next:
    """The next trial of a run.

    Args:
        record: All of it.
        vet: Why a setting of knobs cannot be started; None to take them all as they come.
    """
    return _asked(record, vet) if record.info.search == FORECAST else _scheduled(record)


def baseline_failed(trial: Trial, record: RunRecord) -> bool:
    """A service that did not start as it is: it may have been mended since, and is tried again."""
    return trial.arm == record.info.baseline and trial.status is TrialStatus.DID_NOT_START


def disturbed(trial: Trial) -> bool:
    """Void for what happened around the server, so that another try may do."""
    return trial.status is TrialStatus.VOID and any(trial.disturbed.values())


def _scheduled(record: RunRecord) -> Next:
    past = [r.trial for r in record.trials if not baseline_failed(r.trial, record)]
    finished = {trial.number for trial in past}
    # An arm that did not start is not retried: it would only cost another restart.
    gone = {trial.arm.name for trial in past if trial.status is TrialStatus.DID_NOT_START} | set(
        record.info.refused
    )
    left = (s for s in record.info.schedule if s.number not in finished and s.arm.name not in gone)
    return Next(slot=next(left, None), asked=False)


def _asked(record: RunRecord, vet: Vet | None) -> Next:
    if any(action.what == FINISH for action in record.actions):
        return Next(slot=None, because="the run is over")
    return Told(record).next(vet)


class Told:
    """What a run has shown so far, as the search is told of it."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.info = record.info
        self.trials = [r.trial for r in record.trials if not baseline_failed(r.trial, record)]
        self.measured: dict[int, Measured] = {r.trial.number: measurements(r, self.info) for r in record.trials}
        self.observations: list[Observation] = observations(
            self.trials, self.measured, self.info, steady_axes(self.trials, self.measured)
        )
        self._levels = joint_levels(self.observations)
        deciding = {min(self.info.concurrency), max(self.info.concurrency)}
        self._knobs: KnobRun | None = None
        self.usable = [t for t in self.trials if all(t.number in self._levels.get(c, {}) for c in deciding)]

    # --- the search -----------------------------------------------------------------------------------------

    def search(self) -> Search | None:
        """The search as it stands; None until the baseline has its figures."""
        info = self.info
        if not any(t.arm == info.baseline for t in self.usable):
            return None
        low, high = min(info.concurrency), max(info.concurrency)
        found = Search(
            Problem(
                candidates=tuple(self._candidate(arm) for arm in self._plain),
                baseline=info.baseline.depth,
                latency=low,
                throughput=high if high != low else None,
                margin=info.tie_margin,
                trees=info.trees,
                experts=info.experts,
            )
        )
        for trial in sorted(self.usable, key=lambda t: (t.arm != info.baseline, t.number)):
            if not trial.arm.knobs:
                found.tell(self._seen(trial))
        for trial in self.trials:
            if trial.status is TrialStatus.DID_NOT_START and not trial.arm.knobs:
                found.refuse(trial.arm.depth, trial.because or "it did not start")
        return found

    @property
    def _plain(self) -> list[Arm]:
        """Arms that differ by their depth alone: what is forecast."""
        return [arm for arm in dict.fromkeys((self.info.baseline, *self.info.arms)) if not arm.knobs]

    def _candidate(self, arm: Arm) -> Candidate:
        refusal, fit = self.info.refused.get(arm.name), self.info.fit.of(arm) if self.info.fit else None
        running = limits_of_arm(arm, self.trials).max_running_requests
        if running is None and fit is not None:
            running = fit.figures.max_running_requests
        refused = refusal.because if refusal is not None else self.spoilt(arm)
        return Candidate(depth=arm.depth, refused=refused, running=running)

    def spoilt(self, arm: Arm) -> str | None:
        """Why an arm that was started and has no figures is not started again."""
        own = [t for t in self.trials if t.arm == arm]
        if arm == self.info.baseline or any(t in self.usable for t in own) or not own:
            return None
        last = own[-1]
        if last.status is TrialStatus.DID_NOT_START:
            return None  # the search is told: it leaves the deeper ones, too
        if len(own) >= _TRIES or not (disturbed(last) or last.status is TrialStatus.MEASURED):
            return last.because or "its measurements were disturbed"
        return None

    def _seen(self, trial: Trial) -> Seen:
        return Seen(
            depth=trial.arm.depth,
            tok_s=self.figures(trial.number),
            acceptance=self._acceptance(trial),
        )

    def _acceptance(self, trial: Trial) -> AcceptanceEvidence | None:
        told = pooled([m for m in self.measured[trial.number].values() if not m.disturbed])
        return None if told is None else from_measurement(trial.arm.depth, told, tree=self.info.trees)

    def figures(self, number: int) -> dict[int, float]:
        """A trial's tokens per second by concurrency, over all workloads."""
        return {c: own[number] for c, own in self._levels.items() if number in own}

    # --- the next trial -------------------------------------------------------------------------------------

    def knobs(self, search: Search | None) -> KnobRun | None:
        """The search of knobs as it stands; None where there are none, or no figures yet to hold them against."""
        if not self.info.knobs or search is None:
            return None
        if self._knobs is None:
            at = self.knob_depth
            self._knobs = KnobRun.of(self, search.choice().depth if at is None else at)
        return self._knobs

    @property
    def knob_depth(self) -> int | None:
        """Depth at which knobs are searched; None before the first was asked for."""
        return next((s.arm.depth for s in self.info.schedule if s.arm.knobs and self._searched(s.arm)), None)

    def next(self, vet: Vet | None = None) -> Next:
        """What is worth a start now."""
        base = self.info.baseline
        search = self.search()
        if search is None:
            tries = sum(t.arm == base for t in self.trials)
            if tries >= _BASELINE_TRIES:
                return Next(slot=None, because="stop: the service as it is could not be measured")
            return self._slot(base, f"{base.label} first: what runs today")
        if self._ending:
            return self._end(search, "stop")
        if self.knob_depth is not None and (knobs := self.knobs(search)) is not None:
            return self._setting(search, knobs, vet)  # depths are settled
        step = search.ask()
        depth = step.depth
        if depth is None and len(search.measured) == 1 and search.open:
            # A forecast alone proves nothing: the likeliest of them is measured.
            low = search.problem.concurrencies[0]
            depth = max(search.open, key=lambda k: search.forecast.ratio(k, base.depth, low).mean)
        if depth is not None:
            predicted = {c: search.forecast.tok_s(depth, c) for c in search.problem.concurrencies}
            because = (
                step.because if step.depth is not None else f"{Arm(depth).label} next: the likeliest, as a proof"
            )
            return self._slot(Arm(depth), because, predicted=predicted)
        for arm in self.info.arms:
            if arm.knobs and not self._searched(arm) and arm.name not in self.info.refused and self._open(arm):
                return self._slot(arm, f"{arm.label} next: what the engine chooses cannot be forecast")
        knobs = self.knobs(search)
        return self._end(search, step.because) if knobs is None else self._setting(search, knobs, vet)

    def _setting(self, search: Search, knobs: KnobRun, vet: Vet | None) -> Next:
        """The next setting of the knobs, at the depth that was chosen."""
        step = knobs.ask(vet)
        if step.point is None:
            return dataclasses.replace(self._end(search, step.because), left=knobs.left)
        found = self._slot(knobs.arm(step.point), step.because, predicted=knobs.predicted(step))
        return dataclasses.replace(found, left=knobs.left)

    def _searched(self, arm: Arm) -> bool:
        """Whether a search of knobs asks for it, and not the plan."""
        return bool(self.info.knobs) and Space(self.info.knobs).point(arm) is not None

    @property
    def _ending(self) -> bool:
        """The baseline was measured again: from then on nothing new is tried, and the verdict is what is left."""
        first = min((t.number for t in self.usable if t.arm != self.info.baseline), default=None)
        return first is not None and any(t.arm == self.info.baseline and t.number > first for t in self.usable)

    def _open(self, arm: Arm) -> bool:
        own = [t for t in self.trials if t.arm == arm]
        dead = any(t.status is TrialStatus.DID_NOT_START for t in own)
        return not dead and not any(t in self.usable for t in own) and self.spoilt(arm) is None

    def _end(self, search: Search, stop: str) -> Next:
        """Repeats, where the verdict is too wide to call, and the baseline once more."""
        base = self.info.baseline
        if all(t.arm == base for t in self.usable):
            return Next(slot=None, because=stop)
        after = [t for t in self.trials if t.number > max(u.number for u in self.usable if u.arm != base)]
        closed = any(t in self.usable for t in after)
        if not closed and sum(t.arm == base for t in after) >= _TRIES:
            return Next(slot=None, because=f"{stop}; {base.label} could not be measured again")
        doubtful = self._doubtful(search, self.observations + ([] if closed else self._agreeing()))
        settled = doubtful is None
        if settled and closed:
            return Next(slot=None, because="stop: the verdict is settled")
        repeats = sum(t.arm != base and t.round > 1 for t in self.trials)
        repeat = doubtful is not None and repeats < self.info.rounds - 1
        if doubtful is not None and repeat and (closed or (not repeats and not after)):
            lucky = doubtful == self._lucky(search)
            doubt = "the best of many may only have been lucky" if lucky else "too wide to call"
            return self._slot(doubtful, f"{doubtful.label} again: {self._figure(doubtful)}, {doubt}")
        if closed:
            return Next(slot=None, because=stop if settled else "stop: as often measured as --rounds allows")
        return self._slot(base, f"{base.label} again: has the machine changed?", closing=not repeat)

    def _slot(
        self, arm: Arm, because: str, *, predicted: Mapping[int, Figure] | None = None, closing: bool = False
    ) -> Next:
        # A baseline that did not start is tried again under its own number.
        number = max((t.number for t in self.trials), default=0) + 1
        earlier = sum(t.arm == arm for t in self.usable)
        slot = Slot(number=number, round=earlier + 1, arm=arm)
        return Next(slot=slot, because=because, predicted=predicted or {}, closing=closing)

    # --- the verdict ----------------------------------------------------------------------------------------

    def preferred(self) -> tuple[str, ...]:
        """Names of arms that a search of knobs prefers among ties, its choice first; none if that changes none."""
        knobs = self.knobs(self.search())
        arms = () if knobs is None else knobs.preferred()
        return tuple(arm.name for arm in arms) if arms and arms[0].knobs else ()

    def _concluded(self, seen: Sequence[Observation]) -> Conclusion:
        labels = {arm.name: arm.label for arm in self.info.arms}
        decisions = decide(
            seen,
            baseline=self.info.baseline.name,
            tie_margin=self.info.tie_margin,
            ceilings=ceilings(self.info, self.trials, self.measured),
            labels=labels,
            first=self.preferred(),
        )
        return conclude(decisions, baseline=self.info.baseline.name, labels=labels)

    def _agreeing(self) -> list[Observation]:
        """The baseline once more, as if it came out as last time: whether that would settle it."""
        base = [o for o in self.observations if o.arm == self.info.baseline.name]
        last = max(o.trial for o in base)
        number = max(o.trial for o in self.observations) + 1
        later = max(o.position_s for o in self.observations) - max(o.position_s for o in base if o.trial == last)
        gap = later / max(number - 1 - last, 1)
        return [
            dataclasses.replace(o, trial=number, position_s=o.position_s + later + gap)
            for o in base
            if o.trial == last
        ]

    def _doubtful(self, search: Search, seen: Sequence[Observation]) -> Arm | None:
        """The arm that is worth another start, for the verdict that these figures give; None where that is settled.

        A verdict is also in doubt where the shallowest of its ties looks worse than the best of them by far more
        than the margin.
        """
        lucky = self._lucky(search)
        if lucky is not None:
            return lucky
        conclusion = self._concluded(seen)
        if conclusion.inconclusive:
            return self._undecided(search)
        arms = {arm.name: arm for arm in self.info.arms if arm != self.info.baseline}
        chosen = arms.get(conclusion.recommended or "")
        if chosen is None or conclusion.latency != chosen.name:
            return None
        best = max((arms[name] for name in conclusion.ties if name in arms), key=self._ratio, default=chosen)
        doubt = self._ratio(best) > self._ratio(chosen) * (1.0 + _DOUBT * self.info.tie_margin)
        return best if doubt else None

    def _lucky(self, search: Search) -> Arm | None:
        """The best of many settings of knobs that was started once: it may only have been lucky."""
        knobs = self.knobs(search)
        chosen = None if knobs is None else knobs.preferred()[0]
        if chosen is None or not chosen.knobs:
            return None
        return chosen if sum(t.arm == chosen for t in self.usable) == 1 else None

    def _undecided(self, search: Search) -> Arm:
        """The arm on which the verdict hangs: what the search would choose, else the fastest but the baseline."""
        base = self.info.baseline
        knobs = self.knobs(search)
        chosen = Arm(search.choice().depth) if knobs is None else knobs.preferred()[0]
        if chosen != base:
            return chosen
        return max((t.arm for t in self.usable if t.arm != base), key=lambda arm: (self._ratio(arm), -arm.depth))

    def _ratio(self, arm: Arm) -> float:
        """To the baseline, at the lowest concurrency."""
        own = self._levels[min(self.info.concurrency)]

        def mean(of: Arm) -> float:
            values = [own[t.number] for t in self.usable if t.arm == of]
            return sum(values) / len(values)

        return mean(arm) / mean(self.info.baseline)

    def _figure(self, arm: Arm) -> str:
        starts = sum(t.arm == arm for t in self.usable)
        return f"{self._ratio(arm):.2f}x in {starts} start{'s' * (starts != 1)}"


def stopped(actions: Sequence[Action]) -> str | None:
    """Why no further trial was worth its start, in words; None while the search goes on."""
    last = next((a for a in reversed(actions) if a.what == ENOUGH), None)
    return None if last is None else str(last.detail.get("because", ""))
