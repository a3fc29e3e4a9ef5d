"""Which depth is asked for next, and when the search ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from operator import mul
from random import Random

import pytest

from draftmark.tune.acceptance_model import AcceptanceEvidence, from_histogram
from draftmark.tune.forecast import Seen, forecast
from draftmark.tune.search import Candidate, Problem, Search, Step, worth

DEPTHS = tuple(range(9))


def length(a: float, depth: int) -> float:
    return 1.0 + math.fsum(accumulate([a] * depth, mul))


def counted(a: float, depth: int) -> AcceptanceEvidence | None:
    """Two thousand rounds without chance in them."""
    if depth == 0:
        return None
    return from_histogram(depth, [2000 * a**j * (1.0 - a) for j in range(depth)] + [2000 * a**depth])


def speed(a: float, draft: float, c: int = 1) -> Callable[[int], float]:
    return lambda k: 100.0 * c * length(a, k) / (1.0 + draft * k)


def searched(
    tok_s: Callable[[int], float],
    *,
    a: float | None = 0.8,
    depths: tuple[int, ...] = DEPTHS,
    refused: tuple[int, ...] = (),
    baseline: int = 0,
    noise: float = 0.01,
) -> tuple[Search, list[Step]]:
    """A search that is over, at concurrency 1, and what it asked for."""
    candidates = tuple(Candidate(depth=k, refused="does not fit" if k in refused else None) for k in depths)
    search = Search(Problem(candidates=candidates, baseline=baseline, latency=1, noise=noise))
    steps: list[Step] = []
    depth: int | None = baseline
    while depth is not None:
        search.tell(Seen(depth=depth, tok_s={1: tok_s(depth)}, acceptance=counted(a, depth) if a else None))
        steps.append(search.ask())
        depth = steps[-1].depth
    return search, steps


@pytest.mark.no_cover
@pytest.mark.parametrize(("a", "draft"), [(0.9, 0.1), (0.8, 0.15), (0.6, 0.1), (0.95, 0.05), (0.7, 0.3)])
def test_finds_the_best_depth_in_three_restarts(a: float, draft: float) -> None:
    tok_s = speed(a, draft)
    search, steps = searched(tok_s, a=a)
    assert tok_s(search.choice().depth) >= 0.98 * max(map(tok_s, DEPTHS))
    assert len(steps) - 1 <= 3


def test_the_first_trial_is_deep_and_says_why() -> None:
    _, steps = searched(speed(0.8, 0.15))
    assert steps[0].depth == 4
    assert "acceptance of all shallower depths" in steps[0].because
    assert all("\n" not in step.because for step in steps)
    assert steps[-1].because.startswith("stop: ")


def test_nothing_that_does_not_fit_is_asked_for() -> None:
    _, steps = searched(speed(0.97, 0.01), a=0.97, refused=(5, 6, 7, 8))
    assert {s.depth for s in steps} <= {1, 2, 3, 4, None}
    assert 4 in {s.depth for s in steps}


def test_a_depth_that_did_not_start_ends_the_deeper_ones() -> None:
    search = Search(Problem(candidates=tuple(Candidate(depth=k) for k in DEPTHS), baseline=0, latency=1))
    search.tell(Seen(depth=0, tok_s={1: 100.0}))
    first = search.ask().depth
    assert first is not None
    search.refuse(first, "no memory")
    assert search.refused[first] == "no memory"
    assert all(k in search.refused for k in DEPTHS if k >= first)
    following = search.ask().depth
    assert following is not None
    assert following < first


def test_off_is_best_in_two_restarts() -> None:
    for a, draft in ((0.3, 0.5), (0.4, 0.4), (0.5, 0.9)):
        search, steps = searched(speed(a, draft), a=a, noise=0.02)
        assert search.choice().depth == 0
        assert len(steps) - 1 <= 2


def test_a_rising_curve_ends_at_its_end() -> None:
    search, steps = searched(lambda k: 100.0 + 30.0 * k, a=None, noise=0.02)
    assert search.choice().depth == 8
    assert len(steps) - 1 <= 4


def test_a_falling_curve_ends_at_its_start() -> None:
    search, _ = searched(lambda k: 100.0 * 0.9**k, a=None, noise=0.02)
    assert search.choice().depth == 0


@pytest.mark.no_cover
def test_where_depth_makes_no_difference_no_winner_is_named() -> None:
    named = 0
    for seed in range(5):
        rng = Random(seed)
        shown = {k: 100.0 * math.exp(rng.gauss(0.0, 0.03)) for k in DEPTHS}
        search, steps = searched(shown.__getitem__, a=None, noise=0.03)
        named += search.choice().depth != 0
        assert len(steps) - 1 <= 5
    assert named <= 1


def test_level_depths_are_ties_and_the_shallowest_is_chosen() -> None:
    figures = {0: 100.0, 1: 150.0, 2: 200.0, 3: 240.0, 4: 240.0, 5: 241.0}
    search = Search(
        Problem(candidates=tuple(Candidate(depth=k) for k in figures), baseline=0, latency=1, noise=0.01)
    )
    for depth in (0, 5, 2, 3, 4):
        search.tell(Seen(depth=depth, tok_s={1: figures[depth]}))
    ties = search.choice().ties
    assert len(ties) > 1
    assert search.choice().depth == ties[0]
    assert set(ties) <= {3, 4, 5}


def test_a_depth_that_is_odd_for_no_reason_does_not_hide_the_best() -> None:
    """The first trial hits a depth a third slower than its neighbours, as one of SGLang's was on an H200."""
    figures = {0: 100.0, 1: 150.0, 2: 190.0, 3: 220.0, 4: 150.0, 5: 240.0, 6: 245.0}
    search, steps = searched(figures.__getitem__, depths=tuple(figures), a=0.85, noise=0.02)
    assert steps[0].depth == 4
    assert figures[search.choice().depth] >= 220.0
    assert len(steps) - 1 <= 5


def test_nothing_is_chosen_that_was_not_measured() -> None:
    search, steps = searched(speed(0.9, 0.05), a=0.9)
    assert search.choice().depth in {0, *(s.depth for s in steps)}


def test_the_same_answers_give_the_same_questions() -> None:
    one, two = (searched(speed(0.85, 0.12), a=0.85, noise=0.04)[1] for _ in range(2))
    assert one == two


def test_a_baseline_that_drafts_is_searched_from() -> None:
    tok_s = speed(0.9, 0.08)
    search, steps = searched(tok_s, a=0.9, baseline=3)
    assert tok_s(search.choice().depth) >= 0.98 * max(map(tok_s, DEPTHS))
    assert 3 not in {s.depth for s in steps}


def test_asking_before_the_baseline_is_told_is_an_error() -> None:
    search = Search(Problem(candidates=(Candidate(depth=0), Candidate(depth=1)), baseline=0, latency=1))
    with pytest.raises(ValueError, match="baseline"):
        search.ask()


@pytest.mark.parametrize(
    ("latency", "throughput", "baseline", "what"), [(None, None, 0, "concurrency"), (1, None, 7, "no candidate")]
)
def test_a_problem_without_an_aim_is_an_error(
    latency: int | None, throughput: int | None, baseline: int, what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        Problem(candidates=(Candidate(depth=0),), baseline=baseline, latency=latency, throughput=throughput)


def test_latency_counts_unless_throughput_loses_by_it() -> None:
    assert worth([1.0, 1.5, 2.0], [1.0, 1.1, 0.7], 0.02) == [1.0, 1.5, 0.7]
    assert worth([1.0, 1.0, 0.9], [1.0, 1.4, 2.0], 0.02) == [1.0, 1.4, 0.9]


def test_a_depth_that_takes_fewer_requests_is_forecast_with_them() -> None:
    seen = [
        Seen(depth=0, tok_s={32: 3200.0}),
        Seen(depth=2, tok_s={32: 6000.0}, acceptance=counted(0.8, 2)),
        Seen(depth=6, tok_s={32: 7000.0}, acceptance=counted(0.8, 6)),
    ]
    free = forecast(DEPTHS, seen, noise=0.02, concurrencies=[32])
    held = forecast(DEPTHS, seen, noise=0.02, concurrencies=[32], running={4: 8})
    assert held.tok_s(4, 32).mean < 0.85 * free.tok_s(4, 32).mean
    assert held.tok_s(4, 32).low > 0.2 * free.tok_s(4, 32).mean


def test_a_forecast_needs_a_figure_at_each_concurrency() -> None:
    with pytest.raises(ValueError, match="concurrency 8"):
        forecast(DEPTHS, [Seen(depth=0, tok_s={1: 100.0})], noise=0.02, concurrencies=[1, 8])
