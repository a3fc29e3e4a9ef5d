"""The times of one request, from its record. Pure; None where a figure has no meaning or was not seen.

An answer that came whole (not streamed) has no chunks: it has neither TTFT nor TPOT nor ITL.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter, sub

from draftmark.model import RequestRecord

CUT = "cut"
"""Error kind of a request that we ourselves broke off, at the time limit of the whole run or when it was stopped.
Its tokens count towards throughput, since the server was busy with them; it is neither a completed request nor an
error."""

_AT, _TOTAL = itemgetter(0), itemgetter(1)


def tokens_of(record: RequestRecord) -> int:
    """Output tokens: the server's count, else what the chunks add up to."""
    if record.output_tokens is not None:
        return record.output_tokens
    return round(record.chunks[-1][1]) if record.chunks else 0


def intended_s(record: RequestRecord) -> float:
    """When it should have gone out: its user has been waiting since then."""
    return record.sent_at_s if record.intended_at_s is None else record.intended_at_s


def queue_ms(record: RequestRecord) -> float | None:
    """Intended to real send; None in a closed loop, where nothing was intended."""
    return None if record.intended_at_s is None else (record.sent_at_s - record.intended_at_s) * 1e3


def ttft_ms(record: RequestRecord, *, intended: bool = False) -> float | None:
    """Send, or intended send, to the first chunk with text."""
    if record.first_token_at_s is None:
        return None
    return (record.first_token_at_s - (intended_s(record) if intended else record.sent_at_s)) * 1e3


def e2e_ms(record: RequestRecord, *, intended: bool = False) -> float:
    """Send, or intended send, to the end."""
    return (record.end_at_s - (intended_s(record) if intended else record.sent_at_s)) * 1e3


def tpot_s(record: RequestRecord) -> float | None:
    """(last - first token) / (tokens - 1)."""
    first, last, tokens = record.first_token_at_s, record.last_token_at_s, tokens_of(record)
    if first is None or last is None or tokens < 2 or last <= first:
        return None
    return (last - first) / (tokens - 1)


def tpot_ms(record: RequestRecord) -> float | None:
    """`tpot_s` in milliseconds."""
    per_token = tpot_s(record)
    return None if per_token is None else per_token * 1e3


def chunk_gaps_ms(record: RequestRecord) -> list[float]:
    """The time between two chunks, whatever they carry."""
    times = list(map(_AT, record.chunks))
    return [gap * 1e3 for gap in map(sub, times[1:], times)]


def token_gaps_ms(record: RequestRecord) -> list[float]:
    """Amortised inter-token latency: the gap before each arrival, shared by its tokens, once for each of them.

    Shared counts are fractions; rounding the running total keeps tokens whole and their sum right. An arrival to
    which no whole token falls leaves its gap to the next one.
    """
    return gaps_ms(record)[1]


def gaps_ms(record: RequestRecord) -> tuple[list[float], list[float]]:
    """Of the chunks, and of the tokens: one list where each chunk is a token and came alone, the usual case."""
    chunks = chunk_gaps_ms(record)
    if 0.0 not in chunks and _a_token_each(record):
        return chunks, chunks
    out: list[float] = []
    since, counted = None, 0
    for at, cumulative in arrivals(record):
        tokens = round(cumulative) - counted
        if since is None:
            since, counted = at, counted + tokens
        elif tokens > 0:
            gap = (at - since) * 1e3
            if tokens == 1:
                out.append(gap)
            else:
                out += [gap / tokens] * tokens
            since, counted = at, counted + tokens
    return chunks, out


def _a_token_each(record: RequestRecord) -> bool:
    counts = tuple(map(_TOTAL, record.chunks))
    return not counts or (counts[-1] == len(counts) and counts == tuple(map(float, range(1, len(counts) + 1))))


def chunk_sizes(record: RequestRecord) -> list[int]:
    """Tokens in each chunk, where the server counted them per chunk; a shared count says nothing of one chunk."""
    if record.chunk_counts != "server":
        return []
    if _a_token_each(record):
        return [1] * len(record.chunks)
    totals = [0, *(round(cumulative) for _, cumulative in record.chunks)]
    return list(map(sub, totals[1:], totals))


def arrivals(record: RequestRecord) -> Sequence[tuple[float, float]]:
    """(seconds since sent, cumulative tokens), with chunks that came in one read, and so at one time, as one."""
    chunks = record.chunks
    last = dict(chunks)  # of one time the last: times never go back
    return chunks if len(last) == len(chunks) else list(last.items())
