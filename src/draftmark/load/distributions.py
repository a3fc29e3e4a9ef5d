"""Distributions and courses of time for the pictures of a report, from request records. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from draftmark.load.timings import CUT, chunk_gaps_ms, e2e_ms, intended_s, token_gaps_ms, tpot_ms, ttft_ms
from draftmark.load.window import rates
from draftmark.model import Measurement, RequestRecord

Data = dict[str, Any]
BINS = 36
_SPANS = 120
_TAIL = 99.5  # what lies beyond this percentile goes into one last bin, or it would squeeze all else to the left


def distributions(records: Sequence[RequestRecord], m: Measurement) -> Data:
    """What a page draws of one measurement.

    Args:
        records: Of this measurement, in the order sent, warm-up included.
        m: What they came to.
    """
    done = [r for r in records if not r.warmup and r.error is None]
    intended = m.loop == "open"
    values: dict[str, list[float]] = {
        "ttft_ms": [ms for r in done if (ms := ttft_ms(r)) is not None],
        "tpot_ms": [ms for r in done if (ms := tpot_ms(r)) is not None],
        "itl_ms": [ms for r in done for ms in token_gaps_ms(r)],
        "chunk_gap_ms": [gap for r in done for gap in chunk_gaps_ms(r)],
        "e2e_ms": [e2e_ms(r) for r in done],
    }
    edges: dict[str, list[float]] = {}
    if intended:
        values |= {
            "ttft_intended_ms": [ms for r in done if (ms := ttft_ms(r, intended=True)) is not None],
            "e2e_intended_ms": [e2e_ms(r, intended=True) for r in done],
        }
        for plain, planned in (("ttft_ms", "ttft_intended_ms"), ("e2e_ms", "e2e_intended_ms")):
            both = sorted([*values[plain], *values[planned]])
            edges |= dict.fromkeys((plain, planned), _edges(both)) if both else {}
    return {
        "histograms": {name: histogram(found, edges.get(name)) for name, found in values.items() if found},
        "chunk_sizes": [list(pair) for pair in m.chunk_sizes],
        "course": course(records),
    }


def histogram(values: Sequence[float], edges: Sequence[float] | None = None) -> Data:
    """Equal bins over what is usual, and one for the rest.

    Args:
        values: At least one.
        edges: Of another figure that is drawn in the same picture.

    Returns:
        `edges` in ascending order, one more than `counts`; `beyond` the number above the last edge and `max` the
        highest value.
    """
    ranked = sorted(values)
    edges = edges or _edges(ranked)
    # A bin has its lower edge, and the last one both: none that lies on the last edge is beyond.
    below = [bisect_left(ranked, edge) for edge in edges[:-1]] + [bisect_right(ranked, edges[-1])]
    below[0] = 0
    return {
        "edges": list(edges),
        "counts": [high - low for low, high in pairwise(below)],
        "beyond": len(ranked) - below[-1],
        "max": ranked[-1],
    }


def _edges(ranked: Sequence[float]) -> list[float]:
    """From the lowest value to where all but a few lie."""
    low, highest = ranked[0], ranked[-1]
    top = ranked[max(0, math.ceil(len(ranked) * _TAIL / 100) - 1)]
    if top - low < 1e-6 * max(1.0, abs(top)):  # all alike
        low, top = low - 0.5, top + 0.5
    if highest - top < 0.5 * (top - low):  # a short tail needs no bin of its own
        top = max(top, highest)
    return [low + (top - low) * place / BINS for place in range(BINS)] + [top]


def course(records: Sequence[RequestRecord]) -> Data:
    """Tokens per second, requests under way and waiting, and errors, over the time of the measurement.

    Returns:
        `from` and `step` in seconds; per step `tok_s`, `running` and `waiting` (due and not yet sent) at its
        middle; and `errors`: per kind the times at which they were seen.
    """
    measured = [r for r in records if not r.warmup]
    if not measured:
        return {"from": 0.0, "step": 1.0, "tok_s": [], "running": [], "waiting": [], "errors": {}}
    begin, end = min(map(intended_s, measured)), max(r.end_at_s for r in measured)
    step = max((end - begin) / _SPANS, 1e-3)
    borders = [begin + step * place for place in range(math.ceil((end - begin) / step - 1e-9) + 1)]
    middles = [border + step / 2 for border in borders[:-1]]
    errors: dict[str, list[float]] = {}
    for r in measured:
        if r.error is not None and r.error != CUT:
            errors.setdefault(r.error, []).append(r.end_at_s)
    due, sent, ended = (
        _reached(sorted(times), middles)
        for times in (map(intended_s, records), (r.sent_at_s for r in records), (r.end_at_s for r in records))
    )
    return {
        "from": begin,
        "step": step,
        "tok_s": [rate or 0.0 for rate in rates(records, borders)],
        "running": [s - e for s, e in zip(sent, ended, strict=True)],
        "waiting": [max(0, d - s) for d, s in zip(due, sent, strict=True)],
        "errors": {kind: sorted(times) for kind, times in sorted(errors.items())},
    }


def _reached(ranked: Sequence[float], times: Sequence[float]) -> list[int]:
    """How many had come by each time."""
    return [bisect_right(ranked, time) for time in times]
