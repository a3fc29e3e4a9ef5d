"""The scan for many lines finds what the loop for few finds; floods and long lines hide nothing."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.cli.compose_why import tables
from draftmark.postmortem.events import read_events, standing_hints, unit_of
from draftmark.postmortem.hints import hints_in
from draftmark.postmortem.model import Line

from .small import line, lines

HINTS = ("Killed process", "out of memory", "memory", "é", "\\d", "a.b")
MANY = 500
words = st.text(alphabet="Killed process out of memory é\\da.b ", max_size=60) | st.sampled_from(HINTS)


def plain(texts: list[str]) -> list[set[str]]:
    return [{hint for hint in HINTS if hint in text} for text in texts]


@given(st.lists(words, max_size=20))
def test_few_lines(texts: list[str]) -> None:
    assert [set(found) for found in hints_in(texts, HINTS)] == plain(texts)


@given(st.lists(words, min_size=1, max_size=20))
def test_many_lines(texts: list[str]) -> None:
    """Enough of them that one pass over all is cheaper."""
    many = [*texts, *["nothing"] * MANY, *texts]
    assert [set(found) for found in hints_in(many, HINTS)] == plain(many)


def test_few_lines_that_are_long() -> None:
    texts = ["x" * 200_000 + "out of memory", "é"]
    assert [set(found) for found in hints_in(texts, HINTS)] == [{"out of memory", "memory"}, {"é"}]


def test_a_hint_that_would_go_over_the_end_of_a_line_is_not_found() -> None:
    texts = ["Killed", " process", *[""] * MANY]
    assert not any(hints_in(texts, HINTS))


def test_characters_that_cannot_be_encoded() -> None:
    texts = ["\udc80 out of memory", *["\udcff"] * MANY]
    assert set(hints_in(texts, HINTS)[0]) == {"out of memory", "memory"}


def test_without_the_scanner_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["out of memory", *["nothing"] * MANY]
    expected = [set(found) for found in hints_in(texts, HINTS)]
    monkeypatch.setitem(sys.modules, "hyperscan", None)
    assert [set(found) for found in hints_in(texts, HINTS)] == expected


def test_nothing_is_nothing() -> None:
    assert hints_in([], HINTS) == []
    assert hints_in(["a"], ()) == [[]]


def test_lines_without_a_hint_are_absent() -> None:
    rows = lines("nothing here", "CUDA out of memory")
    assert set(standing_hints(rows, tables())) == {id(rows[1])}


def test_hints_that_were_looked_for_are_not_looked_for_again() -> None:
    rows = lines("CUDA out of memory")
    assert read_events(rows, tables(), {}) == []
    assert [event.sign.id for event in read_events(rows, tables(), standing_hints(rows, tables()))] == ["cuda.oom"]


def test_a_failure_far_into_a_long_line_is_seen() -> None:
    """A dump of thousands of characters with the error at its end."""
    row = line("{" + "'prompt_token_ids': [1, 2, 3], " * 200 + "} torch.OutOfMemoryError: CUDA out of memory")
    assert "cuda.oom" in {event.sign.id for event in read_events([row], tables())}


def test_of_a_flood_the_first_and_the_last_are_kept() -> None:
    rows = [line("OSError: [Errno 24] Too many open files", number) for number in range(1, 2001)]
    events = read_events(rows, tables())
    assert 0 < len(events) < len(rows)
    assert (events[0].line.number, events[-1].line.number) == (1, 2000)
    assert [event.order for event in events] == sorted(event.order for event in events)


def test_a_flood_of_one_kind_takes_nothing_from_another() -> None:
    rows = [line("OSError: [Errno 24] Too many open files", n) for n in range(1, 2001)]
    rows.insert(1000, line("torch.OutOfMemoryError: CUDA out of memory"))
    assert "cuda.oom" in {event.sign.id for event in read_events(rows, tables())}


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("llm.service: Main process exited, code=killed, status=9/KILL", "llm.service"),
        ("Started llm.service - LLM server.", "llm.service"),
        ("Stopping llm@2.service - LLM server...", "llm@2.service"),
        ("Dependency failed for llm.service - LLM server.", "llm.service"),
        ("llm.service stop-sigterm timed out. Killing.", "llm.service"),
        ("Unit llm.service entered failed state.", "llm.service"),
        ("Started LLM server.", ""),
        ("Reached target multi-user.target - Multi-User System.", ""),
        ("listening on 0.0.0.0: llm.service is up", ""),
    ],
)
def test_which_unit_a_line_of_systemds_is_about(text: str, unit: str) -> None:
    assert unit_of(line(text, ident="systemd")) == unit


def test_a_field_names_the_unit_better_than_the_text() -> None:
    assert unit_of(line("Started other.service - B.", unit="llm.service")) == "llm.service"
    assert unit_of(line("Started other.service - B.", unit="init.scope")) == "other.service"


@given(
    st.lists(st.builds(line, st.text(max_size=80), ident=st.sampled_from(["", "systemd", "kernel"])), max_size=20)
)
def test_no_text_breaks_it(rows: list[Line]) -> None:
    assert all(rows[event.order] is event.line for event in read_events(rows, tables()))
