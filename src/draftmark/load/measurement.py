"""From request records to figures. Pure: the same records always give the same measurement.

Formulas, per completed request with n output tokens:

- TTFT: first chunk with text - send. E2E: end - send.
- TPOT: (last chunk - first chunk) / (n - 1). Decode rate: its inverse.
- Amortised ITL: the gap before each arrival, shared evenly by the tokens that it brought, once per token. Chunks of
  one read arrived together and share one gap.
- Chunk gap: the time between two chunks, whatever they carry.
- Throughput: tokens that arrived within the window / its length, of every request then in flight.
- Open loop: TTFT and E2E also from the intended send, since a request that waits for its turn keeps its user
  waiting; what it waited is given apart, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from draftmark.load.acceptance import acceptance, categories
from draftmark.load.spreads import spread, weighted_spread
from draftmark.load.timings import (
    CUT,
    chunk_sizes,
    e2e_ms,
    gaps_ms,
    intended_s,
    queue_ms,
    tokens_of,
    tpot_ms,
    tpot_s,
    ttft_ms,
)
from draftmark.load.window import steady_window, throughput
from draftmark.model import ClientHealth, Counters, Measurement, RequestRecord, Window

__all__ = ["CUT", "belonging", "measure", "steady_window", "throughput", "tokens_of"]

_FEW, _TOGETHER = 20, 0.05  # less than that of the gaps leaves their percentiles what they are, up to p95


def belonging(records: Iterable[RequestRecord], workload: str, concurrency: int) -> list[RequestRecord]:
    """The records of one workload at one concurrency, in the order sent."""
    return sorted(
        (r for r in records if r.workload == workload and r.concurrency == concurrency),
        key=lambda r: (r.sent_at_s, len(r.tag), r.tag),
    )


def measure(
    records: Iterable[RequestRecord],
    *,
    workload: str,
    concurrency: int,
    counters: Counters | None = None,
    client: ClientHealth | None = None,
    assumptions: tuple[str, ...] = (),
    disturbed: tuple[str, ...] = (),
) -> Measurement:
    """What these records say about one workload at one concurrency.

    Args:
        records: In any order; those of other workloads or concurrencies are passed over.
        workload: Its name.
        concurrency: Slots of the closed loop; of an open loop its cap, 0 for none.
        counters: The engine's counters over this measurement, as differences (after - before).
        client: The load generator's health.
        assumptions: Carried over.
        disturbed: Carried over.
    """
    mine = belonging(records, workload, concurrency)
    measured = [r for r in mine if not r.warmup]
    done = [r for r in measured if r.error is None]
    open_loop = any(r.intended_at_s is not None for r in measured)
    begin = min(map(intended_s, measured), default=0.0)
    duration_s = max((r.end_at_s for r in measured), default=0.0) - begin
    window = steady_window(mine, concurrency)
    prompt_counts = [r.prompt_tokens for r in done if r.prompt_tokens is not None]
    output_tokens = sum(tokens_of(r) for r in done)
    sizes = Counter(chain.from_iterable(map(chunk_sizes, done)))
    planned = done if open_loop else []
    gaps = list(map(gaps_ms, done))
    chunk_gap_ms = spread(chain.from_iterable(chunks for chunks, _ in gaps))
    several = any(tokens is not chunks for chunks, tokens in gaps)
    return Measurement(
        workload=workload,
        concurrency=concurrency,
        requests=len(done),
        errors=dict(sorted(Counter(r.error for r in measured if r.error and r.error != CUT).items())),
        duration_s=duration_s,
        window=window,
        output_tok_s=throughput(mine, window),
        decode_tok_s=tuple((r.prompt_id, 1.0 / per_token) for r in done if (per_token := tpot_s(r))),
        ttft_ms=spread(ms for r in done if (ms := ttft_ms(r)) is not None),
        tpot_ms=spread(ms for r in done if (ms := tpot_ms(r)) is not None),
        itl_ms=spread(chain.from_iterable(tokens for _, tokens in gaps)) if several else chunk_gap_ms,
        chunk_gap_ms=chunk_gap_ms,
        e2e_ms=spread(e2e_ms(r) for r in done),
        output_tokens=output_tokens,
        prompt_tokens=sum(prompt_counts) if prompt_counts else None,
        acceptance=acceptance(mine, counters),
        client=client or ClientHealth(),
        assumptions=assumptions,
        disturbed=disturbed,
        loop="open" if open_loop else "closed",
        cut=sum(r.error == CUT for r in measured),
        request_rate_wanted=_rate([intended_s(r) for r in measured]) if open_loop else None,
        request_rate_sent=_rate([r.sent_at_s for r in measured]),
        completed_req_s=len(done) / duration_s if done and duration_s > 0 else None,
        total_tok_s=_total_rate(len(done), prompt_counts, output_tokens, duration_s),
        queue_ms=spread(ms for r in planned if (ms := queue_ms(r)) is not None),
        ttft_intended_ms=spread(ms for r in planned if (ms := ttft_ms(r, intended=True)) is not None),
        e2e_intended_ms=spread(e2e_ms(r, intended=True) for r in planned),
        chunk_tokens=weighted_spread((float(size), chunks) for size, chunks in sizes.items()),
        chunk_sizes=tuple(sorted(sizes.items())),
        categories=categories(done),
        notes=(*(_backlog(measured, window) if open_loop else ()), *_lumps([chunks for chunks, _ in gaps])),
    )


def _rate(times: Sequence[float]) -> float | None:
    """Events per second: the gaps between them are one fewer than they are."""
    span = max(times, default=0.0) - min(times, default=0.0)
    return (len(times) - 1) / span if span > 0 else None


def _total_rate(done: int, prompts: Sequence[int], output_tokens: int, duration_s: float) -> float | None:
    """Prompt and output tokens per second; None where the server did not count every prompt."""
    if not done or len(prompts) < done or duration_s <= 0:
        return None
    return (sum(prompts) + output_tokens) / duration_s


def _lumps(gaps_ms: Sequence[Sequence[float]]) -> tuple[str, ...]:
    """Whether many chunks came together, so that the gaps between them are not what the server left."""
    gaps, together = sum(map(len, gaps_ms)), sum(each.count(0.0) for each in gaps_ms)
    if together < max(_FEW, _TOGETHER * gaps):
        return ()
    return (
        f"{together} of {gaps} chunks came together with the one before, or faster than they are told apart: the "
        "gap between chunks is that of such lumps; a lump's time is shared evenly by its tokens.",
    )


def _backlog(measured: Sequence[RequestRecord], window: Window | None) -> tuple[str, ...]:
    """Whether fewer requests were answered than came: latencies then grow for as long as the load goes on."""
    if window is None:
        return ()
    came = sum(window.start_at_s <= intended_s(r) < window.end_at_s for r in measured)
    ended = sum(window.start_at_s <= r.end_at_s < window.end_at_s for r in measured)
    if came - ended <= max(3 * math.sqrt(came), 0.1 * came):
        return ()
    seconds = window.end_at_s - window.start_at_s
    return (
        f"The server did not keep up: {came / seconds:.3g} requests a second came and {ended / seconds:.3g} were "
        "answered, so that the latencies grow with the length of the run.",
    )
