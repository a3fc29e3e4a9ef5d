"""The surfaces that searches are held against, and the searches side by side on a few of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench.search.methods import METHODS, Trials, draftmark, golden_section, grid, successive_halving
from bench.search.picture import Outcome, drawn, share_within, table
from bench.search.surfaces import draw, regret

SEEDS = range(7000, 7008)


@pytest.mark.parametrize("seed", range(7000, 7020))
def test_surfaces_are_what_they_say(seed: int) -> None:
    s = draw(seed)
    assert s == draw(seed)
    assert set(s.fits) <= set(s.depths)
    assert s.baseline in s.fits
    assert s.fits == tuple(k for k in s.depths if k <= s.fits[-1])
    assert 0.01 <= s.noise <= 0.05
    assert all(1 <= c <= 64 for c in s.concurrencies)
    assert all(0.05 <= a <= 0.985 for a in s.acceptance)
    assert min(regret(s, k) for k in s.fits) == 0.0
    shown = s.shown(s.fits[-1])
    if shown.histogram is not None:
        assert sum(shown.histogram) == s.rounds
    assert s.shown(s.fits[-1]) == shown
    assert s.shown(s.fits[-1], again=1) != shown


@pytest.mark.no_cover
def test_the_search_is_near_the_best_in_a_few_restarts_and_starts_nothing_that_does_not_fit() -> None:
    regrets, restarts = [], []
    for seed in SEEDS:
        trials = Trials(draw(seed))
        regrets.append(regret(trials.surface, draftmark(trials)))
        restarts.append(trials.restarts)
        assert trials.misfits == 0
    assert sum(r <= 0.02 for r in regrets) >= len(SEEDS) - 2
    assert sorted(restarts)[len(restarts) // 2] <= 3
    assert max(restarts) <= 5


@pytest.mark.parametrize("method", [grid, golden_section, successive_halving])
def test_the_others_count_their_restarts(method: Callable[[Trials], int]) -> None:
    for seed in SEEDS:
        trials = Trials(draw(seed))
        assert method(trials) in trials.surface.fits
        others = len(trials.surface.fits) - 1
        assert trials.misfits == 0
        if method is grid:
            assert trials.restarts == others
        if method is golden_section:
            assert trials.restarts <= others
        if method is successive_halving:
            assert trials.restarts >= others


def test_table_and_picture_have_every_method() -> None:
    found = {name: [Outcome(3, 0.01 * i, 0) for i in range(4)] for name in METHODS}
    assert share_within(found["full grid"]) == 0.75
    for text in (table(found), drawn(found)):
        assert all(name in text for name in METHODS)
    assert "75.0%" in table(found)
    assert drawn(found).startswith("<svg ")
