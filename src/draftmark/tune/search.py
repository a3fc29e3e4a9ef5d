"""Which depth is worth the next restart, and when none is. Pure: ask, measure, tell.

The baseline is measured on the running service and costs nothing. The first trial is deep, since its histogram
tells the acceptance of every shallower depth; after it the curve is forecast, and a depth is asked for by what
it is expected to gain per minute of downtime. The search ends when no depth that was not measured is likely to
beat the choice by more than the tie margin. A depth that does not fit is never asked for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from draftmark.model import Arm
from draftmark.tune.forecast import Figure, Forecast, Seen, forecast, summary

_LIKELY = 0.05  # a chance below it to beat the choice by more than the margin is not worth a restart
_LATE, _LIKELY_LATE = 4, 0.2  # ... and after so many restarts a further one must promise more
_VAIN, _LIKELY_VAIN = 2, 0.5  # ... and after so many that found nothing better than the baseline, be likely to
_SURE = 0.75  # that a depth is faster than the baseline, before it is called better; or slower on the other axis
_LEVEL = (
    0.10  # how much less likely than another a depth may be within the margin of the best, and be level with it
)
_DEEP = 0.6  # how deep the first trial is, as a share of the deepest depth that fits
_LEAST_DEEP, _MOST_DEEP = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A depth that could be tried.

    Attributes:
        depth: Drafts a round.
        refused: Why it is not started (does not fit, …); None when it may be.
        running: Requests that the server would take at once; None when that is not known.
    """

    depth: int
    refused: str | None = None
    running: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is searched.

    Attributes:
        candidates: All depths, the baseline among them.
        baseline: The depth that runs today.
        latency: The concurrency that stands for latency; None where only throughput counts.
        throughput: The one that stands for throughput; None where only latency counts, or both are the same.
        margin: Relative difference that does not count as one.
        noise: Relative sd of one figure.
        minutes: Of downtime that a restart costs.
        trees: Drafts branch (topk above 1): no chain rule.
        experts: Of a mixture: how many a layer has, and how many of them a token chooses.
    """

    candidates: tuple[Candidate, ...]
    baseline: int
    latency: int | None = None
    throughput: int | None = None
    margin: float = 0.02
    noise: float = 0.03
    minutes: Mapping[int, float] = field(default_factory=dict)
    trees: bool = False
    experts: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.latency is None and self.throughput is None:
            raise ValueError("no concurrency to decide by")
        if self.baseline not in {c.depth for c in self.candidates}:
            raise ValueError(f"the baseline, depth {self.baseline}, is no candidate")

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """Those that decide, latency's first."""
        return tuple(dict.fromkeys(c for c in (self.latency, self.throughput) if c is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the measured depths come to.

    Attributes:
        depth: What to run: always one that was measured.
        ties: Measured depths that are about as likely to be within the margin of the best, shallowest first.
        ratio: Against the baseline, by what was searched for.
        sure: Chance that it is faster than the baseline.
        because: One clause.
    """

    depth: int
    ties: tuple[int, ...]
    ratio: Figure
    sure: float
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do next.

    Attributes:
        depth: To be started and measured; None to stop.
        because: One line.
        predicted: What it is expected to be against the baseline.
    """

    depth: int | None
    because: str
    predicted: Figure | None = None


class Search:
    """Ask and tell. Nothing here starts or waits for anything; the same answers give the same questions."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._seen: list[Seen] = []
        self._refused = {c.depth: c.refused for c in problem.candidates if c.refused is not None}
        self._forecast: Forecast | None = None

    # --- told ---------------------------------------------------------------------------------------------

    def tell(self, seen: Seen) -> None:
        """What a trial showed; the baseline's first."""
        self._seen.append(seen)
        self._forecast = None

    def refuse(self, depth: int, because: str) -> None:
        """A depth did not start: it and the deeper ones, which need more memory, are not asked for again."""
        for candidate in self.problem.candidates:
            if candidate.depth >= depth and candidate.depth not in self.measured:
                self._refused.setdefault(
                    candidate.depth, because if candidate.depth == depth else f"{_name(depth)} did not start"
                )
        self._forecast = None

    @property
    def measured(self) -> tuple[int, ...]:
        """Depths with a figure at every concurrency that decides, in rising order."""
        needed = self.problem.concurrencies
        return tuple(sorted({s.depth for s in self._seen if all(s.tok_s.get(c, 0.0) > 0.0 for c in needed)}))

    @property
    def refused(self) -> dict[int, str]:
        """Depths that are not asked for, and why."""
        return dict(self._refused)

    @property
    def open(self) -> tuple[int, ...]:
        """Depths that could still be asked for, in rising order."""
        told = {s.depth for s in self._seen}
        return tuple(
            sorted(c.depth for c in self.problem.candidates if c.depth not in self._refused and c.depth not in told)
        )

    # --- asked --------------------------------------------------------------------------------------------

    def ask(self) -> Step:
        """The next depth to measure, or that it is enough.

        Raises:
            ValueError: The baseline has not been told.
        """
        if not self.open:
            return Step(depth=None, because="stop: every depth that fits is measured")
        if len(self.measured) == 1 and not self.forecast.acceptance.known_to:
            return self._deep()
        return self._best()

    def choice(self) -> Choice:
        """What to run, by what is known now.

        Raises:
            ValueError: The baseline has not been told.
        """
        worth = self._worth()
        base = self.problem.baseline
        margin = 1.0 + self.problem.margin
        means = {k: _mean([f[self._place(k)] for f in worth]) for k in self.measured}
        best = [max(future) for future in worth]
        near = {
            k: _share(f[self._place(k)] * margin >= top for f, top in zip(worth, best, strict=True))
            for k in self.measured
        }
        ties = tuple(k for k in self.measured if near[k] >= max(near.values()) - _LEVEL)
        depth = ties[0]
        own = [f[self._place(depth)] for f in worth]
        sure = _share(value > 1.0 for value in own)
        if depth != base and (sure < _SURE or means[depth] < margin):
            held = f"{_name(base)}: no depth is surely better, {_name(depth)} is {_ratio(summary(own))}"
            return Choice(
                depth=base, ties=tuple(sorted({*ties, base})), ratio=Figure(1.0, 1.0, 1.0), sure=0.0, because=held
            )
        level = [_name(k) for k in ties if k != depth]
        because = f"{_name(depth)} is {_ratio(summary(own))} of the baseline"
        if depth == base:
            because = f"{_name(base)}, which runs today: nothing measured is better"
        if level:
            because += f"; level with {', '.join(level)}"
        return Choice(depth=depth, ties=ties, ratio=summary(own), sure=sure, because=because)

    @property
    def forecast(self) -> Forecast:
        """Futures of all depths that may be started, by all that was told.

        Raises:
            ValueError: The baseline has not been told.
        """
        if self._forecast is None:
            if self.problem.baseline not in self.measured:
                raise ValueError("the baseline has to be told first")
            self._forecast = forecast(
                [c.depth for c in self.problem.candidates if c.depth not in self._refused],
                self._seen,
                noise=self.problem.noise,
                concurrencies=self.problem.concurrencies,
                running={c.depth: c.running for c in self.problem.candidates if c.running},
                trees=self.problem.trees,
                experts=self.problem.experts,
                seed=len(self._seen),
            )
        return self._forecast

    # --- inside -------------------------------------------------------------------------------------------

    def _deep(self) -> Step:
        """The first trial, before anything is known of acceptance."""
        deepest = self.open[-1]
        aim = min(max(_LEAST_DEEP, _DEEP * deepest), _MOST_DEEP)
        depth = max((k for k in self.open if k <= aim), default=self.open[0])
        figure = self._ratio_of(depth)
        told = "its trial tells the acceptance of all shallower depths"
        because = f"{_name(depth)} next: {told}; predicted {_ratio(figure)}"
        return Step(depth=depth, because=because, predicted=figure)

    def _best(self) -> Step:
        worth = self._worth()
        kept = self.choice().depth
        held = self._place(kept)
        margin = 1.0 + self.problem.margin
        chance: dict[int, float] = {}
        gain: dict[int, float] = {}
        for k in self.open:
            i = self._place(k)
            beats = [f[i] / f[held] for f in worth]
            chance[k] = _share(value > margin for value in beats)
            gain[k] = _mean([max(value - 1.0, 0.0) for value in beats]) / self.problem.minutes.get(k, 1.0)
        restarts = len(self._seen) - 1
        vain = restarts >= _VAIN and kept == self.problem.baseline
        enough = _LIKELY_VAIN if vain else _LIKELY_LATE if restarts >= _LATE else _LIKELY
        likely = [k for k in self.open if chance[k] >= enough]
        if not likely:
            nearest = max(self.open, key=lambda k: (chance[k], -k))
            return Step(
                depth=None,
                because=f"stop: no other depth is likely to be more than {self.problem.margin:.0%} better than "
                f"{_name(kept)}; the nearest, {_name(nearest)}, at {chance[nearest]:.0%}",
            )
        depth = max(likely, key=lambda k: (gain[k], -k))
        figure = self._ratio_of(depth)
        because = (
            f"{_name(depth)} next: predicted {_ratio(figure)}, {chance[depth]:.0%} likely to be more than "
            f"{self.problem.margin:.0%} better than {_name(kept)}"
        )
        return Step(depth=depth, because=because, predicted=figure)

    def _ratio_of(self, depth: int) -> Figure:
        return summary([future[self._place(depth)] for future in self._worth()])

    def _place(self, depth: int) -> int:
        return self.forecast.depths.index(depth)

    def _worth(self) -> list[list[float]]:
        """Per future and depth: what is searched for, the baseline being 1."""
        futures = [self.forecast.futures[c] for c in self.problem.concurrencies]
        base = self._place(self.problem.baseline)
        ratios = [[[value / future[base] for value in future] for future in own] for own in futures]
        if len(ratios) == 1:
            return ratios[0]
        # Of what was measured, only a loss beyond noise is one; of the others, each future says for itself.
        level = [
            {self._place(k) for k in self.measured if _share(f[self._place(k)] < 1.0 for f in own) < _SURE}
            for own in ratios
        ]
        return [
            worth(low, high, self.problem.margin, level[0], level[1]) for low, high in zip(*ratios, strict=True)
        ]


def worth(
    low: Sequence[float],
    high: Sequence[float],
    margin: float,
    level_low: Collection[int] = (),
    level_high: Collection[int] = (),
) -> list[float]:
    """One figure for two axes, as `tune.verdicts` recommends: latency, unless throughput would lose by it.

    Args:
        low: Ratio to the baseline at the lowest concurrency, by depth.
        high: The same at the highest.
        margin: A loss within it is none.
        level_low: Places known not to lose at the lowest, whatever the ratio.
        level_high: Places known not to lose at the highest.

    Returns:
        The gain on latency, where some depth gains there without a loss of throughput; else the gain on throughput.
        A depth that loses on the other axis is worth no more than what it comes to there.
    """
    loss = 1.0 / (1.0 + margin)
    pairs = list(enumerate(zip(low, high, strict=True)))
    if gains_alone(low, high, margin, level_high):
        return [a if b >= loss or i in level_high else min(a, b) for i, (a, b) in pairs]
    return [b if a >= loss or i in level_low else min(a, b) for i, (a, b) in pairs]


def gains_alone(
    low: Sequence[float], high: Sequence[float], margin: float, level_high: Collection[int] = ()
) -> bool:
    """Whether some place gains on latency without a loss of throughput, so that latency is what counts.

    Args: as of `worth`.
    """
    loss = 1.0 / (1.0 + margin)
    return any(
        a > 1.0 + margin and (b >= loss or i in level_high) for i, (a, b) in enumerate(zip(low, high, strict=True))
    )


def _name(depth: int) -> str:
    return Arm(depth).label


def _ratio(figure: Figure) -> str:
    return f"{figure.mean:.2f}x ({figure.low:.2f}\u2013{figure.high:.2f})"


def _share(tests: Iterable[bool]) -> float:
    values = list(tests)
    return sum(values) / len(values)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
