"""How long a round takes at a depth that was not tried, from the rounds of those that were. Pure.

A round at depth k with c requests is a forward pass of the target over c (k + 1) tokens and k passes of the
drafter:

    T(k, c) = base(c) + [k > 0] overhead(c) + k draft(c) + verify(c, k)

Verification costs next to nothing while the pass is bound by reading weights and grows with the tokens once it
is bound by arithmetic: a line with a knee somewhere. Where CUDA graphs were captured for certain batch sizes
only, it has a step instead. A mixture of experts reads more of its weights the more tokens there are, until all
experts are hit: where its shape is told, that curve is one more hypothesis. Knee and step lie where nobody can
say beforehand, so every place is a hypothesis; within one, T is linear in what is unknown, so figures of a few
depths give the others by least squares with a prior (a Gaussian process), and its likelihood weighs the
hypotheses. Each comes in three degrees of roughness, from a curve that is followed to the percent to one that
tells little of its neighbours: what was measured decides, and where the curve is no curve, its unmeasured
depths get wide intervals and have to be measured.

Times are in units of the baseline's round; c is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul, sub
from random import Random

_LEVEL = (1.0, 0.5)  # mean and sd: a round without drafts
_SLOPE = (0.09, 0.17)  # of one more draft, before the knee
_CHEAP = (0.05, 0.05)  # the same, of a drafter that costs little: then a knee is sharp
_KNEE = (0.12, 0.25)  # more of it, behind the knee
_STEP = (0.10, 0.15)
_EXPERTS = (0.4, 0.25)  # of a round without drafts: reading the experts that it hits
_OVERHEADS = ((0.75, 0.05, 0.06), (0.25, 0.35, 0.40))  # weight, mean, sd: of drafting at all
_ROUGHNESS = ((0.72, 0.004), (0.20, 0.025), (0.08, 0.15))  # weight, sd relative to the time
_SHAPES = (0.30, 0.45, 0.25)  # a line, with a knee, with a step
_EXPERTS_SHARE = 0.7  # of the curve by experts hit, where their number is told
_PLACES = 6  # most places tried for knee and step each
_BEND = 0.012  # sd of the slope's wander from one depth to the next
_BACKWARD = 0.995  # a curve may not fall below this share from a depth to a deeper one
_TRIES = 8
_HOPELESS = 9.0  # log units behind the likeliest hypothesis, at which one is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """One hypothesis: the prior of a curve, before anything is measured."""

    weight: float
    overhead: tuple[float, float] = (0.0, 0.0)
    knee: int | None = None
    step: int | None = None
    rough: float = 0.0
    hits: Sequence[float] = ()
    slope: tuple[float, float] = _SLOPE

    def parts(self, place: int, depth: int) -> tuple[float, ...]:
        """What the unknowns are multiplied by: level, overhead, slope, and knee, step or experts."""
        bend = 0.0
        if self.hits:
            bend = self.hits[place]
        elif self.knee is not None:
            bend = float(max(depth - self.knee, 0))
        elif self.step is not None:
            bend = float(depth >= self.step)
        return (1.0, float(depth > 0), float(depth), bend)

    def unknowns(self) -> tuple[tuple[float, float], ...]:
        """Mean and sd of each."""
        bend = _KNEE if self.knee is not None else _STEP if self.step is not None else (0.0, 0.0)
        if self.hits:
            bend = _EXPERTS
        return (_LEVEL, self.overhead, self.slope, bend)


class _Fitted:
    """A hypothesis with the figures of some depths: its likelihood, and draws of the curve behind them.

    Args:
        shape: The hypothesis.
        depths: All depths.
        seen: Places, in `depths`, of those measured.
        scale: Times near which each depth is believed to be: scales roughness and noise.
        noise: Relative sd of each figure.
    """

    def __init__(
        self,
        shape: _Shape,
        depths: Sequence[int],
        seen: Sequence[int],
        scale: Sequence[float],
        noise: Sequence[float],
    ) -> None:
        self._shape, self._depths, self._seen = shape, depths, seen
        self._parts = [shape.parts(place, k) for place, k in enumerate(depths)]
        self._unknowns = shape.unknowns()
        self._mean = [
            math.fsum(m * x for (m, _), x in zip(self._unknowns, row, strict=True)) for row in self._parts
        ]
        self._rough = [shape.rough * value for value in scale]
        self._noise = [sd * scale[i] for i, sd in zip(seen, noise, strict=True)]
        self._cross = [[self._covariance(i, j) for j in seen] for i in range(len(depths))]
        own = [
            [self._cross[i][b] + (i == j) * (self._rough[i] ** 2 + self._noise[a] ** 2) for b, j in enumerate(seen)]
            for a, i in enumerate(seen)
        ]
        self._inverse, log_det = _inverted(own)
        self._constant = math.log(shape.weight) - 0.5 * log_det
        self._expected = [self._mean[i] for i in seen]

    def _covariance(self, i: int, j: int) -> float:
        low, high = sorted((self._depths[i], self._depths[j]))
        wander = _BEND**2 * low * low * (3.0 * high - low) / 6.0  # of an integrated random walk
        return wander + math.fsum(
            sd * sd * a * b for (_, sd), a, b in zip(self._unknowns, self._parts[i], self._parts[j], strict=True)
        )

    def log_likelihood(self, times: Sequence[float]) -> float:
        """Of the measured times, the hypothesis' own weight included."""
        gap = list(map(sub, times, self._expected))
        total = 0.0
        for g, row in zip(gap, self._inverse, strict=True):
            total += g * sum(map(mul, row, gap))
        return self._constant - 0.5 * total

    def draw(self, times: Sequence[float], rng: Random) -> list[float]:
        """One curve that the times allow, monotone if one is found in a few tries.

        A draw of the prior is corrected by what it misses of the figures (Matheron's rule).
        """
        best: tuple[float, list[float], list[float]] | None = None
        for _ in range(_TRIES):
            smooth, rough = self._one(times, rng)
            fault = _backward(smooth)
            if best is None or fault < best[0]:
                best = fault, smooth, rough
            if not fault:
                break
        _, smooth, rough = best or (0.0, [], [])
        return [max(s + r, 0.02) for s, r in zip(smooth, rough, strict=True)]

    def _one(self, times: Sequence[float], rng: Random) -> tuple[list[float], list[float]]:
        smooth = self._prior(rng)
        rough = [rng.gauss(0.0, sd) for sd in self._rough]
        missed = [
            t - smooth[i] - rough[i] - rng.gauss(0.0, sd)
            for t, i, sd in zip(times, self._seen, self._noise, strict=True)
        ]
        pull = [sum(map(mul, row, missed)) for row in self._inverse]
        for place, row in enumerate(self._cross):
            smooth[place] += sum(map(mul, row, pull))
        for p, i in zip(pull, self._seen, strict=True):
            rough[i] += self._rough[i] ** 2 * p
        return smooth, rough

    def _prior(self, rng: Random) -> list[float]:
        drawn = [rng.gauss(mean, sd) for mean, sd in self._unknowns]
        found, at, wander, slope = [], 0, 0.0, 0.0
        for depth, row in zip(self._depths, self._parts, strict=True):
            gap = depth - at
            first, second = rng.gauss(0.0, 1.0), rng.gauss(0.0, 1.0)
            wander += slope * gap + _BEND * gap**1.5 * (first / 2.0 + second / math.sqrt(12.0))
            slope += _BEND * math.sqrt(gap) * first
            at = depth
            found.append(wander + sum(map(mul, drawn, row)))
        return found


class CostModel:
    """Times of a round at all depths and one concurrency, given those of some.

    Args:
        depths: In rising order; 0 among them or not.
        seen: Places, in `depths`, of those measured.
        typical: Their times, as far as they are known: only to scale what is relative.
        noise: Relative sd of each.
        hits: Of a mixture of experts: by depth, how many more experts a pass hits than one without drafts, relative
            to that one; empty where there is no mixture, or nobody told.
    """

    def __init__(
        self,
        depths: Sequence[int],
        seen: Sequence[int],
        typical: Sequence[float],
        noise: Sequence[float],
        hits: Sequence[float] = (),
    ) -> None:
        scale = _scale(depths, seen, typical)
        fitted = [_Fitted(shape, depths, seen, scale, noise) for shape in _shapes(depths, hits)]
        logs = [each.log_likelihood(typical) for each in fitted]
        top = max(logs)
        self._fitted = [each for each, log in zip(fitted, logs, strict=True) if log > top - _HOPELESS]

    def weigh(self, times: Sequence[float]) -> tuple[float, list[float]]:
        """Log likelihood of the times over all hypotheses, and the share of each in it."""
        logs = [fitted.log_likelihood(times) for fitted in self._fitted]
        top = max(logs)
        shares = [math.exp(value - top) for value in logs]
        whole = math.fsum(shares)
        return top + math.log(whole), [share / whole for share in shares]

    def draw(self, times: Sequence[float], shares: Sequence[float], rng: Random) -> list[float]:
        """One curve over all depths.

        Args:
            times: Measured, in the order of `seen`.
            shares: From `weigh`.
            rng: Where chance comes from.
        """
        return rng.choices(self._fitted, shares)[0].draw(times, rng)


def _shapes(depths: Sequence[int], hits: Sequence[float]) -> list[_Shape]:
    """Every hypothesis: line, knee or step, at each place, or experts, with each overhead and roughness."""
    drafting = [k for k in depths if k > 0]
    knees = _spaced(drafting[:-1])
    steps = _spaced(drafting[1:])
    rest = 1.0 - _EXPERTS_SHARE if hits else 1.0
    line, knee, step = (share * rest for share in _SHAPES)
    families = [_Shape(weight=line)]
    families += [_Shape(weight=0.5 * knee / len(knees), knee=k, slope=s) for k in knees for s in (_SLOPE, _CHEAP)]
    families += [_Shape(weight=step / len(steps), step=k) for k in steps]
    if hits:
        families.append(_Shape(weight=_EXPERTS_SHARE, hits=tuple(hits)))
    return [
        replace(shape, weight=shape.weight * likely * rate, overhead=(mean, sd), rough=rough)
        for shape in families
        for likely, mean, sd in _OVERHEADS
        for rate, rough in _ROUGHNESS
    ]


def expert_hits(depths: Sequence[int], slots: int, experts: int, active: int) -> list[float]:
    """How many more distinct experts a pass that verifies drafts hits than one that does not, relative to it.

    Tokens are taken to choose independently and evenly: 1 - (1 - active / experts)^tokens of all are hit.

    Args:
        depths: Drafts a round.
        slots: Requests in a round.
        experts: In a layer.
        active: Chosen by each token.
    """
    missed = 1.0 - min(max(active / experts, 1e-6), 1.0)
    alone = 1.0 - missed**slots
    return [(1.0 - missed ** (slots * (depth + 1))) / alone - 1.0 for depth in depths]


def _spaced(places: Sequence[int]) -> list[int]:
    """At most so many of them, evenly spread."""
    if len(places) <= _PLACES:
        return list(places)
    return [places[round(i * (len(places) - 1) / (_PLACES - 1))] for i in range(_PLACES)]


def _scale(depths: Sequence[int], seen: Sequence[int], typical: Sequence[float]) -> list[float]:
    """A plain guess of each depth's time: straight between those measured, and a guessed slope beyond them."""
    known = sorted((depths[i], time) for i, time in zip(seen, typical, strict=True))
    return [_guess(depth, known) for depth in depths]


def _guess(depth: int, known: Sequence[tuple[int, float]]) -> float:
    if not known:
        return 1.0 + _SLOPE[0] * depth
    below = [pair for pair in known if pair[0] <= depth]
    above = [pair for pair in known if pair[0] >= depth]
    if below and above:
        (a, s), (b, t) = below[-1], above[0]
        return s if a == b else s + (t - s) * (depth - a) / (b - a)
    near, time = below[-1] if below else above[0]
    return max(time * (1.0 + _SLOPE[0] * depth) / (1.0 + _SLOPE[0] * near), 0.05)


def _backward(curve: Sequence[float]) -> float:
    """By how much a curve falls somewhere; 0 where it does not."""
    top, fault = 0.0, 0.0
    for value in curve:
        fault = max(fault, top * _BACKWARD - value)
        top = max(top, value)
    return fault


def _inverted(matrix: Sequence[Sequence[float]]) -> tuple[list[list[float]], float]:
    """Inverse and log determinant of a small positive definite matrix, by Cholesky."""
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - math.fsum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = math.sqrt(max(rest, 1e-12)) if i == j else rest / lower[j][j]
    columns = []
    for unit in range(size):
        half = [0.0] * size
        for i in range(size):
            half[i] = ((i == unit) - math.fsum(lower[i][k] * half[k] for k in range(i))) / lower[i][i]
        full = [0.0] * size
        for i in reversed(range(size)):
            full[i] = (half[i] - math.fsum(lower[k][i] * full[k] for k in range(i + 1, size))) / lower[i][i]
        columns.append(full)
    return columns, 2.0 * math.fsum(math.log(lower[i][i]) for i in range(size))
