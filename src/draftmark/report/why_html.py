"""A verdict as one HTML file that opens anywhere, loads nothing, and can be forwarded with a ticket."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from string import Template

from draftmark.model import Evidence
from draftmark.postmortem.model import Confidence, Moment, Verdict
from draftmark.report import why_words as words
from draftmark.report.figures import visible
from draftmark.report.tags import Markup, Node, escape, tag
from draftmark.report.why_lines import Marker, no_marker
from draftmark.report.why_timeline import chart

MOST_MOMENTS = 500
"""Entries of the timeline's list: a page must open at once."""


def render_html(verdict: Verdict, marker: Marker = no_marker) -> str:
    """A whole page. The same verdict gives the same bytes.

    Args:
        verdict: It has gone through `why_safe.safe` before.
        marker: Tells where in a line the proof is, to be marked.
    """
    name = f" of {verdict.service}" if verdict.service else ""
    page = Template(_packaged("why.html"))
    return page.substitute(
        policy=escape(_policy()),
        title=escape(visible(f"Post-mortem{name}: {verdict.cause}")),
        base=_packaged("report.css"),
        css=_packaged("why.css"),
        body=tag("div", *_sections(verdict, marker), class_="why"),
        js=_packaged("why.js"),
    )


@cache
def _policy() -> str:
    """Nothing is loaded, and no script runs but the page's own, whatever a log line says."""
    digest = base64.b64encode(hashlib.sha256(_packaged("why.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _packaged(path: str) -> str:
    return resources.files("draftmark.report").joinpath(path).read_text(encoding="utf-8")


def _sections(verdict: Verdict, marker: Marker) -> Iterable[Markup | None]:
    settle = [(item.cause, item.because, item.command) for item in verdict.candidates]
    unread = [(item.source, item.because, item.command) for item in verdict.not_examined]
    return (
        _header(verdict),
        _facts(verdict),
        _named(words.SETTLE, settle),
        _proofs(words.EVIDENCE, verdict.evidence, marker),
        _timeline(verdict.timeline),
        _ruled_out(verdict),
        _followed(verdict),
        _named(words.NOT_EXAMINED, unread),
        _plain(words.ADVICE, verdict.advice),
        _plain(words.EXAMINED, verdict.examined),
    )


def _header(verdict: Verdict) -> Markup:
    tone = {Confidence.CERTAIN: "good", Confidence.LIKELY: "good"}.get(verdict.confidence, "neutral")
    root = words.root(verdict)
    return tag(
        "header",
        tag(
            "p",
            tag("span", "Post-mortem", class_="doc-title"),
            tag("span", words.sureness(verdict), class_=f"chip {tone}"),
            class_="eyebrow",
        ),
        tag("p", visible(verdict.cause), class_="named"),
        tag("h1", visible(verdict.summary), id="verdict"),
        tag("p", visible(root), class_="note root") if root else None,
    )


def _facts(verdict: Verdict) -> Markup | None:
    facts = [
        ("Service", verdict.service),
        ("Engine", words.engine(verdict)),
        ("Time, as logged", words.when(verdict)),
        ("State", words.state(verdict)),
        (words.EXAMINED, words.sources(verdict) if verdict.examined else None),
    ]
    known = [tag("div", tag("dt", term), tag("dd", visible(fact))) for term, fact in facts if fact]
    return tag("dl", *known, class_="facts", aria_label="Facts") if known else None


def _section(title: str, *content: Node) -> Markup:
    return tag("section", tag("h2", title), *content)


def _proofs(title: str, evidence: Iterable[Evidence], marker: Marker) -> Markup | None:
    entries = [tag("li", _where(item), _said(item, marker), class_="decisive") for item in evidence]
    return _section(title, tag("ul", *entries, class_="proofs")) if entries else None


def _where(item: Evidence, *before: Node) -> Markup:
    time = tag("span", visible(item.time)) if item.time else None
    return tag("p", *before, tag("b", visible(words.place(item))), time, class_="where")


def _said(item: Evidence, marker: Marker = no_marker) -> Markup:
    start, end = marker(item.text) or (0, 0)
    marked = tag("mark", visible(item.text[start:end])) if start < end else None
    return tag("code", visible(item.text[:start]), marked, visible(item.text[end:]), class_="said")


def _named(title: str, entries: Iterable[tuple[str, str, str]]) -> Markup | None:
    parts = []
    for name, because, command in entries:
        parts += [tag("dt", visible(name)), tag("dd", visible(because), _command(command))]
    return _section(title, tag("dl", *parts, class_="names")) if parts else None


def _command(command: str) -> Markup | None:
    if not command.strip():
        return None
    return tag("pre", "\n".join(visible(line) for line in command.splitlines()), class_="command")


def _ruled_out(verdict: Verdict) -> Markup | None:
    parts = []
    for item in verdict.ruled_out:
        lines = [tag("li", _where(proof), _said(proof)) for proof in item.evidence]
        shown = tag("ul", *lines, class_="proofs") if lines else None
        parts += [tag("dt", visible(item.cause)), tag("dd", visible(item.because), shown)]
    return _section(words.RULED_OUT, tag("dl", *parts, class_="names")) if parts else None


def _followed(verdict: Verdict) -> Markup | None:
    entries = [
        tag("li", tag("p", visible(item.what), class_="what"), _where(item.evidence), _said(item.evidence))
        for item in verdict.consequences
    ]
    return _section(words.FOLLOWED, tag("ol", *entries, class_="proofs")) if entries else None


def _plain(title: str, entries: Iterable[str]) -> Markup | None:
    items = [tag("li", visible(entry)) for entry in entries]
    return _section(title, tag("ul", *items, class_="plain")) if items else None


def _timeline(moments: tuple[Moment, ...]) -> Markup | None:
    if not moments:
        return None
    entries = [
        tag(
            "li",
            _where(moment.evidence, _role(moment)),
            tag("p", visible(moment.what), class_="what"),
            _said(moment.evidence),
            id=f"m{number}",
            class_="decisive" if moment.role == "cause" else None,
        )
        for number, moment in enumerate(moments[:MOST_MOMENTS])
    ]
    more = len(moments) - MOST_MOMENTS
    return _section(
        "Timeline",
        chart(moments[:MOST_MOMENTS]),
        tag(
            "details",
            tag("summary", "Every line in order"),
            tag("ol", *entries, class_="proofs"),
            tag("p", f"… and {more} more", class_="sub") if more > 0 else None,
            open=True,
        ),
    )


def _role(moment: Moment) -> Markup:
    kind = moment.role if moment.role in words.ROLE else "state"
    return tag("span", words.ROLE[kind], class_=f"role {kind}")
