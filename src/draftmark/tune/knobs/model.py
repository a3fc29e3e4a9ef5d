"""What the settings not measured are likely to show, by those that were: a small Gaussian process. Pure.

Log figures at each concurrency are modelled as

    y = mean + sum over knobs f_i + sum over pairs f_ij + noise

with f_i and f_ij drawn from Gaussian processes over the order of a knob's values (names: each its own). Which knobs
have an f at all is not known: every subset is a hypothesis, as are how fast f turns over a range and how large the
noise is. Likelihood weighs them (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 2.2 and
5.4.1), so that a knob's chance to matter is the weight of the subsets that hold it. Knobs are the same at all
concurrencies: the likelihoods multiply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from operator import mul

from draftmark.model import Knob
from draftmark.tune.knobs.space import Point, Space

_ACTIVE = 0.4  # chance that a knob matters, before anything was seen
_REACH = 0.2  # sd of a knob's effect, of the logarithm
_MET = 0.35  # sd of what two knobs do together, as a share of that
_TURNS = (0.35, 0.9)  # over which share of a range an effect turns
_NOISES = (0.01, 0.02, 0.04)
_MEAN = 1.0  # sd of the level, which is not known
_LIGHT = 0.01  # hypotheses with less than this share of the heaviest's weight are left out
_APART = 0.5  # likeness of a value without a place in the order to any other


@dataclass(frozen=True, slots=True)
class Belief:
    """A log figure, less that of what runs.

    Attributes:
        mean: Expected.
        sd: Of it.
    """

    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    """Which knobs matter, how fast they turn, how large the noise is.

    Attributes:
        weight: Share of all.
        factor: Of the covariance of what was measured, by Cholesky.
        solved: That covariance, solved for the figures of each axis.
    """

    active: tuple[int, ...]
    turn: float
    noise: float
    weight: float
    factor: tuple[tuple[float, ...], ...]
    solved: tuple[tuple[float, ...], ...]


class KnobModel:
    """All that was measured, and what follows for the rest."""

    def __init__(self, space: Space, seen: Sequence[tuple[Point, Sequence[float]]]) -> None:
        """Fit.

        Args:
            space: The knobs.
            seen: Settings, each with its log figures by axis; what runs among them.
        """
        self._space = space
        self._points = [point for point, _ in seen]
        self.axes = len(seen[0][1])
        self._likeness = {turn: [_likeness(knob, turn) for knob in space.knobs] for turn in _TURNS}
        self._to_measured: dict[tuple[tuple[int, ...], float, Point], list[float]] = {}
        level = [[figures[axis] for _, figures in seen] for axis in range(self.axes)]
        # The level takes no part in what is asked: it is only kept from being far from 0.
        self._figures = [[value - sum(own) / len(own) for value in own] for own in level]
        self._hypotheses = self._weighed()

    def matters(self, knob: int) -> float:
        """Chance that it does."""
        return math.fsum(h.weight for h in self._hypotheses if knob in h.active)

    def beliefs(self, point: Point, against: Point | None = None) -> tuple[Belief, ...]:
        """By axis: the log of the ratio to another setting, else to what runs."""
        other = self._space.base if against is None else against
        told = [self._by_one(h, point, other) for h in self._hypotheses]
        found = []
        for axis in range(self.axes):
            mean = math.fsum(h.weight * own[0][axis] for h, own in zip(self._hypotheses, told, strict=True))
            spread = math.fsum(
                h.weight * (own[1] + (own[0][axis] - mean) ** 2)
                for h, own in zip(self._hypotheses, told, strict=True)
            )
            found.append(Belief(mean, math.sqrt(max(spread, 0.0))))
        return tuple(found)

    @property
    def noise(self) -> float:
        """Relative sd of a figure."""
        return math.fsum(h.weight * h.noise for h in self._hypotheses)

    def heaviest(self) -> KnobModel:
        """By the likeliest hypothesis alone: quick to ask."""
        found = copy(self)
        found._hypotheses = [replace(max(self._hypotheses, key=lambda h: h.weight), weight=1.0)]
        return found

    # --- inside -------------------------------------------------------------------------------------------

    def _weighed(self) -> list[_Hypothesis]:
        knobs = range(len(self._space.knobs))
        moved = [i for i in knobs if any(p[i] != self._space.base[i] for p in self._points)]
        subsets = [
            (*own, *(i for i in knobs if i not in moved))  # of what was never moved nothing is known
            for size in range(len(moved) + 1)
            for own in combinations(moved, size)
        ]
        found = []
        for turn in _TURNS:
            tables = self._tables(turn)
            for active in subsets:
                free = math.log(_ACTIVE) * len(active) + math.log(1.0 - _ACTIVE) * (len(knobs) - len(active))
                covariance = self._covariance(active, tables)
                for noise in _NOISES:
                    factor = _cholesky(covariance, noise**2)
                    halves = tuple(tuple(_forward(factor, own)) for own in self._figures)
                    spread = math.fsum(math.log(factor[i][i]) for i in range(len(factor)))
                    heavy = free - math.fsum(0.5 * math.fsum(map(mul, half, half)) + spread for half in halves)
                    found.append((heavy, tuple(sorted(active)), turn, noise, factor, halves))
        top = max(heavy for heavy, *_ in found)
        kept = [(math.exp(each[0] - top), each) for each in found]
        kept = [(weight, each) for weight, each in kept if weight > _LIGHT]
        total = math.fsum(weight for weight, _ in kept)
        return [
            _Hypothesis(
                active, turn, noise, weight / total, factor, tuple(tuple(_backward(factor, h)) for h in halves)
            )
            for weight, (_, active, turn, noise, factor, halves) in kept
        ]

    def _tables(self, turn: float) -> list[list[list[float]]]:
        """Likeness of any two measured settings in each knob."""
        return [
            [[alike[a[i]][b[i]] for b in self._points] for a in self._points]
            for i, alike in enumerate(self._likeness[turn])
        ]

    def _covariance(self, active: Sequence[int], tables: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
        """Without noise; its lower half."""
        return [
            [_MEAN**2 + _REACH**2 * _met([tables[i][a][b] for i in active]) for b in range(a + 1)]
            for a in range(len(self._points))
        ]

    def _by_one(self, h: _Hypothesis, point: Point, other: Point) -> tuple[list[float], float]:
        """Mean by axis, and variance, of the difference of two settings under one hypothesis."""
        near = zip(self._nearness(h, point), self._nearness(h, other), strict=True)
        cross = [_REACH**2 * (one - two) for one, two in near]
        half = _forward(h.factor, cross)
        own = 2.0 * _REACH**2 * (_met([1.0] * len(h.active)) - self._alike(h, point, other))
        means = [math.fsum(map(mul, cross, solved)) for solved in h.solved]
        return means, max(own - math.fsum(map(mul, half, half)), 0.0)

    def _nearness(self, h: _Hypothesis, point: Point) -> list[float]:
        """Likeness of a setting to each that was measured."""
        key = (h.active, h.turn, point)
        if key not in self._to_measured:
            self._to_measured[key] = [self._alike(h, point, each) for each in self._points]
        return self._to_measured[key]

    def _alike(self, h: _Hypothesis, one: Point, two: Point) -> float:
        alike = self._likeness[h.turn]
        return _met([alike[i][one[i]][two[i]] for i in h.active])


def _likeness(knob: Knob, turn: float) -> list[list[float]]:
    """Of any two of a knob's values."""
    places = [knob.place(level) for level in range(len(knob.levels))]

    def alike(one: int, two: int) -> float:
        first, second = places[one], places[two]
        if one == two:
            return 1.0
        if first is None or second is None:
            return _APART if knob.ordered else 0.0
        return math.exp(-0.5 * ((first - second) / turn) ** 2)

    return [[alike(one, two) for two in range(len(places))] for one in range(len(places))]


def _met(likeness: Sequence[float]) -> float:
    """Of single knobs and of pairs: sum of products of two is (sum² - sum of squares) / 2."""
    total = math.fsum(likeness)
    return total + _MET**2 * 0.5 * (total * total - math.fsum(map(mul, likeness, likeness)))


def _cholesky(matrix: Sequence[Sequence[float]], more: float) -> tuple[tuple[float, ...], ...]:
    """The factor of a matrix given by its lower half, with so much more on the diagonal."""
    rows: list[list[float]] = []
    for i, line in enumerate(matrix):
        row: list[float] = []
        for j, other in enumerate(rows):
            row.append((line[j] - sum(map(mul, row, other))) / other[j])
        row.append(math.sqrt(max(line[i] + more - sum(map(mul, row, row)), 1e-12)))
        rows.append(row)
    return tuple(tuple(row) for row in rows)


def _forward(factor: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    found: list[float] = []
    for row, value in zip(factor, right, strict=True):
        found.append((value - sum(map(mul, row, found))) / row[len(found)])
    return found


def _backward(factor: Sequence[Sequence[float]], half: Sequence[float]) -> list[float]:
    """What the factor's transpose takes to `half`: after `_forward`, the whole solution."""
    count = len(half)
    found = [0.0] * count
    for i in reversed(range(count)):
        found[i] = (half[i] - sum(factor[j][i] * found[j] for j in range(i + 1, count))) / factor[i][i]
    return found
