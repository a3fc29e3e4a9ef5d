"""Documents of load runs, made from records as `bench` makes them."""

from __future__ import annotations

from typing import Any

from draftmark.load.distributions import distributions
from draftmark.load.journal import Ending, Head, Measured
from draftmark.load.measurement import belonging
from draftmark.load.result import derive, measurement_of
from draftmark.model import ClientHealth, Counters, RequestRecord

HEAD = Head(
    draftmark="0.1.0",
    service="url:http://127.0.0.1:30000",
    engine="sglang",
    api="sglang",
    model="Qwen/Qwen3-8B",
    started_at="2026-11-30T03:40:00Z",
    limits_ms={"ttft": 500.0, "tpot": 30.0, "e2e": 9000.0},
    settings={"requests": 60, "rate": "20"},
)


def answered(place: int, *, sent: float, intended: float | None, concurrency: int) -> RequestRecord:
    """An answer of 60 tokens or so, in chunks of one to five, that scatters as its place says."""
    ttft = 0.08 + 0.003 * (place * 7 % 11)
    sizes = [1, *(1 + (place * 5 + i * 3) % 5 for i in range(20))]
    chunks, total = [], 0
    for i, size in enumerate(sizes):
        total += size
        chunks.append((ttft + i * 0.03 + 0.001 * (place * i % 7), float(total)))
    return RequestRecord(
        tag=f"bench-{place + 1}",
        workload="chat",
        prompt_id=f"p{place}",
        concurrency=concurrency,
        intended_at_s=intended,
        category=("coding", "roleplay", "maths")[place % 3],
        sent_at_s=sent,
        first_token_at_s=sent + chunks[0][0],
        last_token_at_s=sent + chunks[-1][0],
        end_at_s=sent + chunks[-1][0] + 0.002,
        chunks=tuple(chunks),
        chunk_counts="server",
        prompt_tokens=120 + place,
        output_tokens=total,
        drafted_tokens=80,
        accepted_tokens=total - 21,
        accepted_histogram=(5, 4, 4, 4, 4),
    )


def failed(place: int, kind: str, at: float, *, intended: float | None, concurrency: int) -> RequestRecord:
    return RequestRecord(
        tag=f"bench-{place + 1}",
        workload="chat",
        prompt_id=f"p{place}",
        concurrency=concurrency,
        intended_at_s=intended,
        sent_at_s=at,
        end_at_s=at + 0.1,
        error=kind,
        error_detail="x",
    )


def closed_run(concurrency: int = 4, count: int = 60) -> Measured:
    free = [0.0] * concurrency
    records = []
    for place in range(count):
        slot = min(range(concurrency), key=free.__getitem__)
        records.append(answered(place, sent=free[slot], intended=None, concurrency=concurrency))
        free[slot] = records[-1].end_at_s
    return Measured(records=tuple(records), ending=_ending(concurrency))


def open_run(count: int = 60) -> Measured:
    """Twenty a second; a stretch waits for a slot, and two requests fail."""
    records = []
    for place in range(count):
        intended = place / 20
        if place in (20, 41):
            kind = "http-503" if place == 20 else "reset"
            records.append(failed(place, kind, intended, intended=intended, concurrency=8))
            continue
        late = 0.4 if 30 <= place < 40 else 0.001
        records.append(answered(place, sent=intended + late, intended=intended, concurrency=8))
    arrival = {"kind": "poisson", "rate_req_s": 20.0, "seed": 0}
    return Measured(records=tuple(records), ending=_ending(8, arrival=arrival, unsent={"the run was stopped": 3}))


def _ending(concurrency: int, **fields: Any) -> Ending:
    return Ending(
        workload="chat",
        concurrency=concurrency,
        prompts_sha256="f00d" * 16,
        counters=Counters(drafts=900, drafted_tokens=3600, accepted_tokens=2000, output_tokens=2900),
        client=ClientHealth(loop_lag_ms_p99=0.4, loop_lag_ms_max=2.0, cpu_s=0.31),
        assumptions=("A server with a prefix cache answers prompts faster that it has seen before.",),
        **fields,
    )


def documented(*measured: Measured, head: Head = HEAD) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The document and what is drawn of each level."""
    drawn = []
    for one in measured:
        records = belonging(one.records, one.ending.workload, one.ending.concurrency)
        drawn.append(distributions(records, measurement_of(one)))
    return derive(head, measured), drawn
