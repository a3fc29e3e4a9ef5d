"""Depths as they are typed, and the order of trials."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import UsageError
from draftmark.model import Arm
from draftmark.tune.plan import (
    expected_minutes,
    expected_restarts,
    parse_arms,
    parse_concurrency,
    parse_depths,
    schedule,
)

ADAPTIVE = Arm(3, (("--speculative-adaptive", ""),))


@pytest.mark.parametrize(
    ("text", "depths"),
    [
        ("0..8", tuple(range(9))),
        ("off,4,8,16", (0, 4, 8, 16)),
        ("0,2..6", (0, 2, 3, 4, 5, 6)),
        ("4,off,4,0", (4, 0)),
        (" 4 , 6 .. 7 ", (4, 6, 7)),
        ("3..3", (3,)),
        ("0..999", tuple(range(1000))),
    ],
)
def test_depths(text: str, depths: tuple[int, ...]) -> None:
    assert parse_depths(text) == depths


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0..a", "'a' is not a whole number"),
        ("", "a number is missing"),
        ("4,,8", "a number is missing"),
        ("..4", "a number is missing"),
        ("4..", "a number is missing"),
        ("-1", "'-1' is not a whole number"),
        ("0..-4", "'-4' is not a whole number"),
        ("8..4", "8..4 runs backwards"),
        ("0..1000", "more than 1000"),
        ("0..600,700..1200", "more than 1000"),
        ("1.5", "'1.5' is not"),
        ("off..4", "'off' is not"),
        ("1..2..3", "'2..3' is not"),
        ("٤", "is not a whole number"),
        ("9999999999999999", "is not a whole number"),
    ],
)
def test_depths_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_depths(text)
    assert says in caught.value.what
    assert caught.value.next_step


@given(st.text(alphabet="0123456789.,off- ", max_size=12))
def test_any_text_gives_depths_or_a_usage_error(text: str) -> None:
    try:
        depths = parse_depths(text)
    except UsageError:
        return
    assert depths
    assert len(set(depths)) == len(depths) <= 1000
    assert min(depths) >= 0


@pytest.mark.parametrize(
    ("text", "arms"),
    [
        ("0..2,adaptive", (Arm(0), Arm(1), Arm(2), ADAPTIVE)),
        ("adaptive", (ADAPTIVE,)),
        ("off, adaptive ,3,off", (Arm(0), ADAPTIVE, Arm(3))),
        ("off,3", (Arm(0), Arm(3))),
    ],
)
def test_arms(text: str, arms: tuple[Arm, ...]) -> None:
    assert parse_arms(text, lambda: ADAPTIVE) == arms


@pytest.mark.parametrize("text", ["adaptive,", ",adaptive", "adaptive3", "3,,adaptive", "", "ADAPTIVE,x"])
def test_arms_that_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--depth"):
        parse_arms(text, lambda: ADAPTIVE)


def test_names_and_labels_of_arms() -> None:
    assert (ADAPTIVE.name, ADAPTIVE.label) == ("d3-speculative-adaptive", "depth 3, adaptive")
    memory = Arm(4, (("--mem-fraction", "0.85"),))
    assert (memory.name, memory.label) == ("d4-mem-fraction=0.85", "depth 4, mem-fraction=0.85")


@given(st.lists(st.tuples(st.sampled_from(["--a", "--b"]), st.text()), max_size=3).map(tuple))
def test_any_arm_has_a_name_fit_for_a_directory(knobs: tuple[tuple[str, str], ...]) -> None:
    name = Arm(3, knobs).name
    assert re.fullmatch(r"[A-Za-z0-9._+=-]{1,80}", name)
    assert name.startswith("d3")
    other = Arm(3, (*knobs, ("--c", "/x"))).name
    assert other != name


def test_concurrency() -> None:
    assert parse_concurrency("1, 8,32,8") == (1, 8, 32)


@pytest.mark.parametrize("text", ["", "0", "1,0", "x", "1..8", ",".join(map(str, range(1, 1002)))])
def test_concurrency_that_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_concurrency(text)


OFF, D4, D8 = Arm(0), Arm(4), Arm(8)


def _order(arms: list[Arm], rounds: int, baseline: Arm) -> str:
    return " ".join(slot.arm.name for slot in schedule(arms, rounds, baseline))


def test_rounds_run_forward_and_back() -> None:
    assert _order([OFF, D4, D8], 1, OFF) == "off d4 d8 off"
    assert _order([OFF, D4, D8], 2, OFF) == "off d4 d8 d8 d4 off"
    assert _order([OFF, D4, D8], 3, OFF) == "off d4 d8 d8 d4 off off d4 d8 off"


def test_a_baseline_of_any_depth_is_first_and_last() -> None:
    assert _order([OFF, D4, D8], 1, D4) == "d4 off d8 d4"
    assert _order([D8, D8, OFF], 1, D4) == "d4 d8 off d4"


def test_the_baseline_alone_is_still_measured_twice() -> None:
    assert _order([OFF], 1, OFF) == "off off"
    assert _order([], 2, OFF) == "off off"


def test_slots_are_numbered_and_know_their_round() -> None:
    slots = schedule([OFF, D4], 3, OFF)
    assert [slot.number for slot in slots] == [1, 2, 3, 4, 5, 6, 7]
    assert [slot.round for slot in slots] == [1, 1, 2, 2, 3, 3, 3]
    with pytest.raises(ValueError, match="0 rounds"):
        schedule([OFF], 0, OFF)


def test_what_it_costs() -> None:
    slots = schedule([OFF, D4, D8], 3, OFF)
    assert expected_restarts(slots) == 10
    assert expected_minutes(100.0, 300.0, 20.0, len(slots)) == pytest.approx(70.0)
