"""One request after another to a server: its body, its connection, and what must be known beforehand.

A request goes over a kept connection where one is free, else over a new one. `Exchange.sent_at` is the moment at
which its first byte was written, so that no opening is in the times counted from it: they are the server's. The
times counted from the intended send hold it, as its user would wait for it; `Ask.connect_s` says how long it took.
"""

from __future__ import annotations

from time import monotonic

from draftmark.errors import UsageError
from draftmark.load.answers import excerpt
from draftmark.load.endpoint import ConnectError, Endpoint
from draftmark.load.http1 import Exchange
from draftmark.load.plan import Job, LoadPlan
from draftmark.load.pool import Pool
from draftmark.load.protocols import (
    APIS,
    NativeInput,
    completion_body,
    first_model,
    generate_body,
    plain_text,
    request_body,
    template_body,
    templated,
    token_ids,
    tokenize_body,
)
from draftmark.model import Message, Prompt

_MODEL_TIMEOUT_S = 5.0


class Ask:
    """One request on its way.

    Attributes:
        prompt: With the conversation so far.
        intended_at: When it should have gone out, on the monotonic clock; None in a closed loop.
        exchange: What has come of it; None before it was tried.
        written: It has a connection, and went out on it.
        connect_s: How long opening a connection for it took; None over a kept one.
    """

    __slots__ = ("connect_s", "exchange", "intended_at", "job", "prompt", "turn", "written")

    def __init__(self, job: Job, turn: int, prompt: Prompt, intended_at: float | None) -> None:
        self.job = job
        self.turn = turn
        self.prompt = prompt
        self.intended_at = intended_at
        self.exchange: Exchange | None = None
        self.connect_s: float | None = None
        self.written = False

    @property
    def tag(self) -> str:
        """`bench-27`, or `bench-27.1` for what follows."""
        return f"{self.job.tag}.{self.turn}" if self.turn else self.job.tag


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


class _UnreachableError(Exception):
    """The server could not be asked for what a request needs."""


class Sender:
    """Sends the requests of one run.

    Attributes:
        option: Whether `stream_options` are sent.
        untemplated: The server's native form was asked without its chat template, as it lets nobody have that.
    """

    def __init__(self, endpoint: Endpoint, plan: LoadPlan, pool: Pool) -> None:
        self.option = _UsageOption()
        self.untemplated = False
        self._endpoint = endpoint
        self._plan = plan
        self._pool = pool
        self._api = APIS[plan.api]
        self._model = plan.model
        self._inputs: dict[tuple[Message, ...], NativeInput] = {}

    # --- beforehand ---------------------------------------------------------------------------------------------

    async def prepare(self) -> str | None:
        """Ask for what the requests need: the model's name, and the prompts as the native forms take them.

        Some servers refuse a request without their own name for their model.

        Returns:
            Why the server cannot be asked at all, in words; None when it can.

        Raises:
            UsageError: The server does not tell; asking it without its chat template would be another workload.
        """
        if self._model is None:
            exchange = await self._once(self._endpoint.request("GET", "/v1/models"), _MODEL_TIMEOUT_S)
            self._model = first_model(_body(exchange)) if exchange.status == 200 else None
        if not self._api.native:
            return None
        for prompt in self._plan.workload.prompts:
            if prompt.token_ids is None and prompt.messages not in self._inputs:
                try:
                    self._inputs[prompt.messages] = await self._made_input(prompt)
                except _UnreachableError as error:
                    return str(error)
        return None

    async def _made_input(self, prompt: Prompt) -> NativeInput:
        """What the server makes of a prompt for its native form.

        A server without a place to ask for that gets the messages' texts as they are.

        Raises:
            UsageError: It does not tell.
            _UnreachableError: It could not be asked.
        """
        if self.untemplated:
            return plain_text(prompt)
        sglang = self._api.name == "sglang"
        path = "/tokenize" if sglang else "/apply-template"
        body = tokenize_body(prompt, self._model) if sglang else template_body(prompt)
        exchange = await self._once(self._endpoint.request("POST", path, body), self._plan.request_timeout_s)
        if exchange.failure is not None:
            raise _UnreachableError(f"POST {path}: {exchange.failure.kind}: {exchange.failure.detail}")
        if exchange.status == 404:
            self.untemplated = True
            return plain_text(prompt)
        told = _body(exchange)
        found = (token_ids(told) if sglang else templated(told)) if exchange.status == 200 else None
        if found is None:
            what = "token ids" if sglang else "text with its chat template"
            raise UsageError(
                f"the server does not turn messages into {what}, which its native API is asked with",
                evidence=(f"POST {path}: HTTP {exchange.status}: {excerpt(told)}",),
                next_step="ask it over --api openai-chat",
            )
        return found

    # --- a request ----------------------------------------------------------------------------------------------

    async def send(self, ask: Ask) -> Exchange:
        """Send one request and wait until its answer has ended, well or not."""
        found: NativeInput = ""
        if self._api.native:
            try:
                found = await self._input(ask)
            except (_UnreachableError, UsageError) as error:
                ask.exchange = exchange = Exchange()
                exchange.fail("preparation", str(error))
                return exchange
        option = self.option
        usage = option.on and self._plan.stream and not self._api.native
        exchange = await self._exchange(ask, self._body(ask, found, usage=usage))
        if not usage:
            return exchange
        if exchange.status == 200:
            option.learn(accepted_with=True)
        elif option.doubtful(exchange.status) or (not option.on and exchange.status in {400, 422}):
            again = await self._exchange(ask, self._body(ask, found, usage=False))
            if again.failure is None or again.status is not None:
                option.learn(accepted_without=again.status == 200)
            return again
        return exchange

    async def _input(self, ask: Ask) -> NativeInput:
        """What the native form takes; of a follow-up, only now that its conversation is known."""
        if ask.prompt.token_ids is not None:
            return ask.prompt.token_ids
        return await self._made_input(ask.prompt) if ask.turn else self._inputs[ask.prompt.messages]

    async def _exchange(self, ask: Ask, body: bytes) -> Exchange:
        request = self._endpoint.request("POST", self._api.path, body, request_id=ask.tag)
        while True:
            ask.exchange = exchange = Exchange()
            connection = self._pool.take()
            reused = connection is not None
            if connection is None:
                begin = monotonic()
                try:
                    connection = await self._pool.open()
                except ConnectError as error:
                    exchange.fail(error.failure.kind, error.failure.detail)
                    return exchange
                ask.connect_s = monotonic() - begin
            ask.written = True
            await connection.send(request, exchange, self._plan.request_timeout_s)
            self._pool.give(connection)
            if not (reused and exchange.stale):
                return exchange

    def _body(self, ask: Ask, found: NativeInput, *, usage: bool) -> bytes:
        plan, prompt = self._plan, ask.prompt
        if self._api.name == "sglang":
            return generate_body(prompt, found, plan.extra, ask.tag, stream=plan.stream)
        if self._api.native:
            return completion_body(prompt, found, plan.extra, ask.tag, stream=plan.stream)
        return request_body(
            self._api,
            prompt,
            tag=ask.tag,
            model=self._model,
            usage=usage,
            stream=plan.stream,
            extra=plan.extra,
        )

    async def _once(self, request: bytes, timeout_s: float) -> Exchange:
        """A request on a connection of its own, outside of the measurement."""
        exchange = Exchange()
        try:
            connection = await self._pool.open()
        except ConnectError as error:
            exchange.fail(error.failure.kind, error.failure.detail)
            return exchange
        try:
            await connection.send(request, exchange, timeout_s)
        finally:
            connection.abort()
        return exchange


def _body(exchange: Exchange) -> bytes:
    return b"".join(data for _, data in exchange.reads)
