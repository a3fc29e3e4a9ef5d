"""A load run as one HTML file: distributions, its course over time, and what every figure means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftmark.report import bench_words as words
from draftmark.report import figures
from draftmark.report.bench_html_level import level_sections
from draftmark.report.bench_plots import plot_data
from draftmark.report.fields import Document, mapping, mappings, number, plain, text, texts
from draftmark.report.figures import visible
from draftmark.report.html_head import NO_SCRIPT
from draftmark.report.html_tables import Column, section, table
from draftmark.report.page import page
from draftmark.report.tags import Markup, Node, join, tag


def render_bench(document: Mapping[str, Any], drawn: Sequence[Mapping[str, Any]]) -> str:
    """A whole page. The same content gives the same bytes.

    Args:
        document: `draftmark.bench/1`.
        drawn: What is drawn of each of its levels, from `load.distributions`.
    """
    levels = mappings(document, "levels")
    data = plot_data(levels, drawn)
    title = f"draftmark bench: {text(document, 'service') or 'a load run'}"
    sections: list[Node] = [_header(document, levels), _cards(levels), _facts(document), _warnings(levels)]
    if len(levels) > 1:
        sections.append(_overview(levels))
    for place, level in enumerate(levels):
        sections += level_sections(place, level, data, alone=len(levels) == 1)
    sections += [_reading(), _provenance(document, levels)]
    return page(title, join(sections, "\n"), data, script="bench.js")


def _header(document: Document, levels: Sequence[Document]) -> Markup:
    disturbed = any(texts(level, "disturbed") for level in levels)
    stopped = any(text(level, "stopped_because") for level in levels)
    state = "disturbed" if disturbed else "stopped early" if stopped else "measured"
    said = "; ".join(
        f"{words.level_title(level)}: {figures.rate(number(level, 'output_tok_s'))} tok/s" for level in levels[:4]
    )
    return tag(
        "header",
        tag(
            "p",
            tag("span", "Load run", class_="doc-title"),
            tag("span", state, class_="chip neutral" if state == "measured" else "chip caution"),
            class_="eyebrow",
        ),
        tag("h1", said or "nothing was measured", id="verdict"),
        tag("p", words.loop_sentence(document), class_="lede"),
        tag("noscript", tag("p", NO_SCRIPT, class_="note")),
    )


def _cards(levels: Sequence[Document]) -> Markup | None:
    """The figures that are quoted most, of a single level; several have a table."""
    if len(levels) != 1:
        return None
    level = levels[0]
    heads = mapping(level, "headline")
    ttft, e2e = text(heads, "ttft") or "ttft_ms", text(heads, "e2e") or "e2e_ms"
    cards = [
        _card(
            "Output", figures.rate(number(level, "output_tok_s")), "tok/s", words.interval(level, "output_tok_s")
        ),
        *(
            _card(
                name,
                figures.millis(number(mapping(level, key), "p50")),
                "ms, p50",
                words.interval(level, f"{key}.p50"),
            )
            for name, key in (("TTFT", ttft), ("TPOT", "tpot_ms"), ("E2E", e2e))
        ),
    ]
    if (good := number(level, "goodput_req_s")) is not None:
        cards.append(_card("Goodput", f"{good:.3g}", "requests/s", figures.UNKNOWN))
    if (accepted := number(level, "accept_len")) is not None:
        cards.append(_card("Accept length", figures.length(accepted), "tokens a round", figures.UNKNOWN))
    return tag("section", *cards, class_="cards", aria_label="Figures")


def _card(name: str, value: str, unit: str, interval: str) -> Markup:
    again = tag("p", f"another run: {interval}", class_="sub") if interval != figures.UNKNOWN else None
    return tag("article", tag("h2", name, tag("span", unit)), tag("p", value, class_="pick"), again, class_="card")


def _facts(document: Document) -> Markup:
    facts: list[tuple[str, Node]] = [
        ("Service", tag("code", text(document, "service") or figures.UNKNOWN)),
        ("Engine", text(document, "engine") or figures.UNKNOWN),
        ("Model", text(document, "model") or figures.UNKNOWN),
        ("API", text(document, "api") or figures.UNKNOWN),
        ("Started", text(document, "started_at") or figures.UNKNOWN),
    ]
    parts = [tag("div", tag("dt", term), tag("dd", fact)) for term, fact in facts]
    return tag("dl", *parts, class_="facts", aria_label="Facts")


def _warnings(levels: Sequence[Document]) -> Markup | None:
    said = []
    for level in levels:
        title = f"{words.level_title(level)}: " if len(levels) > 1 else ""
        stopped = text(level, "stopped_because")
        reasons = (*texts(level, "disturbed"), *texts(level, "notes"), *([stopped] if stopped else []))
        said += [f"{title}{reason}" for reason in dict.fromkeys(reasons)]
    if not said:
        return None
    items = tag("ul", *(tag("li", sentence) for sentence in said))
    return tag("section", tag("h2", "Warnings"), items, class_="warnings", aria_label="Warnings")


def _overview(levels: Sequence[Document]) -> Markup:
    rows: list[Sequence[Node]] = []
    for place, level in enumerate(levels):
        heads = mapping(level, "headline")
        ttft, e2e = text(heads, "ttft") or "ttft_ms", text(heads, "e2e") or "e2e_ms"
        rows.append(
            (
                tag("a", words.level_title(level), href=f"#level-{place}"),
                figures.rate(number(level, "output_tok_s")),
                words.interval(level, "output_tok_s"),
                *(
                    figures.millis(number(mapping(level, key), quantile))
                    for key in (ttft, "tpot_ms", e2e)
                    for quantile in ("p50", "p99")
                ),
                figures.length(number(level, "accept_len")),
                words.errors(level),
            )
        )
    columns = (
        Column("Load"),
        Column("tok/s", number=True),
        Column("another run", number=True),
        *(Column(f"{name} {q}, ms", number=True) for name in ("TTFT", "TPOT", "E2E") for q in ("p50", "p99")),
        Column("Accept length", number=True),
        Column("Errors", prose=True),
    )
    return section("overview", "Every level", table("Every level of the load", columns, rows))


def _reading() -> Markup:
    entries = [node for term, meaning in words.DEFINITIONS for node in (tag("dt", term), tag("dd", meaning))]
    return section("reading", "What the figures mean", tag("dl", *entries, class_="glossary"))


def _provenance(document: Document, levels: Sequence[Document]) -> Markup:
    settings = mapping(document, "settings")
    facts: list[tuple[str, Node]] = [
        ("Draftmark", text(document, "draftmark") or figures.UNKNOWN),
        *((f"Setting: {visible(str(key)).replace('_', ' ')}", plain(settings[key])) for key in settings),
    ]
    for level in levels:
        sent = text(level, "prompts_sha256")
        if sent:
            facts.append((f"Prompts of {words.level_title(level)}", tag("code", f"sha256 {sent}")))
        if arrival := mapping(level, "arrival"):
            facts.append((f"Schedule of {words.level_title(level)}", plain(arrival)))
        if client := mapping(level, "client"):
            told = {key: round(value, 3) for key in client if (value := number(client, key)) is not None}
            facts.append((f"Client in {words.level_title(level)}", plain(told)))
        facts += [("Assumed", sentence) for sentence in texts(level, "assumptions")]
    facts = list(dict.fromkeys(facts))
    entries = [tag("div", tag("dt", term), tag("dd", fact)) for term, fact in facts]
    return section("provenance", "Provenance", tag("dl", *entries, class_="provenance"))
