"""How the answer of an OpenAI-compatible server is read, a stream or not.

Token counts are the server's own wherever it gives any, from the best source that the stream has:

- `server`: cumulative counts in the chunks (vLLM and SGLang with `continuous_usage_stats`, llama.cpp with
  `timings_per_token`);
- `spread`: one total at the end (`usage`, or llama.cpp's `timings`), shared evenly over the chunks with text;
- `chunks`: no count at all, so one token a chunk is assumed, and said so.

A count that cannot be true (below zero, or far more than was asked for) is not used, as if it had not been given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from draftmark.load.events import (
    DECODE_ERRORS,
    DETAIL_LIMIT,
    Counting,
    Event,
    Timings,
    Usage,
    decode_event,
    error_message,
    ordinary,
    says,
)
from draftmark.load.http1 import Exchange
from draftmark.load.sse import SseSplitter

MOST_TOKENS = 9_999_999
"""More than any context holds: the bound on counts where nothing tighter is known."""
OVERRUN_TOKENS = 64
"""By how much an honest count may exceed `max_tokens`: a last draft that was taken whole, an end token."""
_DONE = b"[DONE]"
_MOST_A_CHUNK = 16  # of a server that does not keep to `max_tokens`

# --- the answer -------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Answer:
    """What one answer said. Times are absolute, on the clock of the exchange.

    Attributes:
        times: Arrival of each chunk with text.
        totals: Output tokens until then, of each of them.
        counts: `server`, `spread` or `chunks`; see the module.
        done: `[DONE]` was seen.
        error: Kind of error within the answer.
        text: What was said, where it was asked to be kept: the content alone, as the next turn holds it.
        doubted: A count of the server's could not be true and was not used.
    """

    times: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    counts: str = "chunks"
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_histogram: tuple[int, ...] | None = None
    finish: str | None = None
    done: bool = False
    error: str | None = None
    detail: str | None = None
    text_sha256: str | None = None
    text: str | None = None
    doubted: bool = False

    @property
    def chunks(self) -> tuple[tuple[float, float], ...]:
        """(arrival, cumulative output tokens) per chunk with text."""
        return tuple(zip(self.times, self.totals, strict=True))


class AnswerReader:
    """Reads one answer, piece by piece, so that the caller can share its thread between the pieces.

    Args:
        max_tokens: What the request asked for at most; None when it is not known.
        stream: It was asked for as a stream. One that was not is a single document: its end is known, and none of
            its tokens' times.
        keep_text: The answer shall carry its text, without reasoning and tool calls.
    """

    def __init__(self, max_tokens: int | None = None, *, stream: bool = True, keep_text: bool = False) -> None:
        self._max_tokens = max_tokens
        self._stream = stream
        self._keep_text = keep_text
        self._splitter = SseSplitter()
        self._times: list[float] = []
        self._counts: list[int | None] = []
        self._text: list[str] = []
        self._kept: dict[int, str] = {}  # what to keep of a text that is not, or not all, content
        self._usage = Usage()
        self._timings: Timings | None = None
        self._total_told = False
        self._events = 0
        self._answer = Answer()

    def feed(self, at: float, data: bytes) -> None:
        """The bytes of one read, which arrived at `at`."""
        self.feed_reads([(at, data)])

    def feed_reads(self, reads: list[tuple[float, bytes]]) -> None:
        """The bytes of several reads, in their order."""
        if not self._stream:
            return  # it is read whole, at its end
        plain = self._splitter.feed_plain(reads[0][1] if len(reads) == 1 else b"".join([data for _, data in reads]))
        if plain is not None:
            self._take_many(plain, _arrivals(reads, len(plain)))
            return
        for at, data in reads:
            events = self._splitter.feed(data)
            self._take_many(events, [at] * len(events))

    def _take_many(self, events: list[bytes], due: list[float]) -> None:
        """Take what arrived at these times.

        Nearly all events of a stream are one choice with new text and nothing else: those are taken together. Any
        other is left to `_event`, which would have read these to the same end.
        """
        if events and events[-1] == _DONE:
            self._take_many(events[:-1], due[:-1])
            self._event(due[-1], _DONE)
            return
        begin, end = 0, len(events)
        while end and not says(events[end - 1]):  # why it ended, and the counts
            end -= 1
        while begin < end and not says(events[begin]):  # whose text it will be
            begin += 1
        self._take_each(events[:begin], due[:begin])
        found = ordinary(events[begin:end])
        if found is not None and (found[2] or not self._keep_text):
            self._together(found[0], found[1], due[begin:end])
        else:
            self._take_runs(events[begin:end], due[begin:end])
        self._take_each(events[end:], due[end:])

    def _take_runs(self, events: list[bytes], due: list[float]) -> None:
        """Take what is ordinary in between, run by run."""
        try:
            decoded = list(map(decode_event, events))
        except DECODE_ERRORS:
            self._take_each(events, due)
            return
        said = [event.said() for event in decoded]
        begin = 0
        for place in [place for place, text in enumerate(said) if text is None]:
            self._together(decoded[begin:place], said[begin:place], due[begin:place])
            self._event(due[place], events[place])
            begin = place + 1
        self._together(decoded[begin:], said[begin:], due[begin:])

    def _take_each(self, events: list[bytes], due: list[float]) -> None:
        for at, event in zip(due, events, strict=True):
            self._event(at, event)

    def _together(self, events: Sequence[Counting], said: Sequence[str | None], due: list[float]) -> None:
        self._events += len(events)
        if self._answer.error is not None or not events:
            return
        self._text += filter(None, said)
        self._times += due
        usages, timings = [event.usage for event in events], [event.timings for event in events]
        none = len(events)
        if usages.count(None) == none and timings.count(None) == none:
            self._counts += [None] * none
        else:
            self._counts += map(_count, events)
            self._usage = next(filter(None, reversed(usages)), self._usage)
            self._timings = next(filter(None, reversed(timings)), self._timings)
        self._total_told = False

    def finish(self, exchange: Exchange) -> Answer:
        """The whole answer, once everything was fed."""
        if exchange.failure is None and exchange.reads:
            if not self._stream:
                self._event(exchange.reads[-1][0], b"".join(data for _, data in exchange.reads))
            for event in self._splitter.flush():
                self._event(exchange.reads[-1][0], event)
        answer, most = self._answer, self._most_tokens()
        if not self._stream:
            self._times, self._counts = [], []
        self._totals(most)
        if answer.output_tokens == 0 and self._text:
            answer.output_tokens = None  # text came: a count of none is no count
        answer.times = self._times
        answer.counts, answer.totals = self._cumulative(answer.output_tokens, most)
        if self._text:
            text = "".join(self._text)
            answer.text_sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            if self._keep_text:
                kept = self._kept
                answer.text = "".join([kept.get(i, said) for i, said in enumerate(self._text)]) if kept else text
        if answer.error is None:
            answer.error, answer.detail = self._verdict(exchange)
        return answer

    def _totals(self, most: int) -> None:
        """What the server counted, as far as it can be believed."""
        answer, timings = self._answer, self._timings
        answer.prompt_tokens = self._believed(self._usage.prompt_tokens, MOST_TOKENS)
        answer.output_tokens = self._believed(self._usage.completion_tokens, most)
        if timings is None:
            return
        if answer.output_tokens is None:
            answer.output_tokens = self._believed(timings.predicted_n, most)
        if answer.prompt_tokens is None and timings.prompt_n is not None:
            answer.prompt_tokens = self._believed(timings.prompt_n + (timings.cache_n or 0), MOST_TOKENS)
        # llama.cpp leaves both out when nothing was drafted
        drafted = self._believed(timings.draft_n or 0, MOST_TOKENS)
        accepted = self._believed(timings.draft_n_accepted or 0, drafted or 0)
        if drafted is not None and accepted is not None:
            answer.drafted_tokens, answer.accepted_tokens = drafted, accepted

    def _event(self, at: float, data: bytes) -> None:
        self._events += 1
        if data == _DONE:
            self._answer.done = True
            return
        if self._answer.error is not None:
            return
        try:
            event = self._decode(data)
        except DECODE_ERRORS as error:
            self._fail("malformed", f"{error}: {data[:200].decode('utf-8', 'replace')}")
            return
        failed = event.object == "error" or bytes(event.error) != b"null"
        problem = (error_message(data) or error_message(b'{"error":%b}' % bytes(event.error))) if failed else None
        if problem is not None:
            self._fail("error-event", problem)
            return
        self._take(at, event)

    def _decode(self, data: bytes) -> Event:
        return decode_event(data)

    def _take(self, at: float, event: Event) -> None:
        if event.usage is not None:
            self._usage = event.usage
        if event.timings is not None:
            self._timings = event.timings
        chunks = len(self._times)
        for choice in event.choices or ():
            if choice.finish_reason is not None:
                self._answer.finish = choice.finish_reason
            if said := choice.carried():
                if self._keep_text and (content := choice.content()) != said:
                    self._kept[len(self._text)] = content
                self._text.append(said)
                self._times.append(at)
                self._counts.append(_count(event))
        # beside text a count is only "so far"; alone it is the total, which nothing follows
        self._total_told = len(self._times) == chunks and self._usage.completion_tokens is not None

    def _fail(self, kind: str, detail: str) -> None:
        self._answer.error, self._answer.detail = kind, detail[:DETAIL_LIMIT]

    def _most_tokens(self) -> int:
        """The most output tokens that can be believed of this answer."""
        if self._max_tokens is None:
            return MOST_TOKENS
        chunks = len(self._times)
        ignored = chunks > self._max_tokens  # the server did not keep to it, and its count may still be honest
        return min(MOST_TOKENS, (_MOST_A_CHUNK * chunks if ignored else self._max_tokens) + OVERRUN_TOKENS)

    def _believed(self, count: int | None, most: int) -> int | None:
        if count is None or 0 <= count <= most:
            return count
        self._answer.doubted = True
        return None

    def _cumulative(self, total: int | None, most: int) -> tuple[str, list[float]]:
        chunks = len(self._times)
        counts = [count for count in self._counts if count is not None]
        told = chunks > 0 and len(counts) == chunks and all(a <= b for a, b in pairwise([1, *counts]))
        told = told and self._believed(counts[-1], most) is not None
        if told and (total is None or counts[-1] <= total):
            return "server", list(map(float, counts))
        places = range(1, chunks + 1)
        if total is not None and total != chunks:
            return "spread", [total * place / chunks for place in places]
        return "chunks" if total is None else "spread", list(map(float, places))

    def _verdict(self, exchange: Exchange) -> tuple[str | None, str | None]:
        answer = self._answer
        if exchange.failure is not None:
            if answer.done:  # it was all there before the connection went
                return None, None
            return exchange.failure.kind, exchange.failure.detail[:DETAIL_LIMIT]
        if answer.done or answer.finish is not None or self._total_told or (self._text and not self._stream):
            return None, None
        if not (self._stream and self._events):
            body = b"".join(data for _, data in exchange.reads)
            if (problem := error_message(body)) is not None:
                return "error-event", problem
            if not self._stream:
                return "malformed", f"a document without an answer: {excerpt(body)}"[:DETAIL_LIMIT]
            if body and "event-stream" not in exchange.content_type:
                detail = f"not a stream but {exchange.content_type or 'untyped'}: {excerpt(body)}"
                return "malformed", detail[:DETAIL_LIMIT]
        if not exchange.framed:
            return "closed", "the connection closed before a final event"
        return "no-end", "the stream ended without finish reason, usage or [DONE]"


def _arrivals(reads: list[tuple[float, bytes]], events: int) -> list[float]:
    """When each event in its plainest form arrived: it is finished by the second of its two line ends."""
    if len(reads) == 1:
        return [reads[0][0]] * events
    due: list[float] = []
    ends = 0
    for at, data in reads:
        ends += data.count(b"\n")
        due += [at] * (ends // 2 - len(due))
    return due


def _count(event: Counting) -> int | None:
    """Output tokens so far, by this event's own word."""
    if event.usage is not None and event.usage.completion_tokens is not None:
        return event.usage.completion_tokens
    return event.timings.predicted_n if event.timings is not None else None


def read_exchange(exchange: Exchange, max_tokens: int | None = None) -> Answer:
    """A whole answer at once."""
    reader = AnswerReader(max_tokens)
    for at, data in exchange.reads:
        reader.feed(at, data)
    return reader.finish(exchange)


def refusal(exchange: Exchange) -> Answer:
    """The answer of an exchange whose status is not 200, or that never got a status."""
    if exchange.failure is not None and exchange.status is None:
        return Answer(error=exchange.failure.kind, detail=exchange.failure.detail[:DETAIL_LIMIT])
    body = b"".join(data for _, data in exchange.reads)
    detail = error_message(body) or excerpt(body)
    if exchange.retry_after:
        detail = f"{detail[: DETAIL_LIMIT - 40]} (Retry-After: {exchange.retry_after[:20]})"
    return Answer(error=f"http-{exchange.status}", detail=detail)


def excerpt(body: bytes) -> str:
    """The start of a body, on one line, for an error's detail."""
    return " ".join(body[: 4 * DETAIL_LIMIT].decode("utf-8", "replace").split())[:DETAIL_LIMIT]
