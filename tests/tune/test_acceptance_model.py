"""Accept lengths of depths that were not tried."""

from __future__ import annotations

import dataclasses
import math
from itertools import accumulate
from operator import mul
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.model import Acceptance
from draftmark.tune.acceptance_model import (
    AcceptanceModel,
    Basis,
    from_histogram,
    from_length,
    from_measurement,
    from_positions,
    from_totals,
)


def true_length(chain: list[float], depth: int) -> float:
    return 1.0 + math.fsum(accumulate(chain[:depth], mul))


def rounds_of(chain: list[float], depth: int, rounds: int, seed: int = 1) -> list[int]:
    rng, counts = Random(seed), [0] * (depth + 1)
    for _ in range(rounds):
        accepted = 0
        while accepted < depth and rng.random() < chain[accepted]:
            accepted += 1
        counts[accepted] += 1
    return counts


@given(st.lists(st.integers(0, 50), min_size=2, max_size=9).filter(any), st.data())
def test_every_shallower_depth_is_the_same_rounds_cut_short(counts: list[int], data: st.DataObject) -> None:
    depth = len(counts) - 1
    k = data.draw(st.integers(1, depth))
    evidence = from_histogram(depth, counts)
    cut = sum(min(j, k) * n for j, n in enumerate(counts)) / sum(counts)
    assert sum(evidence.reached[: k + 1]) / evidence.rounds == pytest.approx(1.0 + cut)


def test_one_deep_trial_tells_the_shallower_depths_whatever_the_shape() -> None:
    chain = [0.9, 0.5, 0.8, 0.95, 0.3, 0.7]  # neither flat nor falling
    model = AcceptanceModel([from_histogram(6, rounds_of(chain, 6, 20_000))])
    for k in range(1, 7):
        told = model.length(k)
        assert told.basis is Basis.COUNTED
        assert told.mean == pytest.approx(true_length(chain, k), rel=0.01)
        assert told.low < true_length(chain, k) < told.high


@pytest.mark.no_cover
def test_the_interval_covers_as_often_as_it_says() -> None:
    rng, inside = Random(3), 0
    for seed in range(100):
        chain = [rng.uniform(0.3, 0.95)] * 5
        told = AcceptanceModel([from_histogram(5, rounds_of(chain, 5, 300, seed))]).length(3)
        inside += told.low <= true_length(chain, 3) <= told.high
    assert inside >= 88  # 95 expected; 88 is three sds below


def test_deeper_is_a_trend_with_an_interval_that_widens() -> None:
    chain = [0.8 * 0.97**j for j in range(12)]
    model = AcceptanceModel([from_histogram(4, rounds_of(chain, 4, 3000))])
    widths = []
    for k in range(4, 12):
        told = model.length(k)
        widths.append(told.high - told.low)
        assert told.low < true_length(chain, k) < told.high
        assert told.basis is (Basis.COUNTED if k == 4 else Basis.EXTRAPOLATED)
    assert widths == sorted(widths)
    assert widths[-1] > 3 * widths[0]


def test_a_few_rounds_make_a_wide_interval() -> None:
    few, many = (AcceptanceModel([from_histogram(4, rounds_of([0.7] * 4, 4, n))]).length(2) for n in (20, 5000))
    assert few.high - few.low > 5 * (many.high - many.low)


def test_positions_as_vllm_counts_them_are_the_same_evidence() -> None:
    counts = [10, 20, 30, 40]
    per_position = [90, 70, 40]
    assert from_positions(3, 100, per_position).reached == from_histogram(3, counts).reached


def test_positions_that_rise_are_cut_to_what_is_possible() -> None:
    assert from_positions(3, 100, [90, 95, -1]).reached == (100, 90, 90, 0)


def test_totals_alone_assume_a_shape_and_say_so() -> None:
    model = AcceptanceModel([from_totals(4, 400, 200)])
    assert model.length(4).basis is Basis.TOLD
    assert model.length(4).mean == pytest.approx(3.0, rel=0.02)
    shallow = model.length(2)
    assert shallow.basis is Basis.SHAPED
    assert 1.0 < shallow.low < shallow.mean < shallow.high < 3.0


def test_nothing_told_is_assumed_and_wide() -> None:
    told = AcceptanceModel([]).length(4)
    assert told.basis is Basis.ASSUMED
    assert told.high - told.low > 2.0


def test_two_trials_that_agree_sharpen_one_another() -> None:
    chain = [0.7] * 6
    one = AcceptanceModel([from_histogram(6, rounds_of(chain, 6, 500))])
    two = AcceptanceModel(
        [from_histogram(6, rounds_of(chain, 6, 500)), from_histogram(3, rounds_of(chain, 3, 2000, 2))]
    )
    assert two.spread == 0.0
    assert two.length(2).high - two.length(2).low < one.length(2).high - one.length(2).low


def test_trials_that_contradict_the_chain_rule_widen_the_others_and_keep_their_own() -> None:
    deep = from_histogram(6, rounds_of([0.8] * 6, 6, 3000))
    odd = from_histogram(2, rounds_of([0.4] * 2, 2, 3000))
    model = AcceptanceModel([deep, odd])
    assert model.spread > 0.2
    assert model.length(2).mean == pytest.approx(odd.length, rel=0.02)
    assert model.length(3).high / model.length(3).low > 1.5


def test_trees_are_outside_the_rule() -> None:
    told = AcceptanceModel([from_histogram(4, [10, 20, 30, 40, 50], tree=True)])
    assert told.spread >= 0.1
    assert told.basis(2) is not Basis.COUNTED
    assert told.length(2).high / told.length(2).low > 1.2


@pytest.mark.parametrize(
    ("counts", "depth"), [([0, 0, 0], 2), ([5], 3), ([1, 2, 3, 4, 5, 6], 2), ([0, 0, 7], 2), ([-3, 4], 1)]
)
def test_odd_histograms_are_taken_as_they_are(counts: list[int], depth: int) -> None:
    told = AcceptanceModel([from_histogram(depth, counts)]).length(depth)
    assert 1.0 <= told.low <= told.mean <= told.high <= depth + 1.0


def test_a_measurement_is_taken_by_its_firmest_counts() -> None:
    told = Acceptance(
        drafts=10,
        drafted_tokens=40,
        accepted_tokens=20,
        output_tokens=30,
        source="requests",
        histogram=(2, 2, 2, 2, 2),
    )
    assert from_measurement(4, told).reached == (10, 8, 6, 4, 2)
    plain = Acceptance(drafts=10, drafted_tokens=40, accepted_tokens=20, output_tokens=60, source="counters")
    assert from_measurement(4, plain).accept_len == 1.5  # tokens a pass: most rounds had no draft
    placed = dataclasses.replace(plain, output_tokens=32, by_position=(8, 6, 4, 2))
    found = from_measurement(4, placed)
    assert (found.reached, found.undrafted) == ((10, 8, 6, 4, 2), 2 / 32)
    assert from_measurement(4, placed, tree=True).accept_len == 32 / 12
    less = Acceptance(drafts=None, drafted_tokens=40, accepted_tokens=20, output_tokens=None, source="requests")
    assert from_measurement(4, less).accept_len == 3.0


def test_an_impossible_length_is_held_to_what_the_depth_allows() -> None:
    assert from_length(3, 9.0).accept_len == 4.0
    assert from_length(3, 0.2).accept_len == 1.0
    told = AcceptanceModel([from_length(3, 9.0)]).length(3)
    assert told.high <= 4.0


def test_rounds_without_a_draft_bring_their_tokens_one_by_one_at_every_depth() -> None:
    """An n-gram drafter that finds a draft of 8 in four fifths of the text, all of it accepted."""
    deep = from_positions(8, 100, [100.0] * 8, undrafted=0.2)
    model = AcceptanceModel([deep])
    for depth in (2, 4, 8):
        passes = 0.2 + 0.8 / (depth + 1)
        assert model.length(depth).mean == pytest.approx(depth + 1, rel=0.02)
        assert model.per_pass(depth) == pytest.approx(1 / passes, rel=0.02)
        ((drawn,), *_), _ = model.draws((depth,), 3, Random(1))
        assert drawn == pytest.approx(1 / passes, rel=0.1)
    assert model.per_pass(0) == 1.0
