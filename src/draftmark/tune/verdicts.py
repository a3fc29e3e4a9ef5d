"""What a decision says: plain results per axis, the conclusion over them, and the words for both. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio with its simultaneous confidence interval. Above 1 is better than the other."""

    ratio: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.ratio <= self.high:
            raise ValueError(f"{self.low} <= {self.ratio} <= {self.high} does not hold")

    def __str__(self) -> str:
        """Such as `2.14x (2.05 to 2.22)`, with an en dash."""
        return f"{self.ratio:.2f}x ({self.low:.2f}\u2013{self.high:.2f})"

    @property
    def worse(self) -> bool:
        """Below the other beyond noise."""
        return self.high < 1.0

    def better(self, margin: float) -> bool:
        """Above the other beyond noise, and by enough to matter."""
        return self.low > 1.0 and self.ratio >= 1.0 + margin


class Verdict(StrEnum):
    """What the figures allow to be said of one axis."""

    BETTER = "better"  # at least one arm is better than the baseline beyond noise
    KEEP = "keep"  # no arm is better: keep what you have
    INCONCLUSIVE = "inconclusive"  # noise or drift too large to say either


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisDecision:
    """The decision for one axis: a workload at a concurrency, or all workloads together.

    Attributes:
        axis: `copy@1`, `chat@4`, or `all@1`.
        workload: `copy`, or `all`.
        concurrency: Slots of the closed loop.
        unit: Always `tok/s`: decode speed of a single request at concurrency 1, aggregate output otherwise.
        baseline: Geometric mean of the baseline's figures.
        values: Per arm name, shallowest first: geometric mean of its figures, as measured; over several machines
            the baseline's mean times the arm's ratio, which is within machines.
        ratios: Per arm name, the baseline left out: against the baseline, with the drift taken out, so it can
            differ a little from the quotient of the values.
        best: Arm with the highest figure once the drift is taken out; None when nothing was measured.
        choice: What to run: the shallowest of the ties that beats the baseline, or the baseline; None when
            inconclusive.
        ties: Names of the arms within noise of the best, the best included, shallowest first.
        verdict: What can be said.
        because: One sentence.
        noise: Relative standard deviation of a trial, as estimated.
        drift: Baseline's end over its start, with a 95 % interval; None when measured once.
        void: Why the ranking means nothing, whatever the intervals say; None when it stands.
        margin: Ratios closer to 1 than this do not count as a difference.
    """

    axis: str
    workload: str
    concurrency: int
    unit: str
    baseline: float | None
    values: dict[str, float]
    ratios: dict[str, Interval]
    best: str | None
    choice: str | None
    ties: tuple[str, ...]
    verdict: Verdict
    because: str
    noise: float | None
    drift: Interval | None
    void: str | None = None
    margin: float = 0.02

    def better(self, arm: str) -> bool:
        """Whether the arm beats the baseline here."""
        return self.void is None and arm in self.ratios and self.ratios[arm].better(self.margin)

    def not_worse(self, arm: str) -> bool:
        """Whether neither the arm's interval nor its own figure, margin allowed, is below the baseline."""
        interval = self.ratios.get(arm)
        return interval is None or (not interval.worse and interval.ratio >= 1.0 / (1.0 + self.margin))

    def worse(self, arm: str) -> bool:
        """Whether the arm is below the baseline here, beyond noise."""
        return arm in self.ratios and self.ratios[arm].worse


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What a whole sweep says.

    Attributes:
        latency: Choice at the lowest concurrency; None when inconclusive there.
        throughput: Choice at the highest concurrency; None when inconclusive there, or only one was measured.
        recommended: What to run: better than the baseline on one of the two and not worse on the other, else the
            baseline; None when nothing is settled.
        ties: Arms within noise of the best on the axis that decided, shallowest first.
        by_workload: Per workload, its own choice at the lowest concurrency.
        front: Arms that no other beats on one of the two without losing on the other, by their point figures.
        because: Why this arm, in one clause.
        sentence: The verdict for people; true of each workload.
        inconclusive: Nothing can be said for or against the baseline.
        better: The recommended arm is better than the baseline.
    """

    latency: str | None
    throughput: str | None
    recommended: str | None
    ties: tuple[str, ...]
    by_workload: dict[str, str | None]
    front: tuple[str, ...]
    because: str
    sentence: str
    inconclusive: bool
    better: bool


# --- words ------------------------------------------------------------------------------------------------


def label(name: str) -> str:
    """An arm's name for people: `d4` is `depth 4`, `d4-mem=0.85` is `depth 4, mem=0.85`."""
    found = re.fullmatch(r"d(\d+)(?:-(.*))?", name)
    return name if found is None else f"depth {found[1]}" + (f", {found[2]}" if found[2] else "")


def load(concurrency: int) -> str:
    """A concurrency in words."""
    return "for a single request" if concurrency == 1 else f"with {concurrency} requests at once"


def level_with(labels: Sequence[str]) -> str:
    """`depth 5 is level with it`; of many settings of knobs how many there are, since their labels fill a page."""
    if len(labels) > _NAMED and any("," in each for each in labels):
        return f"{len(labels)} others are level with it"
    return f"{listed(labels)} {'is' if len(labels) == 1 else 'are'} level with it"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# --- the conclusion ---------------------------------------------------------------------------------------

_NAMED = 3  # settings of knobs
LENGTH = 300  # characters; a longer verdict is not read


@dataclass(frozen=True, slots=True)
class _Case:
    """The two deciding axes and the single workloads behind them."""

    baseline: str
    low: AxisDecision
    high: AxisDecision | None
    singles: tuple[AxisDecision, ...]
    name: Callable[[str], str]

    @property
    def both(self) -> tuple[AxisDecision, ...]:
        return (self.low,) if self.high is None else (self.low, self.high)

    @property
    def arms(self) -> list[str]:
        """Shallowest first, the baseline included."""
        return list(self.low.values)

    def behind(self, axis: AxisDecision) -> list[AxisDecision]:
        """The single workloads that an axis over all of them hides."""
        if axis.workload != "all":
            return []
        return [d for d in self.singles if d.concurrency == axis.concurrency]


def conclude(
    decisions: Sequence[AxisDecision], *, baseline: str, labels: Mapping[str, str] | None = None
) -> Conclusion:
    """One recommendation from all axes.

    The lowest concurrency stands for latency, the highest for throughput; each over all workloads together where
    there are several. The latency choice is recommended unless throughput speaks against it.

    Args:
        decisions: From `decide`.
        baseline: Name of the arm that runs today.
        labels: Arm names for people; made from the name where absent.
    """
    named = labels or {}
    joint = {d.concurrency: d for d in sorted(decisions, key=lambda d: d.workload == "all")}
    if not joint:
        nothing = "nothing is settled: nothing was measured"
        return Conclusion(
            latency=None,
            throughput=None,
            recommended=None,
            ties=(),
            by_workload={},
            front=(),
            because=nothing,
            sentence=nothing,
            inconclusive=True,
            better=False,
        )
    low, high = joint[min(joint)], joint[max(joint)]
    case = _Case(
        baseline=baseline,
        low=low,
        high=None if high is low else high,
        singles=tuple(d for d in decisions if d.workload != "all"),
        name=lambda arm: named.get(arm, label(arm)),
    )
    chosen, by = _recommend(case)
    if chosen is None:
        because, parts = low.because, [low.because, *_exceptions(case)]
    elif chosen == baseline:
        because, parts = _kept(case)
    else:
        because, parts = _changed(case, chosen, by)
    return Conclusion(
        latency=low.choice,
        throughput=None if case.high is None else case.high.choice,
        recommended=chosen,
        ties=() if chosen is None else by.ties,
        by_workload={d.workload: d.choice for d in case.singles if d.concurrency == low.concurrency},
        front=_front(case),
        because=because,
        sentence=_within_length(parts),
        inconclusive=chosen is None,
        better=chosen is not None and chosen != baseline,
    )


def _recommend(case: _Case) -> tuple[str | None, AxisDecision]:
    """The arm, and the axis that decided; None when nothing can be said."""
    low, high = case.low, case.high
    if high is None:
        return low.choice, low
    if low.choice is not None and low.verdict is Verdict.BETTER:
        if not high.worse(low.choice):
            return low.choice, low
        for arm in (*low.ties, *case.arms):
            if low.better(arm) and high.not_worse(arm):
                return arm, low
    if high.verdict is Verdict.BETTER:
        for arm in (*high.ties, *case.arms):
            if high.better(arm) and low.not_worse(arm):
                return arm, high
    return (None if low.verdict is Verdict.INCONCLUSIVE else case.baseline), low


def _front(case: _Case) -> tuple[str, ...]:
    """Pareto front of the point figures, where neither a lead nor a loss within the margin counts."""
    if any(d.void for d in case.both):
        return ()
    figures = {
        arm: [1.0 if arm == case.baseline else d.ratios[arm].ratio for d in case.both]
        for arm in case.arms
        if all(arm in d.ratios or (arm == case.baseline and arm in d.values) for d in case.both)
    }
    lead = 1.0 + case.low.margin

    def dominated(own: list[float]) -> bool:
        return any(
            all(o >= s / lead for o, s in zip(other, own, strict=True))
            and any(o >= s * lead for o, s in zip(other, own, strict=True))
            and prod(other) > prod(own)  # so that two arms never dominate each other
            for other in figures.values()
        )

    return tuple(arm for arm, own in figures.items() if not dominated(own))


# --- the sentence -----------------------------------------------------------------------------------------


def _changed(case: _Case, chosen: str, by: AxisDecision) -> tuple[str, list[str]]:
    """Another arm than the baseline is recommended."""
    base = "the baseline" if case.baseline == "off" else f"the baseline ({case.name(case.baseline)})"
    lead = f"{case.name(chosen)} is {by.ratios[chosen]} {base} {load(by.concurrency)}"
    parts = [lead]
    level = [case.name(arm) for arm in by.ties if arm != chosen]
    if chosen not in by.ties:
        parts += _passed_over(case, by)
    elif level:
        parts.append(level_with(level))
    parts += _by_workload(case, chosen, by)
    for other in case.both:
        if other is not by:
            parts.append(f"{load(other.concurrency)} {_elsewhere(case, other, chosen)}")
            parts += _slower(case, chosen, other)
    return lead, parts


def _passed_over(case: _Case, by: AxisDecision) -> list[str]:
    """Why the best of the deciding axis is not recommended."""
    best = by.best
    if best is None:
        return []
    return [
        f"{case.name(best)} is faster there, but {other.ratios[best]} {load(other.concurrency)}"
        for other in case.both
        if other is not by and best in other.ratios and not other.not_worse(best)
    ]


def _elsewhere(case: _Case, other: AxisDecision, chosen: str) -> str:
    """How the chosen arm does on the axis that did not decide."""
    ratio = other.ratios.get(chosen)
    if ratio is None:
        return f"{case.name(chosen)} was not measured"
    if other.better(chosen):
        return f"it is {ratio}"
    return f"it is slower: {ratio}" if ratio.worse else f"no difference is seen: {ratio}"


def _by_workload(case: _Case, chosen: str, by: AxisDecision) -> list[str]:
    """What holds for all workloads together but not for one of them."""
    told: dict[str, list[str]] = {}
    slower: list[AxisDecision] = []
    for d in case.behind(by):
        if d.better(chosen):
            continue
        if d.worse(chosen):
            slower.append(d)
            continue
        if d.verdict is Verdict.KEEP:
            words = f"{_nothing(case)} is better than {case.name(case.baseline)}"
        elif d.verdict is Verdict.BETTER and d.choice is not None:
            words = f"{case.name(d.choice)} is the better one: {d.ratios[d.choice]}"
        else:
            words = "nothing is settled"
        told.setdefault(words, []).append(d.workload)
    own = [f"it is slower on {_figures(slower, chosen)}"] if slower else []
    return own + [f"on {listed(workloads)} {words}" for words, workloads in told.items()]


def _slower(case: _Case, chosen: str, axis: AxisDecision) -> list[str]:
    """Workloads that lose on an axis where all together do not."""
    behind = [] if axis.worse(chosen) else [d for d in case.behind(axis) if d.worse(chosen)]
    return [f"slower there on {_figures(behind, chosen)}"] if behind else []


def _figures(axes: Sequence[AxisDecision], arm: str) -> str:
    return listed([f"{d.workload}: {d.ratios[arm]}" for d in axes])


def _nothing(case: _Case) -> str:
    return "no depth" if case.baseline == "off" else "nothing"


def _kept(case: _Case) -> tuple[str, list[str]]:
    """The baseline is recommended."""
    low, high = case.low, case.high
    base = case.name(case.baseline)
    if low.verdict is Verdict.BETTER and low.choice is not None and high is not None:
        because = (
            f"{case.name(low.choice)} is {low.ratios[low.choice]} the baseline {load(low.concurrency)} but "
            f"{high.ratios[low.choice]} {load(high.concurrency)}"
        )
        return because, [because, f"nothing is better on one and not worse on the other: keep {base}"]
    top = max(low.ratios, key=lambda arm: low.ratios[arm].ratio)
    because = f"keep {base}: {_nothing(case)} is better {load(low.concurrency)}"
    parts = [because, f"the best other, {case.name(top)}, is {low.ratios[top]}; a gain of 10% is unlikely for any"]
    if high is not None:
        parts.append(f"{load(high.concurrency)} {_kept_elsewhere(case, high)}")
    return because, parts + _exceptions(case)


def _kept_elsewhere(case: _Case, high: AxisDecision) -> str:
    if high.verdict is Verdict.BETTER and high.choice is not None:
        at_low = case.low.ratios.get(high.choice)
        return f"{case.name(high.choice)} is {high.ratios[high.choice]}, but {at_low} {load(case.low.concurrency)}"
    return "the same holds" if high.verdict is Verdict.KEEP else "nothing is settled"


def _exceptions(case: _Case) -> list[str]:
    """Workloads on which another arm is better although that is not so of all together."""
    return [
        f"on {d.workload} alone {case.name(d.choice)} is {d.ratios[d.choice]} {load(d.concurrency)}"
        for axis in case.both
        if axis.verdict is not Verdict.BETTER
        for d in case.behind(axis)
        if d.verdict is Verdict.BETTER and d.choice is not None
    ]


def _within_length(parts: list[str]) -> str:
    """Joined; intervals go first when it is too long, since the table has them. No statement is ever dropped."""
    sentence = "; ".join(parts)
    for i in range(len(parts) - 1, 0, -1):
        if len(sentence) <= LENGTH:
            break
        parts = [*parts[:i], re.sub(r" \(\d+\.\d+\u2013\d+\.\d+\)", "", parts[i]), *parts[i + 1 :]]
        sentence = "; ".join(parts)
    return sentence
