"""From request records to figures. Pure: the same records always give the same measurement.

Formulas, per completed request with n output tokens:

- TTFT: first chunk with text - send. E2E: end - send.
- TPOT: (last chunk - first chunk) / (n - 1). Decode rate: its inverse.
- Amortised ITL: the gap before each arrival, shared evenly by the tokens that it brought, once per token. Chunks of
  one read arrived together and share one gap.
- Chunk gap: the time between two chunks, whatever they carry.
- Throughput: tokens that arrived within the window / its length, of every request then in flight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from draftmark.load.spreads import spread, weighted_spread
from draftmark.model import Acceptance, ClientHealth, Counters, Measurement, RequestRecord, Window

CUT = "cut"
"""Error kind of a request that we ourselves broke off, at the time limit of the whole run. Its tokens count towards
throughput, since the server was busy with them; it is neither a completed request nor an error."""


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
        concurrency: Slots of the closed loop.
        counters: The engine's counters over this measurement, as differences (after - before).
        client: The load generator's health.
        assumptions: Carried over.
        disturbed: Carried over.
    """
    mine = sorted(
        (r for r in records if r.workload == workload and r.concurrency == concurrency),
        key=lambda r: (r.sent_at_s, len(r.tag), r.tag),
    )
    measured = [r for r in mine if not r.warmup]
    done = [r for r in measured if r.error is None]
    duration_s = max(r.end_at_s for r in measured) - measured[0].sent_at_s if measured else 0.0
    window = steady_window(mine, concurrency)
    prompt_counts = [r.prompt_tokens for r in done if r.prompt_tokens is not None]
    return Measurement(
        workload=workload,
        concurrency=concurrency,
        requests=len(done),
        errors=dict(sorted(Counter(r.error for r in measured if r.error and r.error != CUT).items())),
        duration_s=duration_s,
        window=window,
        output_tok_s=throughput(mine, window),
        decode_tok_s=tuple((r.prompt_id, 1.0 / per_token) for r in done if (per_token := _tpot_s(r))),
        ttft_ms=spread((r.first_token_at_s - r.sent_at_s) * 1e3 for r in done if r.first_token_at_s is not None),
        tpot_ms=spread(per_token * 1e3 for r in done if (per_token := _tpot_s(r)) is not None),
        itl_ms=weighted_spread(pair for r in done for pair in _amortised_ms(r)),
        chunk_gap_ms=spread((b - a) * 1e3 for r in done for (a, _), (b, _) in pairwise(r.chunks)),
        e2e_ms=spread((r.end_at_s - r.sent_at_s) * 1e3 for r in done),
        output_tokens=sum(tokens_of(r) for r in done),
        prompt_tokens=sum(prompt_counts) if prompt_counts else None,
        acceptance=_acceptance(mine, counters),
        client=client or ClientHealth(),
        assumptions=assumptions,
        disturbed=disturbed,
    )


# --- tokens -----------------------------------------------------------------------------------------------


def tokens_of(record: RequestRecord) -> int:
    """Output tokens: the server's count, else what the chunks add up to."""
    if record.output_tokens is not None:
        return record.output_tokens
    return round(record.chunks[-1][1]) if record.chunks else 0


def _tpot_s(record: RequestRecord) -> float | None:
    first, last, tokens = record.first_token_at_s, record.last_token_at_s, tokens_of(record)
    if first is None or last is None or tokens < 2 or last <= first:
        return None
    return (last - first) / (tokens - 1)


def _amortised_ms(record: RequestRecord) -> list[tuple[float, int]]:
    """(milliseconds per token, number of tokens) for each arrival after the first.

    Shared counts are fractions; rounding the running total keeps tokens whole and their sum right. An arrival to
    which no whole token falls leaves its gap to the next one.
    """
    out: list[tuple[float, int]] = []
    since, counted = None, 0
    for at, cumulative in _arrivals(record):
        whole = round(cumulative)
        if since is not None and whole > counted:
            out.append(((at - since) * 1e3 / (whole - counted), whole - counted))
        if since is None or whole > counted:
            since, counted = at, whole
    return out


def _arrivals(record: RequestRecord) -> list[tuple[float, float]]:
    """Chunks that came in one read, and so have one time, taken together."""
    out: list[tuple[float, float]] = []
    for at, cumulative in record.chunks:
        if out and out[-1][0] == at:
            out[-1] = (at, cumulative)
        else:
            out.append((at, cumulative))
    return out


class _Course:
    """How one request's tokens came in: nothing before the first chunk, straight lines between the chunks."""

    def __init__(self, record: RequestRecord, scale: float) -> None:
        arrivals = _arrivals(record)
        self.times = [record.sent_at_s + at for at, _ in arrivals]
        self.counts = [cumulative * scale for _, cumulative in arrivals]
        if arrivals and record.error is None:  # what the server counted beyond its chunks, such as the end token
            self.counts[-1] = float(tokens_of(record))

    def until(self, time: float) -> float:
        """Tokens that had come by then."""
        after = bisect_right(self.times, time)
        if after == 0:
            return 0.0
        if after == len(self.times):
            return self.counts[-1]
        before = after - 1
        share = (time - self.times[before]) / (self.times[after] - self.times[before])
        return self.counts[before] + share * (self.counts[after] - self.counts[before])


# --- window -----------------------------------------------------------------------------------------------


def steady_window(records: Sequence[RequestRecord], concurrency: int) -> Window | None:
    """When every slot was busy, from records in the order sent, warm-up included. None if nothing was measured.

    It starts when the last slot has its first token, but not before the first measured request was sent; it ends
    when a request ends and none is left to follow it. Where it cannot say enough, the whole is taken: under half of
    the measured time, or fewer than two requests a slot, which is a batch and has no steady part by design.
    """
    measured = [r for r in records if not r.warmup]
    if not measured:
        return None
    begin, end = measured[0].sent_at_s, max(r.end_at_s for r in measured)
    whole = Window(start_at_s=begin, end_at_s=end, whole=True)
    if len(records) < concurrency or (concurrency > 1 and len(measured) < 2 * concurrency):
        return whole
    # all slots start together, so the first requests are one of each slot
    filled = max(_first_token_or_end(r) for r in records[:concurrency])
    # every request but the first of each slot follows an end: so many ends have a successor, the next has none
    emptied = min(end, sorted(r.end_at_s for r in records)[len(records) - concurrency])
    start = max(begin, filled)
    if emptied - start < (end - begin) / 2:
        return whole
    return Window(start_at_s=start, end_at_s=emptied)


def _first_token_or_end(record: RequestRecord) -> float:
    return record.end_at_s if record.first_token_at_s is None else record.first_token_at_s


def throughput(records: Sequence[RequestRecord], window: Window | None) -> float | None:
    """Output tokens per second over the window, of completed requests and of those that our time limit cut."""
    if window is None or window.end_at_s <= window.start_at_s:
        return None
    scale = _tokens_per_chunk(records)
    total = 0.0
    for record in records:
        if record.error not in {None, CUT}:
            continue
        guessed = record.error == CUT and record.chunk_counts == "chunks"
        course = _Course(record, scale if guessed else 1.0)
        # the first token of a window that starts with a send is inside it, and none lies on that border
        total += course.until(window.end_at_s) - course.until(window.start_at_s)
    return total / (window.end_at_s - window.start_at_s) if total else None


def _tokens_per_chunk(records: Sequence[RequestRecord]) -> float:
    """For cut requests, whose total never came: as many tokens a chunk as the completed ones had."""
    done = [r for r in records if r.error is None and r.chunks]
    chunks = sum(len(r.chunks) for r in done)
    return sum(tokens_of(r) for r in done) / chunks if chunks else 1.0


# --- acceptance -------------------------------------------------------------------------------------------


def _acceptance(records: Sequence[RequestRecord], counters: Counters | None) -> Acceptance | None:
    """From the engine's counters, whose span takes in the warm-up; else summed over the answers."""
    if counters is not None and counters.drafted_tokens is not None:
        output = counters.output_tokens
        if output is None:
            output = sum(tokens_of(r) for r in records)
        return Acceptance(
            drafts=counters.drafts,
            drafted_tokens=counters.drafted_tokens,
            accepted_tokens=counters.accepted_tokens,
            output_tokens=output,
            source="counters",
        )
    told = [r for r in records if not r.warmup and r.error is None and r.drafted_tokens is not None]
    if not told:
        return None
    rounds = [sum(r.accepted_histogram) for r in told if r.accepted_histogram is not None]
    return Acceptance(
        drafts=sum(rounds) if len(rounds) == len(told) else None,
        drafted_tokens=sum(r.drafted_tokens or 0 for r in told),
        accepted_tokens=sum(r.accepted_tokens or 0 for r in told),
        output_tokens=sum(tokens_of(r) for r in told),
        source="requests",
    )
