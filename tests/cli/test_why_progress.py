"""What a long post-mortem says while it reads."""

from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from draftmark.cli import why_progress
from draftmark.cli.why_progress import WhyProgress


def told(*, quiet_s: float, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(why_progress, "QUIET_S", quiet_s)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100, color_system=None)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: terminal))
    with WhyProgress(lambda: console) as progress:
        progress.awaits("what this host knows of unit:llm")
        progress.read("service.log", 1_500_000_000, 3_000_000_000)
        deadline = time.monotonic() + 5
        while quiet_s == 0 and terminal and "service.log" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        progress.read("[red]kernel.log", 2, None)
    return stream.getvalue()


def test_a_long_read_names_what_it_reads_and_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(quiet_s=0, terminal=True, monkeypatch=monkeypatch)
    assert "service.log" in said
    assert "1.5 GB of 3.0 GB" in said
    assert "[red]kernel.log" in said


def test_a_short_read_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(quiet_s=60, terminal=True, monkeypatch=monkeypatch) == ""


def test_nothing_is_said_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(quiet_s=0, terminal=False, monkeypatch=monkeypatch) == ""
