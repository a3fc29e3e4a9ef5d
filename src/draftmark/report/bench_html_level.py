"""One level of a load run on its page: plots, and the tables behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftmark.report import bench_words as words
from draftmark.report import figures
from draftmark.report.fields import Document, mapping, mappings, number, plain, text
from draftmark.report.figures import visible
from draftmark.report.glyphs import glyph
from draftmark.report.html_tables import Column, section, table
from draftmark.report.tags import Markup, Node, tag


def level_sections(place: int, level: Document, data: dict[str, Any], *, alone: bool) -> list[Markup | None]:
    """Distributions, course, errors and kinds of text of one level.

    Args:
        place: Its number among the levels.
        level: Of the document.
        data: What the plots draw, of all levels.
        alone: Whether there is no other: then its title is the page's already.
    """
    of = "" if alone else f": {words.level_title(level)}"
    return [
        _distributions(place, level, data, of),
        _course(place, level, data, of),
        _errors(place, level, of),
        _categories(place, level, of),
    ]


def _distributions(place: int, level: Document, data: dict[str, Any], of: str) -> Markup:
    open_loop = text(level, "loop") == "open"
    boxes = [
        _figure(kind, index, panel["title"], panel.get("caption"), of)
        for kind in ("histogram", "sizes")
        for index, panel in enumerate(data[kind])
        if panel["level"] == place
    ]
    rows: list[Sequence[Node]] = [
        (
            name.strip().capitalize() if not name.startswith(" ") else f"\u2026 {name.strip()}",
            *(figures.millis(number(mapping(level, key), q)) for q in words.QUANTILES),
            words.interval(level, f"{key}.p50"),
        )
        for key, name in words.latencies(level)
    ]
    columns = (
        Column("ms"),
        *(Column(q, number=True) for q in words.QUANTILES),
        Column("p50 of another run", number=True),
    )
    lines = (words.request_rates(level), words.goodput(level), words.acceptance(level))
    legend = [("measure", "from the intended send"), ("line", "from the real send")] if open_loop else []
    return section(
        f"level-{place}",
        f"Latency{of}",
        tag("p", f"{words.counted(level)}, {words.errors(level)}; {words.rates(level)}.", class_="lede"),
        *(tag("p", f"{said[0].upper()}{said[1:]}.", class_="lede") for said in lines if said),
        _legend(legend) if legend and boxes else None,
        tag("div", *boxes, class_="panels") if boxes else None,
        table(f"Latencies{of}, in milliseconds", columns, rows),
    )


def _course(place: int, level: Document, data: dict[str, Any], of: str) -> Markup | None:
    found = [(index, panel) for index, panel in enumerate(data["tokens"]) if panel["level"] == place]
    if not found:
        return None
    ((index, panel),) = found
    runs = number(level, "repeats")
    first = f" The first of {runs:.0f} runs." if runs and runs > 1 else ""
    legend = [("measure", "output tokens a second"), ("line", "requests under way")]
    if panel["window"]:
        legend.append(("window", "steady window, in which tok/s is counted"))
    if panel["waits"]:
        legend.append(("dashed", "due and not yet sent"))
    if panel["errors"]:
        legend.append(("error", "a request failed"))
    return section(
        f"course-{place}",
        f"Over time{of}",
        tag("p", f"Seconds since the first send.{first}", class_="lede"),
        _legend(legend),
        _figure("tokens", index, "Output tokens a second", None, of, wide=True),
        _figure("requests", index, "Requests under way", None, of, wide=True),
    )


def _errors(place: int, level: Document, of: str) -> Markup | None:
    kinds = mapping(level, "errors")
    unsent = mapping(level, "unsent")
    rows: list[Sequence[Node]] = [(visible(str(kind)), plain(kinds[kind])) for kind in kinds]
    rows += [(f"not sent: {visible(str(reason))}", plain(unsent[reason])) for reason in unsent]
    if cut := number(level, "cut"):
        rows.append(("cut short by us", figures.count(cut)))
    if not rows:
        return None
    columns = (Column("Kind"), Column("Requests", number=True))
    return section(f"errors-{place}", f"Errors{of}", table(f"Errors by kind{of}", columns, rows))


def _categories(place: int, level: Document, of: str) -> Markup | None:
    kinds = mappings(level, "categories")
    if len(kinds) < 2:
        return None
    rows: list[Sequence[Node]] = [
        (
            text(kind, "name") or figures.UNKNOWN,
            figures.count(number(kind, "requests")),
            figures.count(number(kind, "output_tokens")),
            *(figures.millis(number(mapping(kind, key), "p50")) for key in ("ttft_ms", "tpot_ms")),
            figures.length(number(kind, "accept_len")),
            figures.length(number(kind, "tokens_per_step")),
        )
        for kind in kinds
    ]
    columns = (
        Column("Kind of text"),
        *(
            Column(head, number=True)
            for head in (
                "Requests",
                "Output tokens",
                "TTFT p50, ms",
                "TPOT p50, ms",
                "Accept length",
                "Tokens per step",
            )
        ),
    )
    return section(f"kinds-{place}", f"Kinds of text{of}", table(f"By kind of text{of}", columns, rows))


def _figure(kind: str, index: int, name: str, caption: str | None, of: str, *, wide: bool = False) -> Markup:
    box = tag("div", class_="plot", data_plot=kind, data_index=str(index), data_label=f"{name}{of}")
    said = tag("figcaption", tag("strong", name), tag("span", caption) if caption else None)
    return tag("figure", said, box, class_="wide" if wide else None)


def _legend(entries: Sequence[tuple[str, str]]) -> Markup:
    items = [tag("li", glyph(name), tag("span", meaning)) for name, meaning in entries]
    return tag("ul", *items, class_="legend", aria_label="Legend")
