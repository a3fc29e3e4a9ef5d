"""A verdict as Markdown: complete, and inert wherever it is pasted."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.model import Evidence
from draftmark.postmortem.model import Moment, Verdict
from draftmark.report.why_markdown import MOST_MOMENTS, fenced, render_markdown, text
from draftmark.report.why_safe import safe
from draftmark.testing import verdicts

HOSTILE = (
    "</details><script>alert(1)</script> ````` @all #12 GH-3 o/r#4 www.x.org https://x.org | a\n## x <!-- \x1b[2J"
)


def without_code(markdown: str) -> str:
    """What a renderer takes for prose: fenced blocks and code spans removed."""
    lines, fence = [], ""
    for line in markdown.splitlines():
        mark = re.match(r"\s*(`{3,})", line)
        if fence:
            fence = "" if mark and mark[1] == fence and line.strip() == fence else fence
        elif mark:
            fence = mark[1]
        else:
            lines.append(line)
    assert not fence, "a fence is left open"
    return re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", "\n".join(lines))


def sections(markdown: str) -> list[str]:
    return [line[4:] for line in markdown.splitlines() if line.startswith("### ")]


def test_everything_of_a_settled_case_is_there_in_order() -> None:
    markdown = render_markdown(verdicts.stop_timeout())
    assert markdown.startswith("## Post-mortem of `llm.service`: `stop-timeout-sigkill`\n\nsystemd killed")
    assert sections(markdown) == ["Evidence", "Ruled out", "What followed", "Advice"]
    assert "| Confidence | certain |" in markdown
    assert "| Engine | SGLang 0.5.12 |" in markdown
    assert (
        "journal of llm.service:2: 2026-06-02T03:11:46+0000 gpu-node-07 systemd[1]: llm.service: State" in markdown
    )
    assert markdown.count("<details>") == markdown.count("</details>") == 1


def test_an_unsettled_case_has_the_commands_in_blocks_of_their_own() -> None:
    markdown = render_markdown(verdicts.unsettled())
    assert sections(markdown)[0] == "Evidence"
    assert {"What would settle it", "Not examined"} <= set(sections(markdown))
    assert "  ```text\n  sudo journalctl -k -o short-iso --since '2026-06-02 03:00'\n  ```" in markdown


def test_foreign_text_is_inert() -> None:
    markdown = render_markdown(verdicts.everywhere(HOSTILE))
    prose = html.unescape(without_code(markdown))
    assert re.findall(r"(?<!\\)<[^>]*>", prose) == ["<details>", "<summary>", "</summary>", "</details>"]
    assert not re.search(r"@\w|#\d|GH-\d|https?:|www\.", prose)
    assert "\x1b" not in markdown
    assert [line for line in markdown.splitlines() if line.startswith("## ")] == markdown.splitlines()[:1]


@given(st.text(max_size=120))
def test_whatever_a_line_says_the_ticket_stays_in_order(said: str) -> None:
    markdown = render_markdown(safe(verdicts.everywhere(said)))
    prose = without_code(markdown)
    assert re.findall(r"(?<!\\)<[^>]*>", prose) == ["<details>", "<summary>", "</summary>", "</details>"]
    titles = [line for line in prose.splitlines() if line.startswith("#")]
    assert len(titles) == 7


def test_every_row_of_a_table_has_its_columns() -> None:
    for verdict in (verdicts.everywhere(HOSTILE), verdicts.stop_timeout()):
        rows = [line for line in render_markdown(verdict).splitlines() if line.startswith("| ") and line != "| | |"]
        cells = [len(re.split(r"(?<!\\)\|", row)) - 2 for row in rows]
        assert set(cells) == {2, 4}


@pytest.mark.parametrize("inside", ["plain", "```", "``````", "a ` b", "~~~"])
def test_a_fence_is_longer_than_what_it_holds(inside: str) -> None:
    block = fenced([inside, "second"]).splitlines()
    assert block[1:-1] == [inside, "second"]
    assert len(block[-1]) >= 3
    assert block[-1] not in inside


def test_prose_keeps_its_words() -> None:
    assert text("TimeoutStopSec=90s, 16 requests") == "TimeoutStopSec=90s, 16 requests"


def test_a_long_story_is_cut_and_says_so() -> None:
    proof = Evidence(file="x", line=1, time=None, text="y" * 5000)
    long = replace(
        verdicts.stop_timeout(), evidence=(proof,), timeline=(Moment("state", "s", proof),) * (MOST_MOMENTS + 7)
    )
    markdown = render_markdown(long)
    assert "… and 7 more" in markdown
    assert "y" * 1001 not in markdown


def test_a_bare_verdict() -> None:
    bare: Verdict = replace(
        verdicts.stop_timeout(), evidence=(), ruled_out=(), consequences=(), advice=(), timeline=(), service=None,
        engine=None, phase=None, examined=(), died=None,
    )  # fmt: skip
    assert sections(render_markdown(bare)) == []
