"""What the page of a load run draws, as data: the script only places it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftmark.report import bench_words as words
from draftmark.report import figures
from draftmark.report.fields import Document, mapping, number, numbers, text

Data = dict[str, Any]
HISTOGRAMS = (
    ("ttft_ms", "Time to first token"),
    ("tpot_ms", "Time per output token"),
    ("itl_ms", "Inter-token latency"),
    ("chunk_gap_ms", "Gap between chunks"),
    ("e2e_ms", "End to end"),
)
_MARKED = ("p50", "p90", "p99")
_MOST_SIZES = 24


def plot_data(levels: Sequence[Document], drawn: Sequence[Document]) -> Data:
    """Panels by kind of plot; each has the place of its level.

    Args:
        levels: Of the document.
        drawn: Of each level, from `load.distributions`.
    """
    out: Data = {"histogram": [], "sizes": [], "tokens": [], "requests": []}
    for place, (level, seen) in enumerate(zip(levels, drawn, strict=True)):
        made = mapping(seen, "histograms")
        for key, name in HISTOGRAMS:
            head = _headline(level, key)
            if mapping(made, head):
                out["histogram"].append({"level": place, **_histogram(level, made, key, head, name)})
        if sizes := _sizes(seen):
            out["sizes"].append({"level": place, "title": "Tokens a chunk", "bars": sizes})
        if course := _course(level, mapping(seen, "course")):
            out["tokens"].append({"level": place, **course})
            out["requests"].append({"level": place, **course})
    return out


def _headline(level: Document, key: str) -> str:
    """In an open loop from the intended send."""
    return str(mapping(level, "headline").get(key.removesuffix("_ms")) or key)


def _histogram(level: Document, made: Document, key: str, head: str, name: str) -> Data:
    shown = mapping(made, head)
    spread = mapping(level, head)
    edges, counts = numbers(shown, "edges"), numbers(shown, "counts")
    beyond = int(number(shown, "beyond") or 0)
    total = sum(counts) + beyond
    quantiles = [(q, value) for q in (*_MARKED, "max") if (value := number(spread, q)) is not None]
    caption = " · ".join(f"{q} {figures.millis(value)}" for q, value in quantiles) + " ms"
    if beyond:
        caption += f"; {figures.count(beyond)} above {figures.millis(edges[-1])} are not drawn"
    other = mapping(made, key) if head != key else {}
    return {
        "title": f"{name}, from the intended send" if head != key else name,
        "caption": caption,
        "bins": [
            {
                "x1": low,
                "x2": high,
                "share": 100 * count / total,
                "text": f"{figures.millis(low)}{figures.DASH}{figures.millis(high)} ms\n{figures.count(count)}",
            }
            for low, high, count in zip(edges, edges[1:], counts, strict=False)
        ],
        "outline": _outline(other, edges),
        "marks": [{"x": value, "text": q} for q, value in quantiles if q in _MARKED and value <= edges[-1]],
    }


def _outline(other: Document, edges: Sequence[float]) -> list[Data]:
    """The same figure from the real send, as steps over the same bins."""
    counts = numbers(other, "counts")
    total = sum(counts) + (number(other, "beyond") or 0)
    if not total:
        return []
    steps = [{"x": edges[0], "share": 0.0}]
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        steps += [{"x": x, "share": 100 * count / total} for x in (low, high)]
    return [*steps, {"x": edges[-1], "share": 0.0}]


def _sizes(seen: Document) -> list[Data]:
    pairs = [pair for pair in seen.get("chunk_sizes") or () if isinstance(pair, Sequence) and len(pair) == 2]
    total = sum(chunks for _, chunks in pairs)
    if not total:
        return []
    rest = sum(chunks for _, chunks in pairs[_MOST_SIZES:])
    bars = [(str(tokens), chunks) for tokens, chunks in pairs[:_MOST_SIZES]]
    if rest:
        bars.append((f"> {pairs[_MOST_SIZES - 1][0]}", rest))
    return [
        {
            "tokens": tokens,
            "share": 100 * chunks / total,
            "text": f"{tokens} tokens\n{figures.count(chunks)} chunks, {figures.percent(chunks / total)}",
        }
        for tokens, chunks in bars
    ]


def _course(level: Document, course: Document) -> Data | None:
    rates = numbers(course, "tok_s")
    if not rates:
        return None
    begin, step = number(course, "from") or 0.0, number(course, "step") or 1.0
    window = mapping(level, "window")
    start, end = number(window, "start_at_s"), number(window, "end_at_s")
    middles = [begin + step * (place + 0.5) for place in range(len(rates))]
    running, waiting = numbers(course, "running"), numbers(course, "waiting")
    return {
        "title": words.level_title(level),
        "points": [
            {
                "at": at,
                "tok_s": rate,
                "running": now,
                "waiting": held,
                "text": f"{at:.1f} s\n{figures.rate(rate)} tok/s\n{now:.0f} under way, {held:.0f} waiting",
            }
            for at, rate, now, held in zip(middles, rates, running, waiting, strict=False)
        ],
        "window": None if start is None or end is None else {"from": start, "to": end},
        "errors": [
            {"kind": figures.visible(str(kind)), "at": at}
            for kind, times in mapping(course, "errors").items()
            for at in (times if isinstance(times, list) else [])
        ],
        "waits": text(level, "loop") == "open",
    }
