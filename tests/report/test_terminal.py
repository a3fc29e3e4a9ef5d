"""A run on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len

from draftmark.errors import RefusedError, UnrestoredError
from draftmark.report.figures import span
from draftmark.report.terminal import print_error, print_result

Load = Callable[[str], dict[str, Any]]
Document = dict[str, Any]


def last_paragraph(text: str) -> str:
    return " ".join(text.rstrip().rsplit("\n\n", 1)[-1].split())


def test_the_verdict_is_the_last_thing_said(document: Document, screen: Any) -> None:
    printed = screen()
    print_result(document, printed.console, paths="report: runs/x/report.html")
    expected = document["verdict"] or "No verdict: nothing was measured yet."
    assert last_paragraph(printed.text) == expected
    assert "report: runs/x/report.html" in printed.lines


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(document: Document, screen: Any, width: int) -> None:
    printed = screen(width)
    print_result(document, printed.console)
    assert max(cell_len(line) for line in printed.lines) <= width


@pytest.mark.parametrize("width", [80, 200])
def test_every_measured_arm_has_its_rate_and_its_whole_interval_on_every_axis(
    document: Document, screen: Any, width: int
) -> None:
    printed = screen(width)
    print_result(document, printed.console)
    for arm in document["arms"]:
        assert arm["label"] in printed.text
        for figure in arm["axes"].values():
            assert f"{figure['tok_s']:.1f}" in printed.text
            if arm["arm"] != "off":
                said = f"{figure['ratio']:.2f}x ({span(figure['low'], figure['high'])})"
                assert said in printed.text


@pytest.mark.parametrize("width", [72, 80, 120])
def test_arms_that_differ_in_a_knob_are_told_apart(load: Load, screen: Any, width: int) -> None:
    document = load("eleven")
    for arm, share in zip(document["arms"][2:4], ("0.78", "0.8"), strict=True):
        arm["label"] = f"depth 3, mem-fraction-static={share}, max-running-requests=8"
    ratio = {"ratio": 1.25, "low": 1.2, "high": 1.31}
    document["knobs"] = [
        {"knob": "max-running-requests", "values": ["4", "8"], "runs": None, "chance": 0.93, "dropped": False,
         "most": "8", "latency": ratio, "throughput": None},
    ]  # fmt: skip
    printed = screen(width)
    print_result(document, printed.console)
    assert max(map(cell_len, printed.lines)) <= width
    table = printed.text.partition("not measured")[0]
    assert "mem-fraction-static=0.78," in table
    assert "mem-fraction-static=0.8," in table
    said = " ".join(printed.text.split())
    assert "max-running-requests 93% likely to matter; ran with the default of the engine; tried 4, 8" in said
    assert "8 moves most: 1.25x (1.20–1.31) for a single request" in said


def rows_of(printed: Any, label: str) -> list[str]:
    """The table's lines of that arm; an arm's row is indented, a sentence about it is not."""
    return [line for line in printed.lines if line.startswith(f"  {label} ")]


def test_marks_stand_at_the_choice_and_its_ties_and_nowhere_else(load: Load, screen: Any) -> None:
    printed = screen()
    document = load("eleven")
    print_result(document, printed.console)
    (axis,) = document["axes"]
    for arm in document["arms"]:
        if not arm["axes"]:
            continue
        (row,) = rows_of(printed, arm["label"])
        assert ("*" in row) == (arm["arm"] == axis["choice"])
        assert ("=" in row) == (arm["arm"] in axis["ties"] and arm["arm"] != axis["choice"])
    assert "* choice" in printed.text


def test_an_inconclusive_run_marks_no_choice(load: Load, screen: Any) -> None:
    printed = screen()
    print_result(load("inconclusive"), printed.console)
    assert "*" not in printed.text
    assert "Inconclusive" in printed.text
    assert "\n\n\n" not in printed.text


def test_arms_that_were_not_measured_are_named_with_their_reason(load: Load, screen: Any) -> None:
    printed = screen()
    print_result(load("eleven"), printed.console)
    assert "depth 1 refused: depth 1 drafts nothing" in printed.flat
    assert "depth 10 did not start: CUDA out of memory" in printed.flat
    assert "trials/06-d10/why.json" in printed.flat


def test_void_and_disturbed_trials_are_told(load: Load, screen: Any) -> None:
    printed = screen()
    print_result(load("inconclusive"), printed.console)
    assert "void: the server restarted during the measurement" in printed.flat
    assert "disturbed in part: copy@4: another process used" in printed.flat


def test_a_flood_of_void_trials_does_not_push_the_table_away(load: Load, screen: Any) -> None:
    document = load("normal")
    for trial in document["trials"]:
        trial |= {"status": "void", "because": "lag"}
    printed = screen()
    print_result(document, printed.console)
    assert printed.text.count("note:") == 5
    assert "9 more trials" in printed.text


def test_more_is_shown_where_there_is_room(load: Load, screen: Any) -> None:
    narrow, wide = screen(80), screen(120)
    print_result(load("eleven"), narrow.console)
    print_result(load("eleven"), wide.console)
    assert "TTFT" not in narrow.text
    assert "TTFT" in wide.text


def test_unknown_figures_are_dashes(load: Load, screen: Any) -> None:
    document = load("eleven")
    figure = document["arms"][2]["axes"]["chat@1"]
    figure |= dict.fromkeys(("ratio", "low", "high", "accept_len", "tokens_per_step", "ttft_ms_p50", "tpot_ms_p50"))
    printed = screen(120)
    print_result(document, printed.console)
    (row,) = rows_of(printed, "depth 2")
    assert row.split() == ["depth", "2", f"{figure['tok_s']:.1f}", *["\u2013"] * 5]


def test_an_incomplete_run_invents_no_figures(load: Load, screen: Any) -> None:
    printed = screen()
    print_result(load("unmeasured"), printed.console)
    assert "Incomplete run" in printed.text
    assert "tok/s" not in printed.text
    assert "downtime" not in printed.text
    assert printed.text.count("not reached") == 4


def test_no_colour_means_no_colour(document: Document, screen: Any) -> None:
    piped, terminal = screen(), screen(terminal=True)
    print_result(document, piped.console)
    print_result(document, terminal.console)
    assert "\x1b" not in piped.text
    colours = [f"\x1b[{code}m" for code in (*range(30, 38), *range(90, 98))]
    assert not any(colour in terminal.text for colour in colours)


def test_hostile_text_reaches_no_terminal(hostile: Document, screen: Any) -> None:
    printed = screen()
    print_result(hostile, printed.console)
    assert "\x1b" not in printed.text
    assert "\u202e" not in printed.text
    assert "[red]" in printed.text  # not taken for markup
    assert max(cell_len(line) for line in printed.lines) <= 80


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_poor_encoding_is_no_reason_to_fail(document: Document, screen: Any, encoding: str) -> None:
    document["warnings"] = ["\u65e5\u672c\u8a9e"]
    printed = screen(encoding=encoding)
    print_result(document, printed.console)
    assert "\\u65e5" in printed.text


def test_an_error_shows_what_the_lines_and_the_next_step(screen: Any) -> None:
    printed = screen()
    line = "E " + "x" * 120 + " \x1b[2J"
    print_error(
        RefusedError("it would lose requests", evidence=(line,), next_step="set [red]it[/red]"), printed.console
    )
    assert printed.lines[0] == "error: it would lose requests"
    assert printed.lines[1] == "  | E " + "x" * 120 + " \\x1b[2J"  # evidence is not cut or wrapped
    assert printed.lines[2] == "next: set [red]it[/red]"


def test_the_command_that_restores_is_left_whole(screen: Any) -> None:
    printed = screen(40)
    command = "systemctl revert sglang-qwen.service && systemctl restart sglang-qwen.service"
    print_error(UnrestoredError("the original did not come back", next_step=command), printed.console)
    assert f"  {command}" in printed.lines
