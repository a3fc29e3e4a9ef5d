"""What a first set-up looks like."""

from __future__ import annotations

import io

from rich.console import Console

from draftmark.embedded.progress import Progress, RichProgress


def play(progress: Progress) -> None:
    progress.step("fetching [engine] 1.0", 2_000_000)
    progress.advance(1_000_000)
    progress.done("engine 1.0: 2 MB in 0.1 s")


def test_without_a_terminal_it_is_plain_lines() -> None:
    out = io.StringIO()
    with RichProgress(Console(file=out, width=200)) as progress:
        play(progress)
    assert out.getvalue() == "  fetching [engine] 1.0 …\n  engine 1.0: 2 MB in 0.1 s\n"


def test_on_a_terminal_there_is_a_bar_with_figures() -> None:
    out = io.StringIO()
    with RichProgress(Console(file=out, width=120, force_terminal=True, color_system=None)) as progress:
        progress.step("fetching [engine] 1.0", 2_000_000)
        progress.advance(1_000_000)
        progress._bars.refresh()
        shown = out.getvalue()
        progress.done("engine 1.0: 2 MB in 0.1 s")
    assert "fetching [engine] 1.0" in shown
    assert "1.0/2.0 MB" in shown
    assert "0:00:0" in shown
    assert "engine 1.0: 2 MB in 0.1 s" in out.getvalue()


def test_nothing_is_shown_when_there_is_nothing_to_do() -> None:
    for terminal in (False, True):
        out = io.StringIO()
        with RichProgress(Console(file=out, width=120, force_terminal=terminal)):
            pass
        assert out.getvalue() == ""
