"""The arithmetic behind a decision: Student's t, the drift model, a run's level shifts. Pure; no numpy.

Everything works on natural logarithms, so that a difference is a ratio. Formulas and what was measured of them are
in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import mul

PRIOR_SD = 0.02  # what a trial's relative noise is taken to be before anything is measured
PRIOR_DF = 3.0  # ... and how many trials' worth of evidence that belief is
DRIFT_STRENGTHS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # drift variance per trial gap over noise variance
_RANK_TOLERANCE = 1e-10  # a pivot that shrank below this share of its start is a dependent column


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


# --- the additive model of trials and prompts -------------------------------------------------------------


def geometric_mean(values: Iterable[float]) -> float:
    """Mean on the log scale, so that the ratio of two means is the mean of the ratios.

    Raises:
        ValueError: There is no value, or one is not above 0.
    """
    logs = [math.log(v) for v in values]
    if not logs:
        raise ValueError("no values")
    return math.exp(math.fsum(logs) / len(logs))


def trial_levels(cells: Mapping[tuple[int, str], float]) -> dict[int, float]:
    """One level a trial from log figures per prompt, fair to trials in which a prompt is missing.

    Fits log y[trial, prompt] = trial + prompt + e by least squares and returns each trial's effect plus the mean
    of the prompt effects: what the trial would have shown on average over all prompts. In a full table that is the
    plain mean of the row. Trials that share no prompt, directly or through others, with the most connected group
    cannot be placed beside it and are left out.

    Args:
        cells: (trial, prompt id) → natural log of the figure.
    """
    rows: dict[int, dict[str, float]] = {}
    columns: dict[str, list[int]] = {}
    for (trial, prompt), value in cells.items():
        rows.setdefault(trial, {})[prompt] = value
        columns.setdefault(prompt, []).append(trial)
    if all(len(row) == len(columns) for row in rows.values()):
        return {trial: math.fsum(row.values()) / len(row) for trial, row in rows.items()}
    return _unbalanced_levels(*_largest_group(rows, columns))


def _largest_group(
    rows: dict[int, dict[str, float]], columns: dict[str, list[int]]
) -> tuple[dict[int, dict[str, float]], dict[str, list[int]]]:
    """The part of the table that hangs together and has the most trials (the earliest among equals)."""
    left = set(rows)
    best: set[int] = set()
    while left:
        group: set[int] = set()
        reach = {min(left)}
        while reach:
            group |= reach
            reach = {t for row in reach for prompt in rows[row] for t in columns[prompt]} - group
        left -= group
        best = group if len(group) > len(best) else best
    kept = {trial: row for trial, row in rows.items() if trial in best}
    return kept, {p: trials for p, trials in columns.items() if trials[0] in best}


def _unbalanced_levels(rows: dict[int, dict[str, float]], columns: dict[str, list[int]]) -> dict[int, float]:
    """Normal equations with the prompts eliminated; the first trial's effect is 0 and the rest are solved for."""
    order = list(rows)
    place = {trial: i for i, trial in enumerate(order)}
    size = len(order)
    table = [[0.0] * (size + 1) for _ in range(size + 1)]
    for i, trial in enumerate(order):
        table[i][i] = float(len(rows[trial]))
        table[i][size] = math.fsum(rows[trial].values())
    for prompt, trials in columns.items():
        mean = math.fsum(rows[t][prompt] for t in trials) / len(trials)
        for t in trials:
            table[place[t]][size] -= mean
            for other in trials:
                table[place[t]][place[other]] -= 1.0 / len(trials)
    for i in range(1, size):
        _sweep(table, i)
    effects = {trial: table[i][size] if i else 0.0 for i, trial in enumerate(order)}
    prompts = [math.fsum(rows[t][p] - effects[t] for t in trials) / len(trials) for p, trials in columns.items()]
    level = math.fsum(prompts) / len(prompts)
    return {trial: effect + level for trial, effect in effects.items()}


def _sweep(table: list[list[float]], k: int) -> None:
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


# --- arms under drift -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """One trial on one axis.

    Attributes:
        at_s: Middle of the measurement, seconds since the run's start.
        arm: Name of the arm.
        value: Natural log of the figure.
    """

    at_s: float
    arm: str
    value: float


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

    def upper(self, tail: float) -> float:
        """Upper bound alone."""
        return self.bounds(tail)[1]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The fit under one assumed drift strength."""

    strength: float
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

    Model: value = arm + drift(t) + noise, drift a random walk in time whose variance grows by `strength` noise
    variances per mean gap between trials. For each strength of a fixed grid the walk is filtered out (scalar Kalman
    filter over the data and the arms' indicators at once, which whitens both) and the arms follow by least squares;
    the noise variance is moderated by a prior; the grid is averaged with the weights of the marginal likelihood.

    Args:
        points: In order of time, at least one.
    """
    arms = tuple(dict.fromkeys(p.arm for p in points))
    gaps = _gaps(points)
    size, n = len(arms), len(points)
    df = PRIOR_DF + n - size
    rows = [[*(1.0 if p.arm == a else 0.0 for a in arms), p.value] for p in _centred(points)]
    centre = _centre(points)
    found: list[tuple[float, _Candidate]] = []
    for strength in DRIFT_STRENGTHS:
        columns, log_variances = _whitened(rows, gaps, strength)
        table = [[_dot(a, b) for b in columns] for a in columns]
        log_det = 0.0
        for k in range(size):
            log_det += math.log(table[k][k])
            _sweep(table, k)
        total = PRIOR_DF * PRIOR_SD**2 + max(table[size][size], 0.0)
        score = -0.5 * (log_variances + log_det + df * math.log(total))
        effects = [table[k][size] + centre for k in range(size)]
        inverse = [row[:size] for row in table[:size]]
        found.append((score, _Candidate(strength, 0.0, effects, inverse, total / df)))
    return _averaged(arms, df, found)


def _averaged(arms: tuple[str, ...], df: float, found: list[tuple[float, _Candidate]]) -> ArmFit:
    top = max(score for score, _ in found)
    weights = [math.exp(score - top) for score, _ in found]
    whole = math.fsum(weights)
    candidates = tuple(
        _Candidate(c.strength, w / whole, c.effects, c.inverse, c.variance)
        for w, (_, c) in zip(weights, found, strict=True)
    )
    noise = math.fsum(c.weight * c.variance for c in candidates)
    drift = math.fsum(c.weight * c.variance * c.strength for c in candidates)
    return ArmFit(arms, df, math.sqrt(noise), math.sqrt(drift), candidates)


def _centre(points: Sequence[Point]) -> float:
    return math.fsum(p.value for p in points) / len(points)


def _centred(points: Sequence[Point]) -> list[Point]:
    """Values around 0, so that sums of squares keep their digits."""
    centre = _centre(points)
    return [Point(p.at_s, p.arm, p.value - centre) for p in points]


def _gaps(points: Sequence[Point]) -> list[float]:
    """Time before each point, in mean gaps; the first has none."""
    between = [max(b.at_s - a.at_s, 0.0) for a, b in pairwise(points)]
    mean = math.fsum(between) / len(between) if between else 0.0
    return [0.0, *(gap / mean if mean > 0.0 else 1.0 for gap in between)]


def _whitened(
    rows: Sequence[Sequence[float]], gaps: Sequence[float], strength: float
) -> tuple[list[tuple[float, ...]], float]:
    """The columns after the random walk is filtered out, and the sum of log variances.

    The noise variance is 1 here. The walk starts at 0: the arms' indicators add up to a constant, which absorbs it.
    """
    level = [0.0] * len(rows[0])
    spread = 0.0
    log_variances = 0.0
    found: list[list[float]] = []
    for row, gap in zip(rows, gaps, strict=True):
        spread += strength * gap
        variance = spread + 1.0
        log_variances += math.log(variance)
        innovation = [x - m for x, m in zip(row, level, strict=True)]
        scale, gain = 1.0 / math.sqrt(variance), spread / variance
        found.append([scale * v for v in innovation])
        level = [m + gain * v for m, v in zip(level, innovation, strict=True)]
        spread /= variance
    return list(zip(*found, strict=True)), log_variances


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
    each over the grid of drift strengths. A gradual drift gains little from a step; a jump gains much, since drift
    must be strong throughout to imitate it. The likelihood's exponent counts residual degrees of freedom, not
    trials, so that the gain means the same in short and long runs.

    Args:
        points: In order of time.
        edge: Trials that must lie on either side: one odd trial at the end is not a shift.
    """
    arms = tuple(dict.fromkeys(p.arm for p in points))
    size, n = len(arms), len(points)
    cuts = range(edge, n - edge + 1)
    if n - size < 3 or not cuts:
        return None
    middle = 0.5 * (points[0].at_s + points[-1].at_s)
    span = max(points[-1].at_s - points[0].at_s, 1e-9)
    rows = [
        [
            *(1.0 if p.arm == a else 0.0 for a in arms),
            (p.at_s - middle) / span,
            *(1.0 if i >= c else 0.0 for c in cuts),
            p.value,
        ]
        for i, p in enumerate(_centred(points))
    ]
    gaps = _gaps(points)
    last = len(rows[0]) - 1
    power = 0.5 * (PRIOR_DF + n - size)
    without = -math.inf
    best = (-math.inf, 0, 0.0)
    for strength in DRIFT_STRENGTHS:
        columns, log_variances = _whitened(rows, gaps, strength)
        products = [[_dot(column, other) for column in columns[:size]] for other in columns]
        solved = _solved(products[:size], products)
        total = PRIOR_DF * PRIOR_SD**2 + _dot(columns[last], columns[last]) - _dot(products[last], solved[last])
        for k in range(size, last):
            own = _dot(columns[k], columns[k])
            left = own - _dot(products[k], solved[k])
            shared = _dot(columns[k], columns[last]) - _dot(products[k], solved[last])
            step = shared / left if left > _RANK_TOLERANCE * own else 0.0
            score = -0.5 * log_variances - power * math.log(total - step * shared)
            if k == size:
                without = max(without, score)
            else:
                best = max(best, (score, cuts[k - size - 1] - 1, step))
    return Shift(best[1], math.exp(best[2]), best[0] - without)


def _solved(matrix: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> list[list[float]]:
    """For each right-hand side, the x with matrix x = side; the matrix is symmetric and positive definite."""
    inverse = [list(row) for row in matrix]
    for k in range(len(inverse)):
        _sweep(inverse, k)
    return [[_dot(row, side) for row in inverse] for side in right]
