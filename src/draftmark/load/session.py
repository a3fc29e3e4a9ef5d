"""What both loops share: a run from its preparation to its LoadRun, and one conversation in it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic

from draftmark.load.answers import Answer
from draftmark.load.endpoint import Endpoint
from draftmark.load.health import LagProbe
from draftmark.load.http1 import Exchange
from draftmark.load.ledger import Ledger, OnProgress, OnRecord
from draftmark.load.measurement import CUT
from draftmark.load.plan import Job, LoadPlan, LoadRun, Stop
from draftmark.load.pool import Pool
from draftmark.load.punctuality import Punctuality
from draftmark.load.sender import Ask, Sender
from draftmark.model import ClientHealth, Message

Gate = Callable[[], Awaitable[float]]
CONNECTION_ERRORS = frozenset(
    {"client-limit", "connect-failed", "connect-refused", "connect-timeout", "dns", "tls", "reset", "closed"}
)
NOT_GONE_ON = "an earlier turn of the conversation failed"
"""Why a follow-up was never sent."""
NOT_OPEN = "its connection was not open yet when the run ended"
"""Why a request was never sent."""
_OPENING = 64  # a listen backlog of 100 is common, and nobody asked for a burst at the start of a closed loop


class Session:
    """One run.

    Attributes:
        begin: Zero of the plan's times, on the monotonic clock.
        stop: Ends it.
        unsent: Measured requests that will not be sent, by the reason, where the reason is not that the run ended.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        plan: LoadPlan,
        on_record: OnRecord | None = None,
        on_progress: OnProgress | None = None,
        stop: Stop | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.plan = plan
        self.begin = 0.0
        self.stop = stop or Stop()
        self.unsent: Counter[str] = Counter()
        self.punctuality = Punctuality()
        self._gate = gate
        self._pool = Pool(endpoint, None if plan.open else _OPENING)
        self._sender = Sender(endpoint, plan, self._pool)
        self._ledger = Ledger(plan, on_record, on_progress)
        self._flying: set[Ask] = set()
        self._failures = 0
        self._most_flying = 0
        self._probe: LagProbe | None = None

    # --- one conversation ---------------------------------------------------------------------------------------

    async def converse(self, job: Job, due: float | None = None) -> None:
        """Send a prompt and, each with the answers so far, its follow-ups.

        Args:
            job: What is sent.
            due: Open loop: when its first request was to go out, on the monotonic clock.
        """
        plan, prompt = self.plan, job.prompt
        for turn in range(job.turns):
            if pause := plan.think(job, turn):
                if due is not None:
                    due += pause
                await asyncio.sleep(pause)
            ask = Ask(job, turn, prompt, due)
            exchange = await self._send(ask)
            if turn + 1 == job.turns:
                self._enter(ask, exchange)
                return
            answer = await self._ledger.answer(ask, exchange, keep_text=True)
            self._enter(ask, exchange, answer)
            if answer.error is not None:
                if not job.warmup:
                    self.unsent[NOT_GONE_ON] += job.turns - turn - 1
                return
            if due is not None:
                due = exchange.end_at or monotonic()
            said = Message("assistant", answer.text or "")
            question = Message("user", prompt.follow_ups[turn])
            prompt = dataclasses.replace(prompt, messages=(*prompt.messages, said, question))

    async def _send(self, ask: Ask) -> Exchange:
        self._flying.add(ask)
        self._most_flying = max(self._most_flying, len(self._flying))
        exchange = await self._sender.send(ask)
        failure = exchange.failure
        if failure is None or failure.kind not in CONNECTION_ERRORS or _finished(exchange):
            self._failures = 0
            return exchange
        self._failures += 1
        if self._failures >= (self.plan.max_errors or max(8, 2 * self._most_flying)):
            self.stop.request(
                f"{self._failures} requests in a row failed to reach the server or lost it "
                f"({failure.kind}: {failure.detail})"
            )
        return exchange

    def _enter(self, ask: Ask, exchange: Exchange, answer: Answer | None = None) -> None:
        self._flying.discard(ask)
        self._ledger.enter(ask, exchange, answer)

    # --- the whole ----------------------------------------------------------------------------------------------

    async def run(self, send: Callable[[Session], Awaitable[None]]) -> LoadRun:
        """Prepare, send everything as `send` does it, and bring what came of it.

        Cancelling it leaves no task and no socket behind. An exception of a callback ends it and comes through.
        """
        reader = asyncio.create_task(self._ledger.read())
        sending = asyncio.create_task(self._prepare_and_send(send))
        stopping = asyncio.create_task(self.stop.requested())
        try:
            await asyncio.wait({sending, reader, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (reader, sending):
                if task.done():
                    task.result()  # an error of the caller's callback, or a fault of ours, ends the run
            await _end(sending)
            self._cut()
            self._ledger.close()
            await reader
        finally:
            await _end(sending, reader, stopping)
            self._pool.close()
            health = ClientHealth() if self._probe is None else self._probe.stop()
        return LoadRun(
            records=tuple(self._ledger.records),
            client=self.punctuality.noted_in(health),
            assumptions=self._ledger.assumptions(
                usage_refused=not self._sender.option.on, untemplated=self._sender.untemplated
            ),
            stopped_because=self.stop.because,
            unsent=self._all_unsent(),
            disturbed=self.punctuality.faults(),
        )

    async def _prepare_and_send(self, send: Callable[[Session], Awaitable[None]]) -> None:
        failed = await self._sender.prepare()
        if failed is not None:
            self.stop.request(failed)
            return
        if self.stop.because is not None:
            return
        start = monotonic() if self._gate is None else await self._gate()
        self.begin = self._ledger.begin = start + self.plan.lead_s
        self._probe = LagProbe()
        limit = self.plan.max_seconds
        try:
            async with asyncio.timeout(None if limit is None else max(0.0, start + limit - monotonic())):
                await send(self)
        except TimeoutError:
            self.stop.request(f"the limit of {limit:g} s was reached")

    def _cut(self) -> None:
        """Keep what the requests under way had brought when the run was stopped."""
        for ask in sorted(self._flying, key=lambda ask: ask.exchange.sent_at if ask.exchange else 0.0):
            exchange = ask.exchange
            if exchange is None or (exchange.end_at is None and not ask.written):
                if not ask.job.warmup:
                    self.unsent[NOT_OPEN] += 1
                continue
            if exchange.end_at is None:
                exchange.fail(CUT, self.stop.because or "")
            self._ledger.enter(ask, exchange)
        self._flying.clear()

    def _all_unsent(self) -> dict[str, int]:
        """Every request that was planned is in the records or here."""
        left = self.plan.total - self._ledger.measured - self.unsent.total()
        if left and self.stop.because is not None:
            self.unsent[self.stop.because] += left
        return dict(self.unsent)


def _finished(exchange: Exchange) -> bool:
    """Whether the answer was all there before its connection went."""
    return bool(exchange.reads) and b"[DONE]" in exchange.reads[-1][1]


async def _end(*tasks: asyncio.Task[None] | asyncio.Task[str]) -> None:
    """Cancel tasks and wait until they are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
