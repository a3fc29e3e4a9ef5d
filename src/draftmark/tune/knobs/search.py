"""Which setting of the knobs is worth the next restart, and when none is. Pure: ask, measure, tell.

What runs is told first. Then each knob is tried alone at its ends (screening), so that one without effect costs no
further restarts; then what promises most by the model of what was seen, until nothing is likely to beat the best by
more than the margin, or the restarts are spent. What does not fit is never asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from draftmark.tune.forecast import Figure
from draftmark.tune.knobs.model import Belief, KnobModel
from draftmark.tune.knobs.space import Point, Space

BUDGET = 15
_MATTERS = 0.15  # chance below which a knob is left as it runs
_LIKELY = 0.05  # chance of beating the best by more than the margin, below which a restart is not worth it
_SURE = 0.75  # that a setting is faster than what runs, before it is called better
_SEEN_SDS = 1.0  # a gain for a single request, or a loss on the other axis, is one beyond so many sds of doubt
_DRAWS = 64
_LOOKED_AT = 150  # candidates of which all hypotheses are asked; the others by the heaviest alone
_CANDIDATES = 5000
_WIDE = 1.959964

Admits = Callable[[Point], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobProblem:
    """What is searched.

    Attributes:
        axes: Concurrencies that decide, the lowest first; one or two.
        margin: Relative difference that does not count as one.
        budget: Restarts at most.
    """

    space: Space
    axes: int = 2
    margin: float = 0.02
    budget: int = BUDGET


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobStep:
    """What to do next.

    Attributes:
        point: To be started and measured; None to stop.
        because: One line.
        predicted: Against what runs, by axis; empty while nothing is known of it.
        screening: It is one of the ends tried alone.
    """

    point: Point | None
    because: str
    predicted: tuple[Figure, ...] = ()
    screening: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobEffect:
    """What a knob does.

    Attributes:
        matters: Chance that it does; None while nothing was seen of it.
        dropped: Screening found that it hardly moves anything: it was left as it runs.
        level: The one of its values tried that does most, the others being as they run; None where none was tried.
        ratios: Of that to what runs, by axis.
    """

    name: str
    matters: float | None
    dropped: bool
    level: int | None
    ratios: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobChoice:
    """What the measured settings come to: always one that was measured."""

    point: Point
    ties: tuple[Point, ...]
    ratios: tuple[Figure, ...]
    sure: float


class KnobSearch:
    """Ask and tell. The same answers give the same questions."""

    def __init__(self, problem: KnobProblem) -> None:
        self.problem = problem
        self.space = problem.space
        self._seen: list[tuple[Point, tuple[float, ...]]] = []
        self._refused: dict[Point, str] = {}
        self._dead: list[tuple[int, int]] = []
        self._given: set[Point] = set()
        self._model: KnobModel | None = None
        self._believed: dict[Point, tuple[Belief, ...]] = {}
        self._alone: bool | None = None
        self._admits: Admits | None = None
        self.restarts = 0

    # --- told ---------------------------------------------------------------------------------------------

    def tell(self, point: Point, tok_s: Sequence[float], *, restart: bool = True) -> None:
        """Figures of a trial, by axis.

        Args:
            point: What was started.
            tok_s: Tokens per second.
            restart: It cost one of the budget; not so of what ran already, or was learned from others.
        """
        self._seen.append((point, tuple(math.log(value) for value in tok_s)))
        self.restarts += restart and point != self.space.base
        self._model = None

    def refuse(self, point: Point, because: str) -> None:
        """It does not fit, or the engine would not start it: nothing was spent."""
        self._refused[point] = because

    def fail(self, point: Point, because: str) -> None:
        """It was started and did not serve: never again, and of a knob moved alone nothing farther out."""
        self._refused[point] = because
        self.restarts += 1
        moved = [i for i, at in enumerate(point) if at != self.space.base[i]]
        if len(moved) == 1:
            self._dead.append((moved[0], point[moved[0]]))

    def busy(self, point: Point) -> None:
        """Somebody else measures it just now."""
        self._given.add(point)

    @property
    def measured(self) -> tuple[Point, ...]:
        """Settings with figures, in the order told."""
        return tuple(dict.fromkeys(point for point, _ in self._seen))

    @property
    def refused(self) -> dict[Point, str]:
        """Settings that are not started, and why."""
        return dict(self._refused)

    @property
    def model(self) -> KnobModel:
        """By all that was told.

        Raises:
            ValueError: What runs has not been told.
        """
        if self.space.base not in self.measured:
            raise ValueError("what runs has to be told first")
        if self._model is None:
            self._model = KnobModel(self.space, self._seen)
            self._believed, self._alone = {}, None
        return self._model

    # --- asked --------------------------------------------------------------------------------------------

    def ask(self, admits: Admits | None = None) -> KnobStep:
        """The next setting to measure, or that it is enough.

        Args:
            admits: Why a setting cannot be started, or None; what it refuses is kept in `refused`.
        """
        self._admits = admits
        if self.restarts >= self.problem.budget:
            return KnobStep(point=None, because=f"stop: {self.restarts} restarts are spent on knobs")
        probe = self._probe()
        if probe is not None:
            knob, point = probe
            words = self.space.knobs[knob].words(point[knob])
            return KnobStep(
                point=point, because=f"{words} next: whether {self.space.knobs[knob].name} matters", screening=True
            )
        if not self.kept:
            return KnobStep(point=None, because="stop: no knob moves anything that could be told from noise")
        return self._best()

    @property
    def kept(self) -> tuple[int, ...]:
        """Knobs that are likely to matter, once each was tried alone."""
        return tuple(i for i in range(len(self.space.knobs)) if self.model.matters(i) >= _MATTERS)

    @property
    def screened(self) -> bool:
        """Whether each knob was tried alone."""
        return self._probe() is None

    def choice(self) -> KnobChoice:
        """What to run, by what is known now."""
        means = {
            point: self._score([b.mean for b in self._beliefs(point)], self._beliefs(point))
            for point in self.measured
        }
        top = max(means.values())
        within = math.log1p(self.problem.margin)
        ties = sorted((p for p in means if means[p] >= top - within), key=lambda p: (self._changed(p), -means[p]))
        chosen = ties[0]
        sure = self._sure(chosen)
        if chosen != self.space.base and (sure < _SURE or means[chosen] < within):
            chosen, sure = self.space.base, 0.0
        return KnobChoice(
            point=chosen, ties=tuple(p for p in ties if p != chosen), ratios=self.figures(chosen), sure=sure
        )

    def figures(self, point: Point) -> tuple[Figure, ...]:
        """A setting against what runs, by axis."""
        return tuple(
            Figure(*(math.exp(b.mean + side * b.sd) for side in (0.0, -_WIDE, _WIDE))) for b in self._beliefs(point)
        )

    def effects(self) -> tuple[KnobEffect, ...]:
        """What each knob does alone."""
        found = []
        for i, knob in enumerate(self.space.knobs):
            tried = sorted({p[i] for p in self.measured if p[i] != knob.runs})
            alone = [self.space.with_level(i, level) for level in tried]
            most = max(alone, key=lambda p: max(abs(b.mean) for b in self._beliefs(p)), default=None)
            chance = self.model.matters(i) if tried else None
            found.append(
                KnobEffect(
                    name=knob.name,
                    matters=chance,
                    dropped=self.screened and chance is not None and chance < _MATTERS,
                    level=None if most is None else most[i],
                    ratios=() if most is None else self.figures(most),
                )
            )
        return tuple(found)

    # --- screening ----------------------------------------------------------------------------------------

    def _probe(self) -> tuple[int, Point] | None:
        """The next end that was not tried."""
        for i, knob in enumerate(self.space.knobs):
            for end in knob.probes:
                point = self._inwards(i, end)
                if point is not None:
                    return i, point
        return None

    def _inwards(self, knob: int, end: int) -> Point | None:
        """An end, or the next value to it that fits; None where that was tried."""
        own = self.space.knobs[knob]
        step = 0 if not own.ordered or end == own.runs else (1 if own.runs > end else -1)
        level = end
        while 0 <= level < len(own.levels) and level != own.runs and own.levels[level] is not None:
            point = self.space.with_level(knob, level)
            if point in self.measured or point in self._given or (knob, level) in self._dead:
                return None
            if self._may_start(point):
                return point
            if not step:
                return None
            level += step
        return None

    def _may_start(self, point: Point) -> bool:
        if point not in self._refused and self._admits is not None:
            because = self._admits(point)
            if because is not None:
                self.refuse(point, because)
        return point not in self._refused

    # --- the best next ------------------------------------------------------------------------------------

    def _best(self) -> KnobStep:
        held = self._held()
        within = math.log1p(self.problem.margin)
        nearest = 0.0
        gains: dict[Point, float] = {}
        for point in self._candidates(held):
            draws = self._draws(point, held)
            chance = sum(value > within for value in draws) / len(draws)
            nearest = max(nearest, chance)
            if chance >= _LIKELY:
                gains[point] = math.fsum(max(math.exp(value) - 1.0, 0.0) for value in draws) / len(draws)
        likely = sorted(gains, key=lambda p: -gains[p])
        best = next((point for point in likely if self._may_start(point)), None)
        if best is None and likely:
            return self._best()  # none of these can be started: there may be others behind them
        kept = self.space.words(held)
        if best is None:
            return KnobStep(
                point=None,
                because=f"stop: no other setting is likely to be more than {self.problem.margin:.0%} better than "
                f"{kept}; the nearest at {nearest:.0%}",
            )
        predicted = self.figures(best)
        words = " and ".join(f"{f.mean:.2f}x ({f.low:.2f}\u2013{f.high:.2f})" for f in predicted)
        return KnobStep(
            point=best,
            because=f"{self.space.words(best)} next: predicted {words}, against {kept}",
            predicted=predicted,
        )

    def _held(self) -> Point:
        """The best of those measured, by the model."""
        return max(self.measured, key=lambda p: self._score([b.mean for b in self._beliefs(p)], self._beliefs(p)))

    def _candidates(self, held: Point) -> list[Point]:
        """What could be asked for, the most promising by one hypothesis where there are many."""
        done = {*self.measured, *self._refused, *self._given}
        kept = self.kept
        if math.prod(len(self.space.knobs[i].levels) for i in kept) <= _CANDIDATES:
            every = list(self.space.points(kept))
        else:
            every = self._some(kept, held)
        open_ = [p for p in every if p not in done and not self._beyond(p)]
        if len(open_) <= _LOOKED_AT:
            return open_
        quick = self.model.heaviest()

        def promise(point: Point) -> float:
            beliefs = quick.beliefs(point)
            return self._score([b.mean + b.sd for b in beliefs], beliefs)

        return sorted(open_, key=promise, reverse=True)[:_LOOKED_AT]

    def _some(self, kept: Sequence[int], held: Point) -> list[Point]:
        """Of too many: all that differ from the best in two knobs at most, and some drawn at random."""
        found = dict.fromkeys(
            tuple(a if i == one else b if i == two else at for i, at in enumerate(held))
            for one in kept
            for two in kept
            for a in range(len(self.space.knobs[one].levels))
            for b in range(len(self.space.knobs[two].levels))
        )
        rng = Random(f"settings {len(self._seen)}")  # noqa: S311 - draws of a simulation
        for _ in range(_CANDIDATES // 2):
            found[
                tuple(
                    rng.randrange(len(knob.levels)) if i in kept else knob.runs
                    for i, knob in enumerate(self.space.knobs)
                )
            ] = None
        return list(found)

    def _beyond(self, point: Point) -> bool:
        """Whether a knob is where it did not start alone, or farther out."""
        for knob, dead in self._dead:
            own = self.space.knobs[knob]
            if point[knob] == dead:
                return True
            if own.ordered and (dead - own.runs) * (point[knob] - dead) > 0:
                return True
        return False

    def _draws(self, point: Point, held: Point) -> list[float]:
        """By how much it may be worth more than the best so far, in futures in which that is as expected."""
        base = self._beliefs(held)
        before = self._score([b.mean for b in base], base)
        apart = self.model.beliefs(point, against=held)
        found = []
        for row in _columns(self.problem.axes):
            values = [b.mean + d.mean + d.sd * z for b, d, z in zip(base, apart, row, strict=True)]
            found.append(max(self._score(values) - before, self._turned(values, base)))
        return found

    def _turned(self, values: Sequence[float], held: Sequence[Belief]) -> float:
        """What is gained alone by the first setting that gains there at no loss: it goes before all throughput."""
        within = math.log1p(self.problem.margin)
        if len(values) == 1 or self._gains_alone or values[0] <= within or values[1] < -within:
            return -math.inf
        return values[0] - max(held[0].mean, 0.0)

    # --- worth --------------------------------------------------------------------------------------------

    def _beliefs(self, point: Point) -> tuple[Belief, ...]:
        model = self.model
        if point not in self._believed:
            self._believed[point] = model.beliefs(point)
        return self._believed[point]

    def _score(self, values: Sequence[float], beliefs: Sequence[Belief] | None = None) -> float:
        """Log worth against what runs: latency, unless throughput is lost by it; as `tune.search.worth`.

        Args:
            values: Log ratios to what runs, by axis.
            beliefs: Of a setting that was measured: only a loss beyond its doubt is one.
        """
        if len(values) == 1:
            return values[0]
        doubt = [0.0, 0.0] if beliefs is None else [_SEEN_SDS * b.sd for b in beliefs]
        loss = -math.log1p(self.problem.margin)
        low, high = values
        if self._gains_alone:
            return low if high + doubt[1] >= loss else min(low, high)
        return high if low + doubt[0] >= loss else min(low, high)

    @property
    def _gains_alone(self) -> bool:
        """Whether some setting measured gains for a single request without a loss of throughput."""
        within = math.log1p(self.problem.margin)
        if self._alone is None or self._model is None:
            pairs = [self._beliefs(point) for point in self.measured]
            self._alone = any(
                low.mean - _SEEN_SDS * low.sd > within and high.mean + _SEEN_SDS * high.sd >= -within
                for low, high in pairs
            )
        return self._alone

    def _changed(self, point: Point) -> int:
        return sum(at != own for at, own in zip(point, self.space.base, strict=True))

    def _sure(self, point: Point) -> float:
        if point == self.space.base:
            return 0.0
        beliefs = self._beliefs(point)
        axis = 0 if len(beliefs) == 1 or self._gains_alone else 1
        own = beliefs[axis]
        return NormalDist().cdf(own.mean / own.sd) if own.sd > 0 else float(own.mean > 0)


def _columns(axes: int) -> list[list[float]]:
    """Standard normal draws, the same for every setting: differences between settings are then no chance."""
    rng = Random("futures of knobs")  # noqa: S311 - draws of a simulation
    half = [[rng.gauss(0.0, 1.0) for _ in range(axes)] for _ in range(_DRAWS // 2)]
    return half + [[-z for z in row] for row in half]
