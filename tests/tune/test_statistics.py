"""The arithmetic, against values computed to 30 digits elsewhere and against slow, obvious formulas."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.tune import statistics
from draftmark.tune.decide import trial_levels
from draftmark.tune.statistics import (
    PRIOR_DF,
    PRIOR_SD,
    Drift,
    Point,
    find_shift,
    fit_arms,
    t_cdf,
    t_quantile,
    t_sf,
)

TAILS = [  # df, t, P(T > t)
    (0.5, 2.0, 0.22275744509156561),
    (1, 1.0, 0.25),
    (2.5, 0.3, 0.39367118574759863),
    (3, 5.84090929975643, 0.005000000023956936),
    (11, 3.8, 0.0014716410393540748),
    (30, -1.7, 0.9502610622057416),
    (150.5, 6.0, 7.054334940820973e-09),
    (1e4, 4.0, 3.1899334411569814e-05),
    (1e6, 5.0, 2.866998935445371e-07),
]
QUANTILES = [  # df, p, t
    (1, 0.975, 12.706204736174694),
    (2, 0.75, 0.816496580927726),
    (3, 0.995, 5.840909309733355),
    (3, 0.9989583333333333, 10.073296133904941),
    (4.5, 0.6, 0.26875183554217513),
    (11, 0.9989583333333333, 4.000802517572916),
    (30, 0.05, -1.6972608865939578),
    (120, 0.999, 3.1595387433171105),
    (1e5, 0.975, 1.9599877075346093),
    (1e7, 0.975, 1.959964221767205),
]


@pytest.mark.parametrize(("df", "t", "tail"), TAILS)
def test_tail_of_t(df: float, t: float, tail: float) -> None:
    assert t_sf(t, df) == pytest.approx(tail, rel=1e-10)
    assert t_cdf(-t, df) == pytest.approx(tail, rel=1e-10)


@pytest.mark.parametrize(("df", "p", "t"), QUANTILES)
def test_quantile_of_t(df: float, p: float, t: float) -> None:
    assert t_quantile(p, df) == pytest.approx(t, rel=1e-10)


@given(st.floats(0.3, 1e6), st.floats(1e-9, 0.499999))
def test_quantile_undoes_the_distribution(df: float, tail: float) -> None:
    assert t_sf(t_quantile(1.0 - tail, df), df) == pytest.approx(1.0 - (1.0 - tail), rel=1e-8)


def test_infinite_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert t_quantile(0.975, math.inf) == pytest.approx(NormalDist().inv_cdf(0.975), rel=1e-9)
    assert t_sf(0.0, 3.0) == 0.5
    assert t_quantile(0.5, 3.0) == 0.0


def test_impossible_arguments_of_t() -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_sf(1.0, 0.0)
    with pytest.raises(ValueError, match="no quantile"):
        t_quantile(1.0, 3.0)
    with pytest.raises(OverflowError):
        t_quantile(1e-12, 0.01)


def test_full_table_gives_row_means() -> None:
    assert trial_levels({(1, "a"): 1.0, (1, "b"): 3.0, (2, "a"): 2.0, (2, "b"): 5.0}) == {1: 2.0, 2: 3.5}
    assert trial_levels({}) == {}


def test_a_missing_prompt_does_not_move_its_trial() -> None:
    rng = random.Random(5)
    trials = {t: rng.uniform(3.0, 4.0) for t in range(6)}
    prompts = {p: rng.gauss(0.0, 0.5) for p in "abcde"}
    full = {(t, p): trials[t] + prompts[p] for t in trials for p in prompts}
    holes = {(0, "a"), (3, "e"), (3, "d"), (5, "b")}
    levels = trial_levels({cell: value for cell, value in full.items() if cell not in holes})
    assert levels == pytest.approx(trial_levels(full), abs=1e-12)


def test_least_squares_residuals_are_orthogonal_to_both_factors() -> None:
    rng = random.Random(6)
    cells = {(t, p): rng.gauss(0.0, 1.0) for t in range(5) for p in "abcd" if rng.random() < 0.7}
    levels = trial_levels(cells)
    offsets = {}
    for p in "abcd":
        own = [value - levels[t] for (t, q), value in cells.items() if q == p]
        offsets[p] = sum(own) / len(own)
    for trial in range(5):
        assert sum(v - levels[t] - offsets[p] for (t, p), v in cells.items() if t == trial) == pytest.approx(0.0)
    assert sum(offsets.values()) == pytest.approx(0.0)


def test_trials_without_a_shared_prompt_are_left_out() -> None:
    cells = {(1, "a"): 1.0, (2, "a"): 2.0, (2, "b"): 2.5, (3, "b"): 4.0, (9, "z"): 7.0}
    assert set(trial_levels(cells)) == {1, 2, 3}


# --- arms under drift -------------------------------------------------------------------------------------


def _dense_gls(points: list[Point], drift: Drift) -> tuple[dict[str, float], float, float]:
    """Effects, log|V| and moderated variance by the textbook formula, with the whole covariance matrix."""
    mean_gap = (points[-1].at_s - points[0].at_s) / (len(points) - 1)
    start = points[0].at_s

    def shared(a: Point, b: Point) -> float:
        if math.isinf(drift.memory):
            return drift.strength * min(a.at_s - start, b.at_s - start) / mean_gap
        return drift.strength * math.exp(-abs(a.at_s - b.at_s) / mean_gap / drift.memory)

    cov = [[(a is b) + shared(a, b) for b in points] for a in points]
    arms = sorted({p.arm for p in points})
    right = [[float(p.arm == a) for a in arms] + [p.value] for p in points]
    weighted, log_det = _solve(cov, right)
    k = len(arms)
    normal = [
        [sum(r[i] * w[j] for r, w in zip(right, weighted, strict=True)) for j in range(k + 1)] for i in range(k)
    ]
    beta, _ = _solve([row[:k] for row in normal], [[row[k]] for row in normal])
    effects = {a: b[0] for a, b in zip(arms, beta, strict=True)}
    residual = [p.value - effects[p.arm] for p in points]
    solved, _ = _solve(cov, [[r] for r in residual])
    rss = sum(r * s[0] for r, s in zip(residual, solved, strict=True))
    return effects, log_det, (PRIOR_DF * PRIOR_SD**2 + rss) / (PRIOR_DF + len(points) - k)


def _solve(a: list[list[float]], b: list[list[float]]) -> tuple[list[list[float]], float]:
    rows = [[*map(float, x), *y] for x, y in zip(a, b, strict=True)]
    n, log_det = len(a), 0.0
    for k in range(n):
        log_det += math.log(abs(rows[k][k]))
        rows[k] = [v / rows[k][k] for v in rows[k]]
        for i in range(n):
            if i != k:
                rows[i] = [v - rows[i][k] * w for v, w in zip(rows[i], rows[k], strict=True)]
    return [row[n:] for row in rows], log_det


def _points(seed: int, times: list[float], arms: str) -> list[Point]:
    rng = random.Random(seed)
    return [Point(t, a, 4.0 + 0.2 * (a == "b") + rng.gauss(0.0, 0.05)) for t, a in zip(times, arms, strict=True)]


@pytest.mark.parametrize(
    "drift", [Drift(0.0, math.inf), Drift(0.3, math.inf), Drift(7.0, math.inf), Drift(4.0, 1.5)]
)
def test_filtering_the_drift_equals_dense_least_squares(monkeypatch: pytest.MonkeyPatch, drift: Drift) -> None:
    monkeypatch.setattr(statistics, "DRIFTS", (drift,))
    points = _points(1, [3.0, 40.0, 77.0, 140.0, 150.0, 190.0, 260.0], "abccbaa")
    fit = fit_arms(points)
    effects, _, variance = _dense_gls(points, drift)
    for arm in "bc":
        assert fit.contrast(arm, "a").estimate == pytest.approx(effects[arm] - effects["a"], abs=1e-8)
    assert fit.noise**2 == pytest.approx(variance, rel=1e-7)
    assert fit.drift**2 == pytest.approx(drift.step() * variance, rel=1e-7)
    assert fit.df == PRIOR_DF + 7 - 3


def test_one_trial_an_arm_rests_on_the_prior_and_the_baseline_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "DRIFTS", (Drift(0.0, math.inf),))
    points = [Point(0.0, "a", 1.00), Point(60.0, "b", 1.50), Point(120.0, "a", 1.06)]
    contrast = fit_arms(points).contrast("b", "a")
    variance = (3 * 0.02**2 + 2 * 0.03**2) / (3 + 1)  # Smyth's moderated variance
    assert contrast.df == 4.0
    assert contrast.estimate == pytest.approx(0.47)
    assert contrast.se == pytest.approx(math.sqrt(variance * (1 + 1 / 2)))
    low, high = contrast.bounds(0.025)
    assert high - low == pytest.approx(2 * 2.7764451051977987 * contrast.se, rel=1e-9)


def test_noiseless_figures_still_get_an_interval() -> None:
    points = [Point(60.0 * i, a, 1.0 + (a == "b")) for i, a in enumerate("abba")]
    contrast = fit_arms(points).contrast("b", "a")
    assert contrast.estimate == pytest.approx(1.0, abs=1e-9)
    assert contrast.se > 0.01


def test_a_steady_drift_is_taken_out() -> None:
    arms = "abcde" + "edcba" + "abcde" + "a"
    true = dict(zip("abcde", (0.0, 0.3, 0.2, 0.1, -0.1), strict=True))
    rng = random.Random(8)
    points = [Point(40.0 * i, a, true[a] + 0.03 * i + rng.gauss(0.0, 0.01)) for i, a in enumerate(arms)]
    fit = fit_arms(points)
    for arm in "bcde":
        assert fit.contrast(arm, "a").estimate == pytest.approx(true[arm], abs=0.04)
    assert fit.drift > 0.01


def test_trials_at_one_time_are_accepted() -> None:
    assert fit_arms([Point(5.0, "a", 1.0), Point(5.0, "b", 1.2)]).contrast("b", "a").estimate == pytest.approx(0.2)
    assert fit_arms([Point(5.0, "a", 1.0)]).df == PRIOR_DF


# --- shifts -----------------------------------------------------------------------------------------------


def _shifting(step: float, slope: float = 0.0) -> list[Point]:
    arms = "abcde" + "edcba" + "abcde" + "a"
    rng = random.Random(3)
    return [
        Point(40.0 * i, a, 0.1 * "abcde".index(a) + (step if i >= 9 else 0.0) + slope * i + rng.gauss(0.0, 0.015))
        for i, a in enumerate(arms)
    ]


def test_a_jump_is_found_where_it_is() -> None:
    shift = find_shift(_shifting(math.log(0.75)))
    assert shift is not None
    assert shift.after == 8
    assert shift.ratio == pytest.approx(0.75, abs=0.03)
    assert shift.gain > 8.0


def test_neither_calm_nor_a_ramp_is_a_jump() -> None:
    for points in (_shifting(0.0), _shifting(0.0, slope=0.02)):
        shift = find_shift(points)
        assert shift is not None
        assert shift.gain < 3.0


def test_too_few_trials_to_look_for_a_jump() -> None:
    assert find_shift([]) is None
    assert find_shift(_shifting(0.3)[:6]) is None
    assert find_shift([Point(40.0 * i, "a", 0.0) for i in range(4)], edge=3) is None


def test_a_step_that_an_arm_explains_is_not_counted() -> None:
    # All of arm a came first, all of b after: a step between them is the arms' difference.
    points = [Point(40.0 * i, "a" if i < 3 else "b", 0.0 if i < 3 else 0.5) for i in range(6)]
    shift = find_shift(points, edge=3)
    assert shift is not None
    assert shift.ratio == 1.0
