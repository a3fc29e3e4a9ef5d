"""The steady part of a measurement, and the tokens per second in it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import median

from draftmark.load.timings import CUT, intended_s, tokens_of
from draftmark.model import RequestRecord, Window

_TICK_S = 1e-9


def steady_window(records: Sequence[RequestRecord], concurrency: int) -> Window | None:
    """The part in which the server was as busy as the load was meant to make it; None if nothing was measured.

    Args:
        records: In the order sent, warm-up included.
        concurrency: Slots of a closed loop. An open loop is known by its records' intended times.
    """
    measured = [r for r in records if not r.warmup]
    if not measured:
        return None
    if any(r.intended_at_s is not None for r in measured):
        return _open_window(measured)
    return _closed_window(records, measured, concurrency)


def _closed_window(records: Sequence[RequestRecord], measured: Sequence[RequestRecord], concurrency: int) -> Window:
    """When every slot was busy.

    It starts when the last slot has its first token, but not before the first measured request was sent; it ends
    when a request ends and none is left to follow it. Where it cannot say enough, the whole is taken: under half of
    the measured time, or fewer than two requests a slot, which is a batch and has no steady part by design.
    """
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


def _open_window(measured: Sequence[RequestRecord]) -> Window:
    """From when the first requests have had the time to be answered until the schedule ends.

    Before, fewer are under way than the rate keeps under way; afterwards the rest drains. The time to be answered
    is the median request's. Where that leaves under half of the time of sending, the whole is taken.
    """
    begin, end = min(map(intended_s, measured)), max(r.end_at_s for r in measured)
    done = [r.end_at_s - r.sent_at_s for r in measured if r.error is None]
    start, last = begin + (median(done) if done else 0.0), max(map(intended_s, measured))
    if last <= begin or last - start < (last - begin) / 2:
        return Window(start_at_s=begin, end_at_s=end, whole=True)
    return Window(start_at_s=start, end_at_s=last)


def _first_token_or_end(record: RequestRecord) -> float:
    return record.end_at_s if record.first_token_at_s is None else record.first_token_at_s


def throughput(records: Sequence[RequestRecord], window: Window | None) -> float | None:
    """Output tokens per second over the window, of completed requests and of those that we cut."""
    if window is None:
        return None
    (rate,) = rates(records, (window.start_at_s, window.end_at_s))
    return rate


def rates(records: Sequence[RequestRecord], borders: Sequence[float]) -> list[float | None]:
    """Output tokens per second between each border and the next; None where no token came."""
    totals = [0.0] * len(borders)  # tokens until each border
    scale = _tokens_per_chunk(records)
    for record in records:
        if record.error not in {None, CUT}:
            continue
        guessed = record.error == CUT and record.chunk_counts == "chunks"
        course = _Course(record, scale if guessed else 1.0)
        for place, border in enumerate(borders):
            # the first token of a span that starts with a send is inside it, and none lies on that border
            totals[place] += course.until(border)
    out: list[float | None] = []
    for place in range(len(borders) - 1):
        span, tokens = borders[place + 1] - borders[place], totals[place + 1] - totals[place]
        out.append(tokens / span if span > 0 and tokens else None)
    return out


class _Course:
    """How one request's tokens came in: nothing before the first chunk, straight lines between the chunks.

    Of an answer that came whole it is known only that its tokens were made between send and end. An answer may have
    thousands of chunks: only those around the times that are asked for are looked at.
    """

    def __init__(self, record: RequestRecord, scale: float) -> None:
        self._sent = record.sent_at_s
        self._scale = scale
        self._chunks: Sequence[tuple[float, float]] = record.chunks
        self._total = record.chunks[-1][1] * scale if record.chunks else 0.0
        if record.error is not None:
            return
        if record.chunks:  # what the server counted beyond its chunks, such as the end token
            self._total = float(tokens_of(record))
        elif record.output_tokens:
            self._total = float(record.output_tokens)
            self._chunks = ((0.0, 0.0), (record.end_at_s - self._sent, self._total))

    def until(self, time: float) -> float:
        """Tokens that had come by then."""
        # a difference of two times is not exact: a chunk that came at that very time has come
        chunks, at = self._chunks, time - self._sent + _TICK_S
        after = bisect_right(chunks, (at, math.inf))
        if after == 0:
            return 0.0
        if after == len(chunks):
            return self._total
        begin, before = chunks[after - 1]
        end = chunks[after][0]
        last = bisect_right(chunks, (end, math.inf))  # chunks of one read came together
        then = self._total if last == len(chunks) else chunks[last - 1][1] * self._scale
        before *= self._scale
        return before + (at - begin) / (end - begin) * (then - before)


def _tokens_per_chunk(records: Sequence[RequestRecord]) -> float:
    """For cut requests, whose total never came: as many tokens a chunk as the completed ones had."""
    done = [r for r in records if r.error is None and r.chunks]
    chunks = sum(len(r.chunks) for r in done)
    return sum(tokens_of(r) for r in done) / chunks if chunks else 1.0
