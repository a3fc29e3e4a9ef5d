"""Time spans, as systemd writes them."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.service.systemd.timespan import seconds, seconds_of_property, span


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1min 30s", 90),
        ("1min30s", 90),
        ("2h", 7200),
        ("100ms", 0.1),
        ("5us", 5e-6),
        ("1.5h", 5400),
        ("3 minutes 2 sec", 182),
        ("1w 2d", 777600),
        ("1M", 2629800),
        ("1y", 31557600),
        ("infinity", math.inf),
        ("18446744073709551615", math.inf),
        (" 90 ", 90),
        ("0", 0),
    ],
)
def test_a_span_in_seconds(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


def test_a_bare_number_of_a_property_is_microseconds() -> None:
    assert seconds_of_property("90000000") == 90
    assert seconds_of_property("1min 30s") == 90


@pytest.mark.parametrize("text", ["", "[not set]", "soon", "5 parsecs", "1min x", "-5", "5s infinity", "٣s"])
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        seconds(text)


@given(st.text(max_size=20))
def test_no_text_breaks_it(text: str) -> None:
    with suppress(ValueError):
        assert seconds(text) >= 0


@given(st.integers(0, 10**6))
def test_what_is_written_is_read_back(whole: int) -> None:
    assert seconds(span(float(whole))) == whole


def test_a_part_of_a_second_is_rounded_up() -> None:
    assert span(0.2) == "1s"
    assert span(math.inf) == "infinity"
