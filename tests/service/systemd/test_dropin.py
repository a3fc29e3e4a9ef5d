"""The text of a drop-in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.service.systemd.dropin import parse_header, render
from draftmark.service.systemd.unitfile import Unit, UnitFile

HEADER = ("Written by draftmark 0.1 on 2026-11-29.", "Undo: draftmark restore llm.service", "", "two\nlines")


def test_it_takes_the_place_of_the_command() -> None:
    text = render(exec_start="/x --depth 5", settings={"TimeoutStopSec": "300"}, header=HEADER)
    assert text.endswith("\n\n[Service]\nExecStart=\nExecStart=/x --depth 5\nTimeoutStopSec=300\n")
    assert parse_header(text) == (*HEADER[:3], "two", "lines")


def test_without_a_command_the_units_own_stays() -> None:
    text = render(exec_start=None, settings={"KillMode": "mixed"}, header=())
    assert text == "[Service]\nKillMode=mixed\n"
    assert parse_header(text) == ()


@pytest.mark.parametrize("value", ["a\nb", "a\\", "a\0", "a\r"])
def test_a_value_must_end_with_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="not one line"):
        render(exec_start=value, settings={}, header=())


@given(st.lists(st.text(max_size=20)))
def test_no_header_becomes_a_setting(header: list[str]) -> None:
    text = render(exec_start=None, settings={}, header=header)
    assert Unit.parse([UnitFile("/x", text)]).assignments == ()
