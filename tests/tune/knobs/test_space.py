"""`--knob NAME=RANGE` against what an engine has."""

from __future__ import annotations

import pytest

from draftmark.errors import UsageError
from draftmark.model import Arm, KnobKind, KnobSpec
from draftmark.tune.knobs.space import Space, parse_knobs

KNOWN = {
    spec.name: spec
    for spec in (
        KnobSpec(name="mem", flag="--mem", kind=KnobKind.SHARE, step=0.01, runs="0.850"),
        KnobSpec(name="slots", flag="--slots", kind=KnobKind.WHOLE, least=1),
        KnobSpec(name="kind", flag="--kind", kind=KnobKind.NAME, runs="fa3"),
        KnobSpec(name="flash", flag="--flash", kind=KnobKind.NAME, values=("on", "off")),
    )
}


def parsed(*texts: str) -> Space:
    return parse_knobs(texts, KNOWN, "fake")


def test_a_range_has_both_ends_and_what_runs() -> None:
    (mem,) = parsed("mem=0.83..0.86").knobs
    assert mem.levels == ("0.83", "0.84", "0.85", "0.86")
    assert mem.levels[mem.runs] == "0.85"
    (beyond,) = parsed("mem=0.90..0.92:0.02").knobs
    assert beyond.levels == ("0.85", "0.9", "0.92")
    assert beyond.runs == 0


def test_whole_numbers_double_and_the_engines_default_is_a_level() -> None:
    (slots,) = parsed("slots=16..100").knobs
    assert slots.levels == ("16", "32", "64", "100", None)
    assert slots.levels[slots.runs] is None
    assert [slots.levels[i] for i in slots.probes] == ["16", "100"]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("mem=0.80..0.90", ["0.8", "0.9"]),
        ("mem=0.85..0.90", ["0.88", "0.9"]),  # what runs is an end: the other one and the middle
        ("mem=0.85,0.86", ["0.86"]),
        ("kind=fa3,triton,flashinfer", ["triton", "flashinfer"]),
        ("flash=on,off", ["on", "off"]),
    ],
)
def test_what_is_tried_alone(text: str, first: list[str]) -> None:
    (knob,) = parsed(text).knobs
    assert [knob.levels[i] for i in knob.probes] == first


def test_settings_are_arms_and_arms_are_settings() -> None:
    space = parsed("mem=0.83..0.86", "slots=16..64", "kind=fa3,triton")
    for point in space.points(range(3)):
        arm = space.arm(point, 3)
        assert space.point(arm) == point
        assert (not arm.knobs) == (point == space.base)
    assert space.size == 4 * 4 * 2
    assert space.arm((0, space.base[1], 1), 3) == Arm(3, (("--mem", "0.83"), ("--kind", "triton")))
    assert space.point(Arm(3, (("--adaptive", ""),))) is None
    assert space.point(Arm(3, (("--mem", "0.5"),))) is None


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("mem",), "a range is missing"),
        (("mem=",), "a range is missing"),
        (("depth=1..2",), "no knob 'depth'"),
        (("mem=0.9..0.8",), "backwards"),
        (("mem=0.8..2",), "not between 0 and 1"),
        (("mem=80%",), "not a number"),
        (("slots=1.5",), "not a whole number"),
        (("slots=1_0",), "not a whole number"),
        (("mem=0.8..0.9:0",), "a step of 0"),
        (("mem=0.8..0.9:0.0000001",), "up to 6 decimal places"),
        (("mem=0.8:0.1",), "a step belongs to a range"),
        (("slots=0..8",), "at least 1, not 0"),
        (("kind=fa3..triton",), "names, which have no range"),
        (("slots=1..9:0",), "a step of 0"),
        (("mem=0.000001..0.9:0.000001",), "more than 64"),
        (("mem=0.85",), "nothing to try"),
        (("kind=a b",), "does not take"),
        (("flash=maybe",), "does not take 'maybe'"),
        (("mem=0.8,0.9", "mem=0.7"), "given twice"),
    ],
)
def test_what_is_no_range_is_one_error(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parsed(*texts)


def test_the_example_is_of_the_knob_that_was_asked_for() -> None:
    with pytest.raises(UsageError) as caught:
        parsed("slots=many")
    assert str(caught.value.next_step).startswith("--knob slots=8..64")
    tree = {"topk": KnobSpec(name="topk", flag="--topk", kind=KnobKind.WHOLE, step=1, least=1)}
    with pytest.raises(UsageError) as caught:
        parse_knobs(("topk=0..4",), tree, "sglang")
    assert caught.value.next_step == "--knob topk=1..4, or =1,2"
