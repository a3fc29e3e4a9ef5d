"""The view of a load as it goes."""

from __future__ import annotations

import dataclasses
import io
import time

import pytest
from rich.console import Console
from tests.load.records import record, stream

from draftmark.cli import load_progress
from draftmark.cli.load_progress import LoadView


def console(*, terminal: bool, environ: dict[str, str] | None = None) -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    return Console(file=shown, force_terminal=terminal, width=140, _environ=environ or {}), shown


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_progress, "EVERY_S", 0.02)
    to, shown = console(terminal=False)
    with LoadView(to, "copy@4", total=20, slots=4) as view:
        view.record(record(0.0, stream(3, ttft=0.12, interval=0.1)))
        view.record(record(0.0, [], error="reset"))
        view.record(dataclasses.replace(record(0.0, [], error="cut")))
        view.show(2, 20, 812.4, 1)
        end = time.monotonic() + 10
        while "done" not in shown.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    line = shown.getvalue().splitlines()[0]
    assert line.startswith("  copy@4: 2 of 20 done, 4 under way, 812 tok/s, TTFT p50 120 ms, 1 reset, ")
    assert line.endswith("s left")
    assert "\x1b" not in shown.getvalue()


def test_under_way_in_an_open_loop_is_what_is_due_and_not_done() -> None:
    to, _ = console(terminal=False)
    view = LoadView(to, "copy", total=4, slots=0, send_at_s=(0.0, 0.0, 0.0, 1000.0))
    view.show(1, 4, None, 0)
    assert view.note().startswith("2 under way")
    assert view.note().endswith("17 min left")
    limited = LoadView(to, "copy", total=4, slots=0, send_at_s=(0.0, 1000.0), max_seconds=30.0)
    assert limited.note().endswith("30 s left")


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": "1"}])
def test_a_bar_on_a_terminal(environ: dict[str, str]) -> None:
    to, shown = console(terminal=True, environ={"TERM": "xterm-256color", **environ})
    with LoadView(to, "copy@4", total=20, slots=4) as view:
        view.show(5, 20, 812.4, 0)
        view.record(record(0.0, [], error="http-500"))
        view._bars.refresh()
    assert "5/20" in shown.getvalue()
    assert "1 http-500" in shown.getvalue()
    assert ("\x1b[38;" in shown.getvalue() or "\x1b[9" in shown.getvalue()) is (environ == {})
