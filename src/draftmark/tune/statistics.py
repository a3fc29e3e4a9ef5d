"""The arithmetic behind a decision: Student's t, the drift model, a run's level shifts. Pure; no numpy.

Everything works on natural logarithms, so that a difference is a ratio. Formulas and what was measured of them are
in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

PRIOR_SD = 0.02  # what a trial's relative noise is taken to be before anything is measured
PRIOR_DF = 3.0  # ... and how many trials' worth of evidence that belief is
_RANK_TOLERANCE = 1e-10  # a pivot that shrank below this share of its start is a dependent column


class Drift(NamedTuple):
    """How a machine's speed may wander: an Ornstein-Uhlenbeck process, or a random walk when it never forgets.

    Attributes:
        strength: Variance over the noise variance; of the level itself, or of a walk's growth per mean gap.
        memory: Mean gaps between trials after which 1/e of a deviation is left; infinite for a walk.
    """

    strength: float
    memory: float

    def step(self) -> float:
        """Variance of the change from one trial to the next, over the noise variance."""
        return self.strength * (1.0 if math.isinf(self.memory) else 2.0 * (1.0 - math.exp(-1.0 / self.memory)))


DRIFTS = (  # none, quick to forget, slow to forget, never: equally likely beforehand
    Drift(0.0, math.inf),
    *(Drift(strength, memory) for memory in (1.5, 6.0) for strength in (1.0, 4.0, 16.0)),
    Drift(0.3, math.inf),
    Drift(3.0, math.inf),
)


# --- Student's t ------------------------------------------------------------------------------------------


def t_sf(t: float, df: float) -> float:
    """Upper tail P(T > t), accurate relative to itself even where it is tiny.

    The tail is half the regularised incomplete beta I_x(df/2, 1/2) at x = df / (df + t²).

    Args:
        t: Any real number.
        df: Degrees of freedom, any real number above 0; infinity is the normal distribution.

    Raises:
        ValueError: df is not above 0.
    """
    if not df > 0:
        raise ValueError(f"{df} degrees of freedom")
    if t < 0:
        return 1.0 - t_sf(-t, df)
    if t == 0.0:
        return 0.5
    if df > 2e5:
        return 0.5 * math.erfc(_normal_deviate(t, df) / math.sqrt(2.0))
    log_odds = 2.0 * math.log(t) - math.log(df)  # of 1 - x
    log_x, log_rest = -_softplus(log_odds), -_softplus(-log_odds)
    a = 0.5 * df
    log_front = _log_gamma_step(a) - 0.5 * math.log(math.pi) + a * log_x + 0.5 * log_rest
    x = math.exp(log_x)
    if x < (a + 1.0) / (a + 2.5):
        return 0.5 * math.exp(log_front) * _beta_fraction(a, 0.5, x) / a
    return 0.5 - math.exp(log_front) * _beta_fraction(0.5, a, math.exp(log_rest))


def t_cdf(t: float, df: float) -> float:
    """P(T <= t)."""
    return t_sf(-t, df)


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = p, by Newton's steps on a logarithmic scale inside a bracket.

    Raises:
        ValueError: p is not strictly between 0 and 1, or df is not above 0.
    """
    if not 0.0 < p < 1.0:
        raise ValueError(f"no quantile at {p}")
    if p == 0.5:
        return 0.0
    if p > 0.5:
        return -t_quantile(1.0 - p, df)
    return -_tail_quantile(p, df)


def _tail_quantile(tail: float, df: float) -> float:
    """The t > 0 with P(T > t) = tail < 1/2. Works in u = log t, where both ends of the range are tame.

    Raises:
        OverflowError: The quantile is beyond the range of floats, as happens far below one degree of freedom.
    """
    low, high = -60.0, 1.0
    while t_sf(math.exp(high), df) > tail:
        if high > 600.0:
            raise OverflowError(f"quantile of t at {tail} with {df} degrees of freedom")
        low, high = high, 2.0 * high
    u = 0.5 * (max(low, -1.0) + high)
    for _ in range(200):
        t = math.exp(u)
        p = t_sf(t, df)
        low, high = (u, high) if p > tail else (low, u)
        slope = _t_density(t, df) * t / p if p > 0.0 else 0.0  # -d log(p) / du
        step = math.log(p / tail) / slope if slope > 0.0 else math.inf
        if abs(step) < 1e-14 * max(1.0, abs(u)):
            return math.exp(u + step)
        u = u + step if low < u + step < high else 0.5 * (low + high)
    return math.exp(u)


def _t_density(t: float, df: float) -> float:
    if df > 2e5:
        return math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)  # only a direction for Newton's step
    log_constant = _log_gamma_step(0.5 * df) - 0.5 * math.log(df * math.pi)
    return math.exp(log_constant - 0.5 * (df + 1.0) * math.log1p(t * t / df))


def _normal_deviate(t: float, df: float) -> float:
    """The normal deviate with the same tail, for large df (Hill 1970, Algorithm 395); exact at infinity."""
    if math.isinf(df):
        return t
    a = df - 0.5
    b = 48.0 * a * a
    y = a * math.log1p(t * t / df)
    inner = ((((-0.4 * y - 3.3) * y - 24.0) * y - 85.5) / (0.8 * y * y + 100.0 + b) + y + 3.0) / b + 1.0
    return inner * math.sqrt(y)


def _log_gamma_step(a: float) -> float:
    """Difference log Γ(a + 1/2) - log Γ(a); by its series for large a, where the difference would cancel."""
    if a < 100.0:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1.0 / (8.0 * a) + 1.0 / (192.0 * a**3)


def _softplus(u: float) -> float:
    """log(1 + exp(u)) without overflow."""
    return max(u, 0.0) + math.log1p(math.exp(-abs(u)))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta (Abramowitz and Stegun 26.5.8), by Lentz's method.

    As in Numerical Recipes, section 6.4; AS 63 and AS 109 treat the same function.
    """
    tiny = 1e-300
    c = 1.0
    d = 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 5000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


# --- arms under drift -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """One trial on one axis.

    Attributes:
        at_s: Middle of the measurement, seconds since the run's start.
        arm: Name of the arm.
        value: Natural log of the figure.
        block: Machine that it was measured on. Levels of two machines are never compared.
    """

    at_s: float
    arm: str
    value: float
    block: str = ""


@dataclass(frozen=True, slots=True)
class Contrast:
    """The log of one arm's figure over another's: estimate, standard error, degrees of freedom."""

    estimate: float
    se: float
    df: float

    def bounds(self, tail: float) -> tuple[float, float]:
        """Lower and upper bound, each missed with probability `tail`."""
        reach = t_quantile(1.0 - tail, self.df) * self.se
        return self.estimate - reach, self.estimate + reach


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The fit under one assumed drift."""

    step: float
    weight: float
    effects: list[float]
    inverse: list[list[float]]
    variance: float


@dataclass(frozen=True, slots=True)
class ArmFit:
    """Arm effects of one axis, averaged over what is not known about the drift.

    Attributes:
        arms: Names, in the order first seen.
        df: Prior's plus residual degrees of freedom.
        noise: Standard deviation of a trial's log figure, drift left out.
        drift: Standard deviation of the drift from one trial to the next.
    """

    arms: tuple[str, ...]
    df: float
    noise: float
    drift: float
    _candidates: tuple[_Candidate, ...]

    def contrast(self, arm: str, other: str) -> Contrast:
        """Log of arm / other; its variance is the candidates' mean variance plus the variance of their means."""
        i, j = self.arms.index(arm), self.arms.index(other)
        means = [c.effects[i] - c.effects[j] for c in self._candidates]
        mean = math.fsum(c.weight * m for c, m in zip(self._candidates, means, strict=True))
        variance = math.fsum(
            c.weight * (c.variance * (c.inverse[i][i] + c.inverse[j][j] - 2.0 * c.inverse[i][j]) + (m - mean) ** 2)
            for c, m in zip(self._candidates, means, strict=True)
        )
        return Contrast(mean, math.sqrt(max(variance, 0.0)), self.df)


def fit_arms(points: Sequence[Point]) -> ArmFit:
    """Fit arms and drift to one axis.

    Model: value = arm + drift(t) + noise. For each drift of a fixed list it is filtered out of figures and arm
    indicators alike, which whitens both, and the arms follow by least squares; the noise variance is moderated by a
    prior; the list is averaged with the weights of the marginal likelihood. Over several machines each has a level
    of its own, and drifts by itself.

    Args:
        points: At least one; each block's together, in order of time. Arms of two blocks have one in common.
    """
    names, gaps = tuple(p.arm for p in points), _gaps(points)
    arms = tuple(dict.fromkeys(names))
    df = PRIOR_DF + len(points) - len(arms) - sum(map(math.isinf, gaps))
    centre, values = _centred(points)
    found: list[tuple[float, _Candidate]] = []
    for drift in DRIFTS:
        design = _design(names, gaps, drift)
        whitened = _whiten(values, design.steps)
        products = [_dot(column, whitened) for column in design.columns]
        effects = [_dot(row, products) for row in design.inverse]
        total = PRIOR_DF * PRIOR_SD**2 + max(_dot(whitened, whitened) - _dot(effects, products), 0.0)
        score = -0.5 * (design.log_variances + design.log_det + df * math.log(total))
        levels = [centre + effect for effect in effects[: len(arms)]]
        found.append((score, _Candidate(drift.step(), 0.0, levels, design.inverse, total / df)))
    return _averaged(arms, df, found)


def _averaged(arms: tuple[str, ...], df: float, found: list[tuple[float, _Candidate]]) -> ArmFit:
    top = max(score for score, _ in found)
    weights = [math.exp(score - top) for score, _ in found]
    whole = math.fsum(weights)
    candidates = tuple(
        _Candidate(c.step, w / whole, c.effects, c.inverse, c.variance)
        for w, (_, c) in zip(weights, found, strict=True)
    )
    noise = math.fsum(c.weight * c.variance for c in candidates)
    drift = math.fsum(c.weight * c.variance * c.step for c in candidates)
    return ArmFit(arms, df, math.sqrt(noise), math.sqrt(drift), candidates)


def _centred(points: Sequence[Point]) -> tuple[float, list[float]]:
    """The mean, and the values around it, so that sums of squares keep their digits."""
    centre = math.fsum(p.value for p in points) / len(points)
    return centre, [p.value - centre for p in points]


def _gaps(points: Sequence[Point]) -> tuple[float, ...]:
    """Time before each point, in mean gaps; the first has none, and that of a later block is infinite."""
    between = [max(b.at_s - a.at_s, 0.0) if a.block == b.block else math.inf for a, b in pairwise(points)]
    within = [gap for gap in between if gap < math.inf]
    mean = math.fsum(within) / len(within) if within else 0.0
    # rounded: see _design
    return (0.0, *(gap if math.isinf(gap) else round(gap / mean, 9) if mean > 0.0 else 1.0 for gap in between))


class _Step(NamedTuple):
    """The filter at one point: the level it keeps, how much of a surprise it learns, one over the surprise's sd."""

    kept: float
    gain: float
    scale: float


class _Design(NamedTuple):
    """All that follows from the order of arms and the times alone: the axes of a run share it when times agree."""

    steps: list[_Step]
    log_variances: float
    columns: list[list[float]]
    inverse: list[list[float]]
    log_det: float


@lru_cache(maxsize=256)
def _design(names: tuple[str, ...], gaps: tuple[float, ...], drift: Drift) -> _Design:
    """Scalar Kalman filter of the drift (noise variance 1) and the arms' normal equations behind it.

    A walk starts at 0: the arms' indicators add up to a constant, which absorbs it. A further block starts anew,
    its level a column behind those of the arms.
    """
    walk = math.isinf(drift.memory)
    spread = 0.0 if walk else drift.strength
    log_variances = 0.0
    steps: list[_Step] = []
    for gap in gaps:
        if math.isinf(gap):
            kept, spread = 0.0, 0.0 if walk else drift.strength
        else:
            kept = 1.0 if walk else math.exp(-gap / drift.memory)
            more = kept * kept * (spread - drift.strength)
            spread = spread + drift.strength * gap if walk else drift.strength + more
        steps.append(_Step(kept, spread / (spread + 1.0), 1.0 / math.sqrt(spread + 1.0)))
        log_variances += math.log(spread + 1.0)
        spread /= spread + 1.0
    block = list(accumulate(map(math.isinf, gaps)))
    raw = [[float(name == arm) for name in names] for arm in dict.fromkeys(names)]
    raw += [[float(at == each) for at in block] for each in range(1, block[-1] + 1)]
    columns = [_whiten(column, steps) for column in raw]
    table = [[_dot(a, b) for b in columns] for a in columns]
    log_det = 0.0
    for k in range(len(columns)):
        log_det += math.log(table[k][k])
        sweep(table, k)
    return _Design(steps, log_variances, columns, table, log_det)


def _whiten(column: Sequence[float], steps: Sequence[_Step]) -> list[float]:
    """Standardised surprises of the filter: independent, of equal variance, if the drift is as assumed."""
    level = 0.0
    found = []
    for value, (kept, gain, scale) in zip(column, steps, strict=True):
        level *= kept
        surprise = value - level
        level += gain * surprise
        found.append(scale * surprise)
    return found


def sweep(table: list[list[float]], k: int) -> None:
    """Goodnight's (1979) sweep of pivot k, in place.

    Swept over all of X, the table [X'X X'y; y'X y'y] holds the inverse, the coefficients and the residual sum.
    """
    pivot = table[k][k]
    row = [value / pivot for value in table[k]]
    row[k] = 1.0 / pivot
    for i, other in enumerate(table):
        if i != k and (b := other[k]) != 0.0:
            other[k] = 0.0
            table[i] = [value - b * r for value, r in zip(other, row, strict=True)]
    table[k] = row


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    total: float = sum(map(mul, a, b))
    return total


# --- a shift of the machine in mid-run --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shift:
    """A lasting jump of every figure between two neighbouring trials.

    Attributes:
        after: Index of the last point before the jump.
        ratio: Speed after it over speed before it.
        gain: How much log likelihood the jump adds over drift alone.
    """

    after: int
    ratio: float
    gain: float


def find_shift(points: Sequence[Point], edge: int = 2) -> Shift | None:
    """The most likely level shift of a run, or None where no gap can be tested.

    Compares the best likelihood of arms + drift + a straight line with that of arms + drift + a step at one gap,
    each over the list of drifts. A gradual drift gains little from a step; a jump gains much, since drift must be
    strong throughout to imitate it. The likelihood's exponent counts residual degrees of freedom, not trials, so
    that the gain means the same in short and long runs.

    Args:
        points: In order of time, of one machine.
        edge: Trials that must lie on either side: one odd trial at the end is not a shift.
    """
    names, gaps = tuple(p.arm for p in points), _gaps(points)
    n = len(points)
    cuts = range(edge, n - edge + 1)
    left = n - len(set(names))
    if left < 3 or not cuts:
        return None
    _, values = _centred(points)
    power = 0.5 * (PRIOR_DF + left)
    without = -math.inf
    best = (-math.inf, 0, 0.0)
    for drift in DRIFTS:
        design = _design(names, gaps, drift)
        whitened = _whiten(values, design.steps)
        rest = PRIOR_DF * PRIOR_SD**2 + _beside(whitened, design)[1]
        for cut, (direction, size) in zip((0, *cuts), _directions(names, gaps, drift, cuts), strict=True):
            shared = _dot(direction, whitened)
            step = shared / size if size > 0.0 else 0.0
            score = -0.5 * design.log_variances - power * math.log(rest - step * shared)
            if cut:
                best = max(best, (score, cut - 1, step))
            else:
                without = max(without, score)
    return Shift(best[1], math.exp(best[2]), best[0] - without)


@lru_cache(maxsize=256)
def _directions(
    names: tuple[str, ...], gaps: tuple[float, ...], drift: Drift, cuts: range
) -> list[tuple[list[float], float]]:
    """A straight line, then a step at each cut: whitened, the arms' share taken out, with squared length.

    The length is 0 where arms alone explain the step.
    """
    design = _design(names, gaps, drift)
    line = list(accumulate(gaps))
    raw = [[at / max(line[-1], 1e-9) - 0.5 for at in line]]
    raw += [[float(i >= cut) for i in range(len(names))] for cut in cuts]
    found = []
    for column in raw:
        whitened = _whiten(column, design.steps)
        rest, size = _beside(whitened, design)
        found.append((rest, size if size > _RANK_TOLERANCE * _dot(whitened, whitened) else 0.0))
    return found


def _beside(whitened: list[float], design: _Design) -> tuple[list[float], float]:
    """What least squares on the arms leaves of a column, and its squared length."""
    products = [_dot(column, whitened) for column in design.columns]
    for row, column in zip(design.inverse, design.columns, strict=True):
        share = _dot(row, products)
        whitened = [w - share * c for w, c in zip(whitened, column, strict=True)]
    return whitened, _dot(whitened, whitened)
