"""Log lines made short."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from draftmark.report.why_lines import fitted, said_in, without_stamp


@pytest.mark.parametrize(
    ("text", "stamp", "date", "clock", "rest"),
    [
        (
            "[2026-06-02 03:10:16] SIGTERM received",
            "2026-06-02 03:10:16",
            "2026-06-02",
            "03:10:16",
            "SIGTERM received",
        ),
        ("[2026-06-02 03:10:16 TP0] hit", "2026-06-02 03:10:16", "2026-06-02", "03:10:16", "[TP0] hit"),
        ("Jun  2 03:10:16 gpu kernel: x", "Jun  2 03:10:16", "Jun  2", "03:10:16", "gpu kernel: x"),
        ("INFO 10-06 18:53:00 [a.py:2] y", "10-06 18:53:00", "10-06", "18:53:00", "INFO [a.py:2] y"),
        ("[ 1234.567890] oom-kill", "1234.567890", "", "1234.567890", "oom-kill"),
        ("says 03:10:16 far in", None, "", "", "says 03:10:16 far in"),
        ("x" * 90 + " 03:10:16", "03:10:16", "", "03:10:16", "x" * 90 + " 03:10:16"),
    ],
)
def test_the_time_is_said_once(text: str, stamp: str | None, date: str, clock: str, rest: str) -> None:
    taken = without_stamp(text, stamp)
    assert (taken.date, taken.clock, taken.text) == (date, clock, rest)


@pytest.mark.parametrize("room", [30, 50, 90])
@pytest.mark.parametrize("at", [0, 100, 400])
def test_what_kills_stays_in_view(room: int, at: int) -> None:
    text = ("calm words " * 60)[:at] + " Killed process 4242 " + "more words " * 60
    cut = fitted(text, room)
    assert "Killed process 4242" in cut
    assert cell_len(cut) <= room


def test_the_stronger_word_wins_over_the_nearer_one() -> None:
    text = "error " + "a " * 100 + "CUDA out of memory " + "b " * 100
    assert "out of memory" in fitted(text, 40)


def test_a_short_line_stays_and_one_that_tells_nothing_keeps_its_ends() -> None:
    assert fitted("short", 40) == "short"
    assert fitted("begin " + "a b c " * 40 + "end", 20) == "begin a… c a b c end"


def test_what_the_tables_take_for_the_proof_wins() -> None:
    text = "CUDA out of memory " + "a " * 100 + "the proof " + "b " * 100
    cut = fitted(text, 40, marker=lambda said: (said.index("the proof"), said.index("the proof") + 9))
    assert "the proof" in cut


def test_long_paths_give_way_first() -> None:
    cut = fitted(
        "Killed /user.slice/user-1001.slice/user@1001.service/app.slice/x.service due to memory pressure", 80
    )
    assert cut.startswith("Killed /user.slice/us")
    assert cut.endswith("due to memory pressure")


def test_figures_and_quotes_of_the_summary_count() -> None:
    quoted = said_in("It wanted 17408 of 'max-tokens' in 5 s")
    assert set(quoted) == {"17408", "max-tokens"}
    assert "17408" in fitted("a, " * 100 + "17408" + " b," * 100, 30, quoted=quoted)


@given(st.text(max_size=300), st.integers(10, 120))
@example("0000\x1f\x1f000⺀🌀", 10)
@example("e\u0301" * 30 + "⺀" * 30, 20)
def test_it_always_fits(text: str, room: int) -> None:
    assert cell_len(fitted(text, room)) <= room


@given(st.text(max_size=200), st.none() | st.text(max_size=30))
def test_any_stamp_is_survived(text: str, stamp: str | None) -> None:
    without_stamp(text, stamp)
