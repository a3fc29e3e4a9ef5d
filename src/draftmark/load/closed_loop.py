"""The closed loop: so many slots, each sending its next request as soon as the last one has ended.

The slots only send and keep what arrives. One reader decodes finished answers in small steps between their
arrivals, so that a long answer's JSON does not make another's timestamps late.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from time import monotonic

from draftmark.errors import UsageError
from draftmark.load.answers import Answer, AnswerReader, excerpt, refusal
from draftmark.load.endpoint import ConnectError, Endpoint
from draftmark.load.health import LagProbe
from draftmark.load.http1 import Connection, Exchange
from draftmark.load.measurement import CUT, tokens_of
from draftmark.load.native import GenerateReader, generate_body, token_ids, tokenize_body
from draftmark.load.plan import Job, LoadPlan, LoadRun
from draftmark.load.protocols import APIS, Api, first_model, request_body
from draftmark.model import RequestRecord

OnRecord = Callable[[RequestRecord], None]
OnProgress = Callable[[int, int, float | None, int], None]

CONNECTION_ERRORS = frozenset(
    {"connect-refused", "connect-timeout", "connect-failed", "dns", "tls", "reset", "closed"}
)
_STEP_BYTES = 32_768  # decoded between two turns of the loop: about a tenth of a millisecond


class _UsageOption:
    """Whether this server takes `stream_options`; found out once a run. `on` is whether to send it."""

    def __init__(self) -> None:
        self.on = True
        self._settled = False

    def doubtful(self, status: int | None) -> bool:
        """Whether this refusal may be the option's fault, so that the request is worth sending once without it."""
        return status in {400, 422} and not self._settled

    def learn(self, *, accepted_with: bool | None = None, accepted_without: bool | None = None) -> None:
        """What a request showed. The first to show anything settles it; that it was refused is never unlearned."""
        if accepted_without:
            self.on = False
        self._settled = self._settled or accepted_with is not None or accepted_without is not None


class _Slot:
    """One place in the closed loop, with its connection and the exchange in flight."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.connection: Connection | None = None
        self.job: Job | None = None
        self.exchange: Exchange | None = None

    async def work(self) -> None:
        while (job := self.run.next_job()) is not None:
            exchange = await self.ask(job)
            self.job = self.exchange = None
            self.run.ended(job, exchange)

    async def ask(self, job: Job) -> Exchange:
        option = self.run.option
        usage = option.on and not self.run.api.native
        exchange = await self.exchange_for(job, usage=usage)
        if not usage:
            return exchange
        if exchange.status == 200:
            option.learn(accepted_with=True)
        elif option.doubtful(exchange.status) or (not option.on and exchange.status in {400, 422}):
            again = await self.exchange_for(job, usage=False)
            if again.failure is None or again.status is not None:
                option.learn(accepted_without=again.status == 200)
            return again
        return exchange

    async def exchange_for(self, job: Job, *, usage: bool) -> Exchange:
        plan = self.run.plan
        if self.run.api.native:
            body = generate_body(job.prompt, self.run.token_ids[job.prompt.id], plan.extra, job.tag)
        else:
            body = request_body(
                self.run.api, job.prompt, tag=job.tag, model=self.run.model, usage=usage, extra=plan.extra
            )
        request = self.run.endpoint.request("POST", self.run.api.path, body, request_id=job.tag)
        while True:
            exchange = Exchange()
            self.job, self.exchange = job, exchange
            reused = await self.exchange_bytes(request, exchange, plan.request_timeout_s)
            if not (reused and exchange.stale):
                return exchange

    async def exchange_bytes(self, request: bytes, exchange: Exchange, timeout_s: float) -> bool:
        """One attempt; whether it went over a connection that had served before."""
        if self.connection is None or not self.connection.usable:
            try:
                self.connection = await self.run.connect()
            except ConnectError as error:
                exchange.fail(error.failure.kind, error.failure.detail)
                return False
        reused = self.connection.used
        await self.connection.send(request, exchange, timeout_s)
        return reused


class _Run:
    """The state of one closed loop."""

    def __init__(
        self, endpoint: Endpoint, plan: LoadPlan, on_record: OnRecord | None, on_progress: OnProgress | None
    ) -> None:
        self.endpoint = endpoint
        self.plan = plan
        self.api: Api = APIS[plan.api]
        self.model = plan.model
        self.token_ids: dict[str, list[int]] = {}
        self.option = _UsageOption()
        self.stopped: str | None = None
        self.records: list[RequestRecord] = []
        self._on_record = on_record
        self._on_progress = on_progress
        self._jobs = plan.jobs()
        self._ended: asyncio.Queue[tuple[Job, Exchange] | None] = asyncio.Queue()
        self._connections: list[Connection] = []
        self._failures = 0
        self._max_failures = plan.max_errors or max(8, 2 * plan.concurrency)
        self._done = self._errors = self._tokens = 0
        self._doubted = 0
        self._first_sent_at: float | None = None
        self._begin = monotonic()

    # --- called by the slots ------------------------------------------------------------------------------------

    def next_job(self) -> Job | None:
        return None if self.stopped else next(self._jobs, None)

    async def connect(self) -> Connection:
        connection = await self.endpoint.connect()
        self._connections = [c for c in self._connections if not c.lost.done()]
        self._connections.append(connection)
        return connection

    def ended(self, job: Job, exchange: Exchange) -> None:
        self._ended.put_nowait((job, exchange))
        failure = exchange.failure
        finished = bool(exchange.reads) and b"[DONE]" in exchange.reads[-1][1]
        if failure is None or failure.kind not in CONNECTION_ERRORS or finished:
            self._failures = 0
            return
        self._failures += 1
        if self._failures >= self._max_failures and self.stopped is None:
            self.stopped = (
                f"{self._failures} requests in a row failed to reach the server or lost it "
                f"({failure.kind}: {failure.detail})"
            )

    # --- the whole ----------------------------------------------------------------------------------------------

    async def go(self) -> LoadRun:
        if self.model is None:
            self.model = await self._ask_model()
        if self.api.native:
            await self._tokenize()
        self._begin = monotonic()
        probe = LagProbe()
        slots = [_Slot(self) for _ in range(self.plan.concurrency)]
        reader = asyncio.create_task(self._read_answers())
        tasks = [asyncio.create_task(slot.work()) for slot in slots]
        try:
            await self._wait(tasks, reader)
            await _end(tasks)
            for slot in slots:
                self._cut(slot)
            self._ended.put_nowait(None)
            await reader
        finally:
            await _end([*tasks, reader])
            await self._close()
            health = probe.stop()
        return LoadRun(tuple(self.records), health, self._assumptions(), self.stopped)

    async def _wait(self, tasks: list[asyncio.Task[None]], reader: asyncio.Task[None]) -> None:
        limit = self.plan.max_seconds
        deadline = math.inf if limit is None else self._begin + limit
        pending = set(tasks)
        while pending and self.stopped is None:
            left = None if limit is None else max(0.0, deadline - monotonic())
            done, _ = await asyncio.wait({*pending, reader}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # an error of the caller's callback, or a fault of ours, ends the run
            pending -= done
            if not done:
                self.stopped = f"the limit of {limit:g} s was reached"

    def _cut(self, slot: _Slot) -> None:
        """Keep what a request in flight had brought when the run was stopped."""
        if slot.job is not None and slot.exchange is not None:
            if slot.exchange.end_at is None:
                slot.exchange.fail(CUT, self.stopped or "")
            self._ended.put_nowait((slot.job, slot.exchange))

    async def _close(self) -> None:
        for connection in self._connections:
            connection.abort()
        if self._connections:
            await asyncio.wait({connection.lost for connection in self._connections}, timeout=2)

    async def _ask_model(self) -> str | None:
        """The server's own name for its model: some servers refuse a request without it."""
        exchange = await self._once(self.endpoint.request("GET", "/v1/models"), 5.0)
        return first_model(b"".join(data for _, data in exchange.reads)) if exchange.status == 200 else None

    async def _tokenize(self) -> None:
        """Every prompt as the server's chat template and tokeniser have it, before anything is measured.

        Raises:
            UsageError: The server does not tell; asking it without the template would be another workload.
        """
        for prompt in self.plan.workload.prompts:
            request = self.endpoint.request("POST", "/tokenize", tokenize_body(prompt, self.model))
            exchange = await self._once(request, self.plan.request_timeout_s)
            if exchange.failure is not None:
                self.stopped = f"POST /tokenize: {exchange.failure.kind}: {exchange.failure.detail}"
                return
            body = b"".join(data for _, data in exchange.reads)
            ids = token_ids(body) if exchange.status == 200 else None
            if ids is None:
                raise UsageError(
                    "the server does not turn messages into token ids, which its native API is asked with",
                    evidence=(f"POST /tokenize: HTTP {exchange.status}: {excerpt(body)}",),
                    next_step="ask it over --api openai-chat",
                )
            self.token_ids[prompt.id] = ids

    async def _once(self, request: bytes, timeout_s: float) -> Exchange:
        """A request on a connection of its own."""
        exchange = Exchange()
        try:
            connection = await self.connect()
        except ConnectError as error:
            exchange.fail(error.failure.kind, error.failure.detail)
            return exchange
        try:
            await connection.send(request, exchange, timeout_s)
        finally:
            connection.abort()
        return exchange

    # --- answers ------------------------------------------------------------------------------------------------

    async def _read_answers(self) -> None:
        while (item := await self._ended.get()) is not None:
            job, exchange = item
            answer = await _read(exchange, job.prompt.max_tokens, native=self.api.native)
            self._doubted += answer.doubted
            record = self._record(job, exchange, answer)
            self.records.append(record)
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
            self._on_progress(self._done, self.plan.total, rate, self._errors)

    def _record(self, job: Job, exchange: Exchange, answer: Answer) -> RequestRecord:
        begin, sent = self._begin, exchange.sent_at
        chunks = answer.chunks
        return RequestRecord(
            tag=job.tag,
            workload=self.plan.workload.name,
            prompt_id=job.prompt.id,
            concurrency=self.plan.concurrency,
            warmup=job.warmup,
            sent_at_s=sent - begin,
            first_byte_at_s=exchange.reads[0][0] - begin if exchange.reads else None,
            first_token_at_s=chunks[0][0] - begin if chunks else None,
            last_token_at_s=chunks[-1][0] - begin if chunks else None,
            end_at_s=(exchange.end_at or sent) - begin,
            chunks=tuple((at - sent, tokens) for at, tokens in chunks),
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

    def _assumptions(self) -> tuple[str, ...]:
        out = []
        if not self.option.on:
            out.append("The server refuses stream_options, so it was asked without it.")
        done = [r for r in self.records if r.error is None and r.chunks]
        if any(r.output_tokens is None for r in done):
            out.append("The server gave no token count; one token a chunk was assumed.")
        if self._doubted:
            out.append(
                f"The server's counts in {self._doubted} answers cannot be true (below zero, or more than was "
                "asked for); they were not used."
            )
        shared = [r for r in done if r.chunk_counts == "spread" and r.output_tokens is not None]
        tokens, chunks = sum(tokens_of(r) for r in shared), sum(len(r.chunks) for r in shared)
        if abs(tokens - chunks) > 0.05 * chunks:
            out.append(
                f"The server counts tokens only at the end of an answer: {tokens} tokens came in {chunks} chunks, "
                "and were shared evenly among the chunks of each answer."
            )
        return tuple(out)


async def _read(exchange: Exchange, max_tokens: int, *, native: bool = False) -> Answer:
    """Decode an answer in steps, letting arrivals be stamped between them."""
    if exchange.status != 200:
        return refusal(exchange)
    reader, step = (GenerateReader if native else AnswerReader)(max_tokens), 0
    for at, data in exchange.reads:
        reader.feed(at, data)
        step += len(data)
        if step >= _STEP_BYTES:
            step = 0
            await asyncio.sleep(0)
    return reader.finish(exchange)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def closed_loop(
    endpoint: Endpoint,
    plan: LoadPlan,
    *,
    on_record: OnRecord | None = None,
    on_progress: OnProgress | None = None,
) -> LoadRun:
    """Run a workload over `plan.concurrency` slots.

    Cancelling it leaves no task and no socket behind. An exception of a callback ends the run and comes through.

    Args:
        endpoint: The server.
        plan: What to send, and the limits.
        on_record: Called with each record once its answer is decoded, warm-up included.
        on_progress: Called with (measured requests ended, their total, output tokens per second so far, errors).
    """
    return await _Run(endpoint, plan, on_record, on_progress).go()
