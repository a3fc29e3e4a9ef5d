"""What became of the drafts, from an engine's counters or from the answers themselves. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from draftmark.load.spreads import spread
from draftmark.load.timings import tokens_of, tpot_ms, ttft_ms
from draftmark.model import Acceptance, Category, Counters, RequestRecord


def acceptance(records: Sequence[RequestRecord], counters: Counters | None) -> Acceptance | None:
    """From the engine's counters, whose span takes in the warm-up; else summed over the answers.

    Args:
        records: Warm-up included.
        counters: Differences over the measurement.
    """
    done = [r for r in records if not r.warmup and r.error is None]
    if counters is None or counters.drafted_tokens is None:
        return of_answers(done)
    output = counters.output_tokens
    if output is None:
        output = sum(tokens_of(r) for r in records)
    return Acceptance(
        drafts=counters.drafts,
        drafted_tokens=counters.drafted_tokens,
        accepted_tokens=counters.accepted_tokens,
        output_tokens=output,
        source="counters",
        histogram=_histogram(done),
        by_position=counters.by_position,
    )


def of_answers(done: Sequence[RequestRecord]) -> Acceptance | None:
    """Summed over the answers that told; None where none did."""
    told = [r for r in done if r.drafted_tokens is not None]
    if not told:
        return None
    rounds = [sum(r.accepted_histogram) for r in told if r.accepted_histogram is not None]
    return Acceptance(
        drafts=sum(rounds) if len(rounds) == len(told) else None,
        drafted_tokens=sum(r.drafted_tokens or 0 for r in told),
        accepted_tokens=sum(r.accepted_tokens or 0 for r in told),
        output_tokens=sum(tokens_of(r) for r in told),
        source="requests",
        histogram=_histogram(told),
    )


def _histogram(records: Sequence[RequestRecord]) -> tuple[int, ...]:
    found = [r.accepted_histogram for r in records if r.accepted_histogram is not None]
    return tuple(sum(column) for column in zip_longest(*found, fillvalue=0))


def categories(done: Sequence[RequestRecord]) -> tuple[Category, ...]:
    """The completed requests by kind of text, in the order in which the kinds first came."""
    kinds: dict[str, list[RequestRecord]] = {}
    for record in done:
        if record.category is not None:
            kinds.setdefault(record.category, []).append(record)
    return tuple(
        Category(
            name=name,
            requests=len(own),
            output_tokens=sum(tokens_of(r) for r in own),
            ttft_ms=spread(ms for r in own if (ms := ttft_ms(r)) is not None),
            tpot_ms=spread(ms for r in own if (ms := tpot_ms(r)) is not None),
            acceptance=of_answers(own),
        )
        for name, own in kinds.items()
    )
