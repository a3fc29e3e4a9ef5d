"""The page as a document: complete, self-contained, escaped, the same every time."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.model import Evidence
from draftmark.postmortem.model import Moment, Verdict
from draftmark.report.why_html import MOST_MOMENTS, render_html
from draftmark.report.why_safe import safe
from draftmark.report.why_timeline import MOST_LANES, writer
from draftmark.testing import verdicts

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\"'&\x1b[2J\u202e $policy ${css}"
VOID = {"meta", "br"}


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.comments: list[str] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif "style" not in self.open:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.elements if name in (attrs.get("class") or "").split()]


@pytest.mark.parametrize("make", [verdicts.stop_timeout, verdicts.unsettled, lambda: verdicts.everywhere(HOSTILE)])
def test_a_whole_page_that_loads_nothing(make: object) -> None:
    assert callable(make)
    html = render_html(make())
    page = Page(html)
    assert (page.open, page.unbalanced, page.comments) == ([], [], [])
    assert not [tag for tag, attrs in page.elements if tag in ("img", "link", "iframe", "object") or "src" in attrs]
    assert all((attrs["href"] or "").startswith("#") for _, attrs in page.elements if "href" in attrs)
    assert "url(" not in html.replace("url(#hatch)", "")
    policy = next(attrs["content"] for _, attrs in page.elements if "http-equiv" in attrs)
    assert len(page.scripts) == 1
    digest = base64.b64encode(hashlib.sha256(page.scripts[0].encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert html == render_html(make())


def test_all_that_was_found_is_said() -> None:
    page = Page(render_html(verdicts.stop_timeout()))
    verdict = verdicts.stop_timeout()
    said = [verdict.summary, *(item.text for item in verdict.evidence), *verdict.advice, *verdict.examined]
    said += [item.because for item in verdict.ruled_out] + [item.what for item in verdict.consequences]
    for each in said:
        assert each in page.text


def test_the_proof_is_marked_and_the_line_stays_whole() -> None:
    def marker(text: str) -> tuple[int, int] | None:
        at = text.find("<b>")
        return (at, at + 3) if at >= 0 else None

    proof = Evidence(file="x", line=1, time=None, text="a & <b> c")
    html = render_html(replace(verdicts.stop_timeout(), evidence=(proof,)), marker)
    assert '<code class="said">a &amp; <mark>&lt;b&gt;</mark> c</code>' in html


def test_unsettled_leads_with_what_would_settle_it() -> None:
    text = Page(render_html(verdicts.unsettled())).text
    assert text.index("What would settle it") < text.index("Evidence")
    for item in verdicts.unsettled().not_examined:
        assert item.command in text


def test_every_dot_leads_to_its_line_and_has_a_name() -> None:
    page = Page(render_html(verdicts.stop_timeout()))
    ids = {attrs.get("id") for _, attrs in page.elements}
    dots = [attrs for attrs in page.of_class("dot") if "href" in attrs]
    assert len(dots) == len(verdicts.stop_timeout().timeline)
    for dot in dots:
        assert (dot["href"] or "")[1:] in ids
        assert dot["aria-label"]
    assert len([dot for dot in dots if "cause" in (dot["class"] or "").split()]) == 1


def at(hour: int, second: int, text: str, role: str = "consequence") -> Moment:
    time = f"2026-06-02 {hour:02d}:00:{second:02d}"
    return Moment(role, "it happened", Evidence(file="service.log", line=second, time=time, text=f"[{time} {text}"))


def test_ranks_have_their_own_lanes_and_no_more_than_fit() -> None:
    moments = tuple(at(3, n, f"TP{n}] died") for n in range(30))
    page = Page(render_html(replace(verdicts.stop_timeout(), timeline=moments)))
    lanes = [attrs for attrs in page.of_class("lane") if "axis" not in (attrs["class"] or "")]
    assert len(lanes) == MOST_LANES
    assert len([attrs for attrs in page.of_class("dot") if "href" in attrs]) == 30


def test_a_silence_is_marked_with_its_length() -> None:
    moments = (at(1, 0, "x] ready", "state"), at(5, 0, "x] died", "cause"), at(5, 3, "x] gone", "exit"))
    page = Page(render_html(replace(verdicts.stop_timeout(), timeline=moments)))
    assert "4 h 00 min" in page.text
    assert page.of_class("gap")


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("2026-06-02T03:10:16+0000 gpu systemd[1]: x.service: y", "systemd"),
        ("Jun  2 03:10:16 gpu kernel: oom-kill", "kernel"),
        ("Jun  2 03:10:16 gpu systemd-oomd[712]: Killed", "systemd-oomd"),
        ("[2026-06-02 03:10:16 DP1 TP3] hit", "DP1 TP3"),
        ("(EngineCore_DP0 pid=882) ERROR 10-06", "EngineCore_DP0"),
        ("[rank5]:[E602 03:10:16] Watchdog", "rank5"),
        ("just a line", "x.log"),
    ],
)
def test_who_wrote_a_line(text: str, who: str) -> None:
    assert writer(Moment("state", "", Evidence(file="x.log", line=1, time=None, text=text))) == who


def test_lines_without_a_time_are_in_the_list_alone() -> None:
    lost = Moment("support", "no clock", Evidence(file="x", line=1, time=None, text="no clock here"))
    verdict: Verdict = replace(verdicts.stop_timeout(), timeline=(*verdicts.stop_timeout().timeline, lost))
    text = Page(render_html(verdict)).text
    assert "1 without a time on this clock" in text
    assert "no clock here" in text
    assert Page(render_html(replace(verdict, timeline=(lost,)))).of_class("chart") == []


@given(st.text(max_size=120))
def test_whatever_a_line_says_the_page_stays_whole(text: str) -> None:
    page = Page(render_html(safe(verdicts.everywhere(text))))
    assert (page.open, page.unbalanced, page.comments, len(page.scripts)) == ([], [], [], 1)


def test_a_long_list_is_cut_and_says_so() -> None:
    moments = (at(3, 1, "TP0] x"),) * (MOST_MOMENTS + 5)
    html = render_html(replace(verdicts.stop_timeout(), timeline=moments))
    assert "… and 5 more" in html
    assert len(re.findall(r'<li id="m\d+"', html)) == MOST_MOMENTS
