"""The card: everything that matters on one screen, and what does not fit is counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.model import Evidence
from draftmark.postmortem.model import Confidence, Phase, Verdict
from draftmark.report.why_card import MOST_LINES, card, print_card
from draftmark.testing import verdicts

HOSTILE = "\x1b[2J[red]\u202eevil[/red]\n\x07second"


def shown(screen: Any, verdict: Verdict, width: int = 80, **options: Any) -> Any:
    made = screen(width, **options)
    print_card(verdict, made.console)
    return made


def test_a_stop_that_took_too_long_reads_like_the_story(screen: Any) -> None:
    seen = shown(screen, verdicts.stop_timeout(), 100)
    assert seen.lines[0] == "stop-timeout-sigkill  certain, while shutting down"
    assert seen.lines[1].startswith("llm.service · SGLang 0.5.12 · 2026-06-02T03:11:46+0000")
    assert "while 16 requests were still being answered" in seen.flat
    assert "journal of llm.service:2 03:11:46 gpu-node-07 systemd[1]: llm.service: State" in seen.flat
    titles = [line for line in seen.lines if line in ("Evidence", "Ruled out", "What followed", "Advice")]
    assert titles == ["Evidence", "Ruled out", "What followed", "Advice"]
    assert "host-ram-oom-kernel" in seen.text
    assert "Not examined" not in seen.text


def test_unsettled_says_what_would_settle_it_each_command_once(screen: Any) -> None:
    seen = shown(screen, verdicts.unsettled())
    assert seen.lines[0].startswith("unsettled  while shutting down, nothing that was read proves a cause")
    assert "What would settle it" in seen.lines
    for item in verdicts.unsettled().not_examined:
        assert seen.lines.count(f"      {item.command}") == 1
    assert "unit journal" in seen.text


def test_a_command_only_of_an_unread_source_is_shown_there(screen: Any) -> None:
    verdict = replace(verdicts.unsettled(), candidates=())
    lines = shown(screen, verdict).lines
    for item in verdict.not_examined:
        assert f"      {item.command}" in lines


@pytest.mark.no_cover
@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("many", [1, 3, 9, 60, 1000])
def test_never_longer_than_a_screen_and_every_omission_is_counted(screen: Any, width: int, many: int) -> None:
    made = screen(width)
    rows = [row.plain for row in card(verdicts.crowded(many), made.console)]
    usable = min(width, 120)
    assert sum(max(1, -(-len(row) // usable)) for row in rows) <= MOST_LINES
    for title, entries in (
        ("Evidence", "llm.service:"),
        ("What followed", "llm.service:"),
        ("Ruled out", "cause-"),
    ):
        at = rows.index(title)
        section = rows[at + 1 : rows.index("", at)] if "" in rows[at:] else rows[at + 1 :]
        counted = [
            int(found[1]) for row in section if (found := re.search(r"… (?:and )?(\d+) (?:more|in all)", row))
        ]
        assert sum(entries in row for row in section) + sum(counted) == many


def test_the_telling_part_of_a_long_line_stays(screen: Any) -> None:
    noise = "lorem ipsum dolor sit amet " * 30
    for said in (
        "torch.OutOfMemoryError: CUDA out of memory",
        "Memory cgroup out of memory: Killed process 4242 (python3)",
        "State 'stop-sigterm' timed out. Killing.",
        "NVRM: Xid (PCI:0000:dc:00): 79",
    ):
        proof = Evidence(file="x.log", line=3, time=None, text=f"{noise}{said} {noise}")
        verdict = replace(verdicts.stop_timeout(), evidence=(proof,), summary="It died.")
        assert "".join(said.split()) in "".join(shown(screen, verdict, 80).text.split()), said


def test_what_the_summary_quotes_stays(screen: Any) -> None:
    proof = Evidence(file="x.log", line=3, time=None, text="a, " * 200 + "wanted 17408 of " + "b, " * 200)
    verdict = replace(verdicts.stop_timeout(), evidence=(proof,) * 3, summary="It asked for 17408 tokens.")
    evidence = [line for line in shown(screen, verdict, 80).lines if "x.log:3" in line]
    assert "17408" in evidence[2]


def test_several_days_are_told_apart(screen: Any) -> None:
    proofs = tuple(
        Evidence(file="x", line=n, time=f"2026-06-0{n} 03:00:00", text=f"2026-06-0{n} 03:00:00 died")
        for n in (1, 2)
    )
    seen = shown(screen, replace(verdicts.stop_timeout(), evidence=proofs), 100)
    assert "x:1  2026-06-01 03:00:00  died" in seen.text
    assert "x:2  2026-06-02 03:00:00  died" in seen.text


def test_a_first_failure_elsewhere_and_a_living_service_are_said(screen: Any) -> None:
    verdict = replace(verdicts.stop_timeout(), root_elsewhere="the log of rank 3 on node2", died=False)
    flat = shown(screen, verdict).flat
    assert "The first failure is elsewhere: the log of rank 3 on node2" in flat
    assert "the service still runs" in flat


def test_a_bare_verdict_is_a_card_too(screen: Any) -> None:
    verdict = Verdict(cause="healthy-running", confidence=Confidence.LIKELY, summary="Nothing died.", phase=None)
    assert shown(screen, verdict).lines == ["healthy-running  likely", "", "Nothing died."]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_foreign_text_drives_no_terminal_and_is_no_markup(screen: Any, encoding: str) -> None:
    seen = shown(screen, verdicts.everywhere(HOSTILE), encoding=encoding)
    assert "\x1b" not in seen.text
    assert "\x07" not in seen.text
    assert "\u202e" not in seen.text
    assert "[red]" in seen.text


def test_no_color_is_respected_and_colours_are_only_on_a_terminal(screen: Any) -> None:
    assert "\x1b[3" not in shown(screen, verdicts.stop_timeout(), terminal=True).text
    assert "\x1b" not in shown(screen, verdicts.stop_timeout()).text


TEXT = st.text(st.characters(codec="utf-8"), max_size=200) | st.sampled_from(
    ["x" * 900, "日本語 " * 100, "", "\n\n"]
)


@given(text=TEXT, width=st.integers(20, 200), phase=st.none() | st.sampled_from(Phase))
def test_any_text_gives_a_card_that_fits(text: str, width: int, phase: Phase | None) -> None:
    from rich.cells import cell_len
    from rich.console import Console

    verdict = replace(verdicts.everywhere(text), phase=phase)
    usable = max(60, min(width, 120))
    rows = [row.plain for row in card(verdict, Console(width=width))]
    assert sum(max(1, -(-cell_len(row) // usable)) for row in rows) <= MOST_LINES
    commands = [row for row in rows if row.startswith("      ")]
    assert all(cell_len(row) <= usable for row in rows if row not in commands)


@pytest.mark.parametrize("make", [verdicts.stop_timeout, verdicts.unsettled])
def test_the_same_verdict_gives_the_same_card(screen: Any, make: Callable[[], Verdict]) -> None:
    assert shown(screen, make()).text == shown(screen, make()).text
