"""Records made by hand, for the tests of what is made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from draftmark.model import RequestRecord


def record(sent: float, chunks: Sequence[tuple[float, float]] = (), **fields: Any) -> RequestRecord:
    """A request whose chunks arrived at (seconds since sent, cumulative tokens); other fields as given."""
    fields.setdefault("end_at_s", sent + (chunks[-1][0] if chunks else 0.0))
    fields.setdefault("output_tokens", int(chunks[-1][1]) if chunks else None)
    made = RequestRecord(
        tag=fields.pop("tag", "bench-1"),
        workload=fields.pop("workload", "w"),
        prompt_id=fields.pop("prompt_id", "p"),
        concurrency=fields.pop("concurrency", 1),
        sent_at_s=sent,
        end_at_s=fields.pop("end_at_s"),
    )
    return dataclasses.replace(
        made,
        first_token_at_s=sent + chunks[0][0] if chunks else None,
        last_token_at_s=sent + chunks[-1][0] if chunks else None,
        chunks=tuple(chunks),
        chunk_counts=fields.pop("chunk_counts", "server"),
        prompt_tokens=fields.pop("prompt_tokens", 10),
        **fields,
    )


def stream(tokens: int, *, ttft: float, interval: float, per_chunk: int = 1) -> list[tuple[float, float]]:
    """An answer in even chunks."""
    counts = [*range(per_chunk, tokens, per_chunk), tokens]
    return [(ttft + i * interval, float(n)) for i, n in enumerate(counts)]


def stalled_open_loop(
    count: int, *, rate: float, slots: int, stall: tuple[float, float], answer_s: float
) -> list[RequestRecord]:
    """A constant schedule under a cap, against a server that stands still for a while.

    Each request goes out at its time or when a slot is free, and its first token comes after `answer_s`, or so long
    after the stall's end; it has a second one a tenth of that later.
    """
    free = [0.0] * slots
    out = []
    for i in range(count):
        intended = i / rate
        slot = min(range(slots), key=free.__getitem__)
        sent = max(intended, free[slot])
        first = sent + answer_s
        if stall[0] <= first < stall[1] + answer_s:
            first = stall[1] + answer_s
        free[slot] = first + answer_s / 10
        chunks = [(first - sent, 1.0), (free[slot] - sent, 2.0)]
        out.append(record(sent, chunks, tag=f"bench-{i + 1}", intended_at_s=intended, concurrency=slots))
    return out
