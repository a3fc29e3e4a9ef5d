"""Numbers and foreign text, fit to read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.report import figures


@pytest.mark.parametrize(
    "show",
    [figures.rate, figures.ratio, figures.length, figures.millis, figures.seconds, figures.count, figures.percent,
     figures.duration],
)  # fmt: skip
def test_unknown_is_a_dash_and_zero_is_not(show: Callable[[float | None], str]) -> None:
    assert show(None) == figures.UNKNOWN
    assert show(0.0) != figures.UNKNOWN
    assert "0" in show(0.0)


@given(st.floats(min_value=1e-9, max_value=1e7))
def test_a_rate_above_zero_never_reads_as_zero(tok_s: float) -> None:
    assert float(figures.rate(tok_s).replace(",", "")) > 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.354, "0.35"), (44.06, "44.1"), (999.94, "999.9"), (1234.4, "1,234"), (12345.6, "12,346")],
)
def test_rates_keep_about_three_figures(value: float, shown: str) -> None:
    assert figures.rate(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(8.0, "8 s"), (8.44, "8.4 s"), (59.99, "1 min 00 s"), (210.0, "3 min 30 s"), (3599.7, "1 h 00 min"),
     (7260, "2 h 01 min")],
)  # fmt: skip
def test_durations_for_people(value: float, shown: str) -> None:
    assert figures.duration(value) == shown


def test_half_an_interval_is_no_interval() -> None:
    assert figures.span(None, 1.2) == figures.UNKNOWN
    assert figures.span(1.1, 1.2) == "1.10\u20131.20"


def test_a_bound_is_never_rounded_onto_one() -> None:
    """0.92 to 0.998 excludes 1 and must not read as if it contained it."""
    assert figures.span(0.92, 0.998) == "0.92\u20130.998"
    assert figures.span(1.0004, 1.05) == "1.0004\u20131.05"
    assert figures.span(1.0, 1.0) == "1.00\u20131.00"


@given(st.text())
def test_visible_text_has_no_control_characters(text: str) -> None:
    shown = figures.visible(text)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert not any(0xD800 <= ord(char) <= 0xDFFF or char in "\u2028\u2029\u202e\u2066" for char in shown)


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_visible_leaves_ordinary_text_alone(text: str) -> None:
    assert figures.visible(text) == text
