"""Plans of times: reproducible, without drift, with the mean and the spread that were asked for."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.load.arrivals import Constant, Gamma, Poisson, Ramp, Schedule, Trace, mean_rate

rates = st.floats(1e-3, 1e5)
shapes = st.floats(1e-2, 1e4)
seeds = st.integers(-(2**63), 2**64)
SCHEDULES = st.one_of(
    rates.map(Constant),
    rates.map(Poisson),
    st.builds(Gamma, rates, shapes),
    st.builds(Ramp, st.just(0.0) | rates, rates, st.floats(1e-3, 1e5), st.none() | shapes),
)


def gaps(offsets: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(offsets)]


@settings(deadline=None)
@given(SCHEDULES, st.integers(0, 300), seeds)
def test_a_plan_begins_at_once_goes_forward_and_repeats(schedule: Schedule, count: int, seed: int) -> None:
    offsets = schedule.offsets(count, seed)
    assert len(offsets) == count
    assert offsets[:1] == [0.0][:count]
    assert all(math.isfinite(at) for at in offsets)
    assert all(a <= b for a, b in pairwise(offsets))
    assert offsets == schedule.offsets(count, seed)
    assert offsets[: count // 2] == schedule.offsets(count // 2, seed)  # more requests change no earlier one


def test_constant_does_not_drift() -> None:
    assert Constant(3.0).offsets(10**6, 0)[-1] == (10**6 - 1) / 3.0


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mean_and_variation_of_the_gaps(burstiness: float, seed: int) -> None:
    count, rate = 40_000, 20.0
    found = gaps(Gamma(rate, burstiness).offsets(count, seed))
    variation = 1 / math.sqrt(burstiness)
    # five standard errors of the mean; the deviation's own error grows with the gaps' kurtosis, 3 + 6 / shape
    assert fmean(found) * rate == pytest.approx(1, abs=5 * variation / math.sqrt(count))
    assert pstdev(found) / fmean(found) == pytest.approx(
        variation, rel=5 * math.sqrt((2 + 6 / burstiness) / 4 / count) + 5 * variation / math.sqrt(count)
    )


def test_a_burstiness_of_one_is_poisson_and_seeds_differ() -> None:
    assert Gamma(7.0, 1.0).offsets(500, 3) == Poisson(7.0).offsets(500, 3)
    assert Poisson(7.0).offsets(500, 3) != Poisson(7.0).offsets(500, 4)


def test_a_plan_is_as_drawn_not_rescaled() -> None:
    ends = [Poisson(10.0).offsets(101, seed)[-1] for seed in range(200)]
    assert len(set(ends)) == 200
    assert pstdev(ends) == pytest.approx(1.0, rel=0.3)  # of the sum of 100 exponential gaps of mean 0.1 s
    assert fmean(ends) == pytest.approx(10.0, rel=0.03)


@settings(deadline=None)
@given(st.just(0.0) | st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.floats(0.5, 1e3), st.integers(1, 400))
def test_a_ramp_follows_the_integral_of_its_rate(start: float, end: float, seconds: float, i: int) -> None:
    ramp = Ramp(start, end, seconds)
    at = ramp.offsets(i + 1, 0)[i]
    inside = min(at, seconds)
    arrived = start * inside + (end - start) * inside**2 / (2 * seconds) + end * max(0.0, at - seconds)
    assert arrived == pytest.approx(i, rel=1e-9)


def test_the_ends_of_a_ramp() -> None:
    ramp = Ramp(2.0, 20.0, 60.0)
    assert ramp.arrivals == 660
    offsets = ramp.offsets(1000, 0)
    assert 1 / (offsets[1] - offsets[0]) == pytest.approx(2.0, rel=0.05)
    assert offsets[660] == pytest.approx(60.0)
    assert all(gap == pytest.approx(1 / 20) for gap in gaps(offsets[661:]))
    down = Ramp(20.0, 2.0, 60.0).offsets(661, 0)
    assert down[1] - down[0] == pytest.approx(1 / 20, rel=0.01)
    assert down[-1] == pytest.approx(60.0)
    assert Ramp(5.0, 5.0, 9.0).offsets(300, 0) == pytest.approx(Constant(5.0).offsets(300, 0))


def test_a_bursty_ramp_has_the_counts_of_its_rate() -> None:
    offsets = [at for seed in range(40) for at in Ramp(0.0, 20.0, 10.0, 1.0).offsets(400, seed) if at <= 10.0]
    first = sum(at <= 5.0 for at in offsets)
    assert len(offsets) / 40 == pytest.approx(100, rel=0.06)
    assert first / len(offsets) == pytest.approx(0.25, rel=0.1)  # the area below a line from 0


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=1).map(sorted), st.floats(0.01, 100))
def test_a_trace_keeps_its_gaps(times: list[float], speed: float) -> None:
    offsets = Trace(times, speed).offsets(len(times), 9)
    assert offsets[0] == 0
    assert [at * speed for at in offsets] == pytest.approx([t - times[0] for t in times])


def test_a_trace_has_only_so_many() -> None:
    assert Trace([3.0, 4.0, 9.0], 2.0).offsets(2, 0) == [0.0, 0.5]
    with pytest.raises(ValueError, match="has 3 requests, not 4"):
        Trace([3.0, 4.0, 9.0]).offsets(4, 0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_figures_out_of_range(bad: float) -> None:
    for make in (
        lambda: Constant(bad),
        lambda: Poisson(bad),
        lambda: Gamma(1.0, bad),
        lambda: Ramp(1.0, bad, 1.0),
        lambda: Ramp(1.0, 1.0, bad),
        lambda: Ramp(1.0, 1.0, 1.0, bad),
        lambda: Trace([1.0], bad),
    ):
        with pytest.raises(ValueError, match="must be above 0"):
            make()
    with pytest.raises(ValueError, match="must be 0 or more"):
        Ramp(-1.0, 1.0, 1.0)


def test_the_rate_that_a_plan_comes_to() -> None:
    assert mean_rate([0.0, 0.5, 1.0]) == 2.0
    assert mean_rate([0.0]) is None
    assert mean_rate([0.0, 0.0]) is None
