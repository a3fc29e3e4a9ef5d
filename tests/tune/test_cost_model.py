"""Times of rounds at depths that were not tried."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from draftmark.tune.cost_model import CostModel, expert_hits

DEPTHS = tuple(range(9))


def predicted(
    times: dict[int, float], noise: float = 0.01, draws: int = 300, hits: tuple[float, ...] = ()
) -> list[list[float]]:
    """Curves that agree with the times, sorted by depth."""
    seen = sorted(times)
    values = [times[k] for k in seen]
    model = CostModel(DEPTHS, [DEPTHS.index(k) for k in seen], values, [noise] * len(seen), hits)
    _, shares = model.weigh(values)
    rng = Random(5)
    curves = [model.draw(values, shares, rng) for _ in range(draws)]
    return [sorted(curve[i] for curve in curves) for i in range(len(DEPTHS))]


def spread(values: list[float]) -> tuple[float, float, float]:
    return values[int(0.025 * len(values))], sum(values) / len(values), values[int(0.975 * len(values))]


def test_a_line_is_followed() -> None:
    curves = predicted({k: 1.0 + 0.1 * k for k in (0, 3, 8)})
    for k in DEPTHS:
        low, mean, high = spread(curves[k])
        assert mean == pytest.approx(1.0 + 0.1 * k, rel=0.04)
        assert low < 1.0 + 0.1 * k < high


def test_a_knee_lies_within_the_interval_before_it_is_seen() -> None:
    truth = {k: 1.0 + 0.05 * k + 0.2 * max(k - 4, 0) for k in DEPTHS}
    curves = predicted({k: truth[k] for k in (0, 8)}, draws=600)
    for k in (1, 2, 4, 6):
        low, _, high = spread(curves[k])
        assert 0.99 * low < truth[k] < high
    seen = predicted({k: truth[k] for k in (0, 2, 4, 6, 8)})
    for k in (3, 5, 7):
        assert spread(seen[k])[1] == pytest.approx(truth[k], rel=0.05)


def test_a_step_is_seen_where_it_was_measured() -> None:
    truth = {k: 1.0 + 0.02 * k + 0.4 * (k >= 4) for k in DEPTHS}
    curves = predicted({k: truth[k] for k in (0, 1, 3, 4, 8)})
    assert spread(curves[2])[1] == pytest.approx(truth[2], rel=0.03)
    assert spread(curves[6])[1] == pytest.approx(truth[6], rel=0.05)


def test_a_curve_is_monotone_where_figures_allow() -> None:
    curves = predicted({0: 1.0, 8: 1.05}, noise=0.03)
    assert spread(curves[4])[2] < 1.3
    assert spread(curves[4])[0] > 0.8


def test_figures_that_are_no_curve_make_the_rest_unknown() -> None:
    smooth = predicted({0: 1.0, 2: 1.2, 4: 1.4, 6: 1.6})
    jagged = predicted({0: 1.0, 2: 1.9, 4: 1.2, 6: 2.1})
    assert spread(jagged[5])[2] - spread(jagged[5])[0] > 3 * (spread(smooth[5])[2] - spread(smooth[5])[0])


def test_experts_saturate() -> None:
    hits = expert_hits(DEPTHS, 8, 256, 8)
    assert hits[0] == 0.0
    gaps = [b - a for a, b in pairwise(hits)]
    assert gaps == sorted(gaps, reverse=True)
    truth = [1.0 + 0.05 * k + 0.5 * hits[k] for k in DEPTHS]
    with_shape = predicted({k: truth[k] for k in (0, 1, 8)}, hits=tuple(hits))
    without = predicted({k: truth[k] for k in (0, 1, 8)})
    assert abs(spread(with_shape[4])[1] - truth[4]) < abs(spread(without[4])[1] - truth[4])
    assert spread(with_shape[4])[1] == pytest.approx(truth[4], rel=0.05)


def test_many_requests_hit_all_experts_already() -> None:
    assert expert_hits(DEPTHS, 1000, 64, 8)[-1] == pytest.approx(0.0, abs=1e-6)
    assert expert_hits(DEPTHS, 1, 1, 1)[-1] == pytest.approx(0.0, abs=1e-5)
