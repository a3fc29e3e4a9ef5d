"""Which drafts are taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.sim.acceptance import Acceptance, default_acceptance, kind_of, survival
from draftmark.sim.calibrate import chances_of


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1000))
def test_a_shallower_depth_is_a_deeper_one_cut_off(first: int, second: int, seed: int) -> None:
    """With chain drafting this is exact, and prediction rests on it."""
    acceptance = default_acceptance("EAGLE")
    shallow, deep = sorted((first, second))
    one = acceptance.draws("What is rain?", str(seed), most=shallow)
    other = acceptance.draws("What is rain?", str(seed), most=deep)
    for _ in range(50):
        assert one.accepted() == min(shallow, other.accepted())


def test_chances_come_back_from_what_was_drawn() -> None:
    acceptance = Acceptance(chances={"chat": (0.8, 0.7, 0.6)}, varies=0.0)
    draws = acceptance.draws("x", "seed", most=3)
    histogram = [0] * 4
    for _ in range(40_000):
        histogram[draws.accepted()] += 1
    assert chances_of(histogram) == pytest.approx((0.8, 0.7, 0.6), abs=0.02)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Rename the function `area` to `surface`. Return the whole code, unchanged otherwise.", "copy"),
        ("Translate this into French: good morning", "translation"),
        ("Invent a fable about a fox who sells umbrellas", "chat"),
        ("", "random"),
    ],
)
def test_kinds_of_text(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_a_tree_accepts_more_than_a_chain() -> None:
    assert survival((0.6,), 3, branches=4)[-1] > survival((0.6,), 3)[-1]


def test_simulated_lengths_are_kept_on_average() -> None:
    acceptance = default_acceptance("EAGLE", fixed=3.4)
    draws = acceptance.draws("x", "seed", most=5)
    mean = sum(1 + draws.accepted() for _ in range(20_000)) / 20_000
    assert mean == pytest.approx(3.4, abs=0.02)


def test_even_draws_show_the_mean_in_a_short_answer() -> None:
    acceptance = Acceptance(chances={"chat": (0.9,)}, varies=0.0, even=True)
    expected = 1 + sum(survival((0.9,), 5))
    for seed in map(str, range(20)):
        draws = acceptance.draws("x", seed, most=5)
        assert sum(1 + draws.accepted() for _ in range(15)) / 15 == pytest.approx(expected, rel=0.08)
