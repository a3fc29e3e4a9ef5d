"""What became of each request: answers read, records made, and what had to be assumed.

One reader decodes finished answers in small steps between the arrivals of others, so that a long answer's JSON
does not make another's timestamps late. An answer that its conversation goes on from is decoded there, ahead of the
queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import repeat
from operator import sub
from time import monotonic

from draftmark.load.answers import Answer
from draftmark.load.http1 import Exchange
from draftmark.load.measurement import CUT, tokens_of
from draftmark.load.plan import LoadPlan
from draftmark.load.reading import read_answer
from draftmark.load.sender import Ask
from draftmark.model import RequestRecord

OnRecord = Callable[[RequestRecord], None]
OnProgress = Callable[[int, int, float | None, int], None]
_STEP_S = 0.0005


class Ledger:
    """The records of one run.

    Attributes:
        begin: Zero of the records' times, on the monotonic clock.
        records: In the order in which the requests ended.
        measured: How many of them are no warm-up.
    """

    def __init__(self, plan: LoadPlan, on_record: OnRecord | None, on_progress: OnProgress | None) -> None:
        self.begin = 0.0
        self.records: list[RequestRecord] = []
        self.measured = 0
        self._plan = plan
        self._total = plan.total
        self._on_record = on_record
        self._on_progress = on_progress
        self._ended: asyncio.Queue[tuple[Ask, Exchange, Answer | None] | None] = asyncio.Queue()
        self._done = self._errors = self._tokens = 0
        self._doubted = self._short = 0
        self._first_sent_at: float | None = None

    def enter(self, ask: Ask, exchange: Exchange, answer: Answer | None = None) -> None:
        """Take a request that has ended, with its answer where that was read already."""
        self._ended.put_nowait((ask, exchange, answer))

    def close(self) -> None:
        """Nothing more will come."""
        self._ended.put_nowait(None)

    async def answer(self, ask: Ask, exchange: Exchange, *, keep_text: bool = False) -> Answer:
        """Decode an answer in steps, letting arrivals be stamped between them."""
        return await read_answer(
            exchange,
            api=self._plan.api,
            stream=self._plan.stream,
            max_tokens=ask.prompt.max_tokens,
            keep_text=keep_text,
        )

    async def read(self) -> None:
        """Make records of what ends, until it is closed."""
        turn = monotonic()
        while (item := await self._ended.get()) is not None:
            if monotonic() - turn > _STEP_S:  # many short answers hold the loop up as one long one would
                await asyncio.sleep(0)
                turn = monotonic()
            ask, exchange, answer = item
            if answer is None:
                answer = await self.answer(ask, exchange)
            self._doubted += answer.doubted
            record = self._record(ask, exchange, answer)
            self.records.append(record)
            self.measured += not record.warmup
            if ask.prompt.forced and record.error is None and record.output_tokens is not None:
                self._short += record.output_tokens < ask.prompt.max_tokens
            if self._on_record is not None:
                self._on_record(record)
            self._report(record)

    def _report(self, record: RequestRecord) -> None:
        if record.warmup or record.error == CUT:
            return
        if self._first_sent_at is None:
            self._first_sent_at = record.sent_at_s
        self._done += 1
        self._errors += record.error is not None
        self._tokens += tokens_of(record) if record.error is None else 0
        if self._on_progress is not None:
            seconds = record.end_at_s - self._first_sent_at
            rate = self._tokens / seconds if self._tokens and seconds > 0 else None
            self._on_progress(self._done, self._total, rate, self._errors)

    def _record(self, ask: Ask, exchange: Exchange, answer: Answer) -> RequestRecord:
        begin, sent = self.begin, exchange.sent_at
        times = answer.times
        return RequestRecord(
            tag=ask.tag,
            workload=self._plan.workload.name,
            prompt_id=ask.prompt.id,
            concurrency=self._plan.concurrency,
            warmup=ask.job.warmup,
            intended_at_s=None if ask.intended_at is None else ask.intended_at - begin,
            turn=ask.turn,
            category=ask.prompt.category,
            sent_at_s=sent - begin,
            connect_s=ask.connect_s,
            first_byte_at_s=exchange.reads[0][0] - begin if exchange.reads else None,
            first_token_at_s=times[0] - begin if times else None,
            last_token_at_s=times[-1] - begin if times else None,
            end_at_s=(exchange.end_at or sent) - begin,
            chunks=tuple(zip(map(sub, times, repeat(sent)), answer.totals, strict=False)),
            chunk_counts=answer.counts,
            prompt_tokens=answer.prompt_tokens,
            output_tokens=answer.output_tokens,
            drafted_tokens=answer.drafted_tokens,
            accepted_tokens=answer.accepted_tokens,
            accepted_histogram=answer.accepted_histogram,
            finish=answer.finish,
            error=answer.error,
            error_detail=answer.detail,
            text_sha256=answer.text_sha256,
        )

    def assumptions(self, *, usage_refused: bool, untemplated: bool) -> tuple[str, ...]:
        """What had to be assumed, in words."""
        out = []
        if untemplated:
            out.append(
                "The server tells nobody how its chat template reads, so its native API was asked with the "
                "messages' texts as they are."
            )
        if usage_refused:
            out.append("The server refuses stream_options, so it was asked without it.")
        completed = [r for r in self.records if r.error is None]
        done = [r for r in completed if r.chunks]
        if any(r.output_tokens is None for r in done):
            out.append("The server gave no token count; one token a chunk was assumed.")
        if not self._plan.stream and any(r.output_tokens is None for r in completed):
            out.append("The server gave no token count with an answer that came whole: its tokens are not known.")
        if self._doubted:
            out.append(
                f"The server's counts in {self._doubted} answers cannot be true (below zero, or more than was "
                "asked for); they were not used."
            )
        if self._short:
            out.append(
                f"{self._short} answers are shorter than the length that was to be forced: the server does not "
                "keep to ignore_eos."
            )
        shared = [r for r in done if r.chunk_counts == "spread" and r.output_tokens is not None]
        tokens, chunks = sum(tokens_of(r) for r in shared), sum(len(r.chunks) for r in shared)
        if abs(tokens - chunks) > 0.05 * chunks:
            out.append(
                f"The server counts tokens only at the end of an answer: {tokens} tokens came in {chunks} chunks, "
                "and were shared evenly among the chunks of each answer."
            )
        return tuple(out)
