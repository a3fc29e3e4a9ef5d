"""How a simulated server answers: SGLang's own form and OpenAI's, streamed or whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from draftmark.sim.http import Connection
from draftmark.sim.requests import Request
from draftmark.sim.text import answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What all answers of a server share.

    Attributes:
        minor: Version 0.5.minor: names of the draft figures.
        speculates: Whether there are any.
        incremental: `--incremental-streaming-output`.
        seconds: The simulated clock.
    """

    minor: int
    speculates: bool
    incremental: bool
    model: str
    seconds: Callable[[], float]
    created: Callable[[], int]


def spec_figures(request: Request, minor: int) -> dict[str, object]:
    """What became of a request's drafts, by the names of a version (14:tokenizer_manager.py:2301)."""
    rate = request.taken / request.proposed if request.proposed else 0.0
    common: dict[str, object] = {
        "spec_accept_rate": rate,
        "spec_accept_length": request.accept_len,
        "spec_verify_ct": request.rounds,
    }
    old = {
        "spec_accept_token_num": request.taken,
        "spec_draft_token_num": request.proposed,
        "spec_accept_histogram": request.histogram,
    }
    if minor <= 10:
        return common | old
    new = {
        "spec_num_correct_drafts": request.taken,
        "spec_num_proposed_drafts": request.proposed,
        "spec_correct_drafts_histogram": request.histogram,
    }
    aliases = {
        "spec_accepted_drafts": request.taken,
        "spec_proposed_drafts": request.proposed,
        "spec_accept_histogram": request.histogram,
    }
    return common | new | (aliases if minor <= 17 else {})


def _finish(request: Request) -> dict[str, object] | None:
    if request.finished is None:
        return None
    if request.finished == "length":
        return {"type": "length", "length": request.output}
    return {"type": request.finished}


class Generate:
    """`/generate`, streamed. Text and ids are all so far in each chunk, unless told otherwise."""

    def __init__(self, connection: Connection, style: Style) -> None:
        self._connection = connection
        self._style = style
        self._text = self._ids = self._rid = ""
        self._begun = False

    def tokens(self, request: Request, count: int) -> None:
        """A chunk."""
        text, ids = answer(request.digest, request.output - count, count)
        if not self._style.incremental and self._ids:
            text, ids = self._text + text, f"{self._ids},{ids}"
        self._text, self._ids = text, ids
        if not self._begun:
            self._begun = True
            self._connection.begin()
        head = b'data: {"text":"%b","output_ids":[%b],"meta_info":' % (text.encode(), ids.encode())
        if request.finished is None:
            self._connection.send(head + self._running(request))
            return
        self._connection.end(head + _meta(request, self._style) + b"}\n\ndata: [DONE]\n\n")

    def failed(self, request: Request, message: str) -> None:  # noqa: ARG002 - as every sink
        """The error, in the stream if there is one."""
        _fail(self._connection, message, self._begun)

    def _running(self, request: Request) -> bytes:
        self._rid = self._rid or msgspec.json.encode(request.rid).decode()
        return (
            f'{{"id":{self._rid},"finish_reason":null,"prompt_tokens":{request.prompt},"weight_version":"default",'
            f'"num_retractions":{request.retractions},"completion_tokens":{request.output},"cached_tokens":0}}}}\n\n'
        ).encode()


class GenerateWhole:
    """`/generate`, not streamed."""

    def __init__(self, connection: Connection, style: Style) -> None:
        self._connection = connection
        self._style = style

    def tokens(self, request: Request, count: int) -> None:  # noqa: ARG002 - only the end is told
        """The answer, at its end."""
        if request.finished is None:
            return
        text, ids = answer(request.digest, 0, request.output)
        body = b'{"text":"%b","output_ids":[%b],"meta_info":%b}' % (
            text.encode(), ids.encode(), _meta(request, self._style),
        )  # fmt: skip
        self._connection.whole(200, body)

    def failed(self, request: Request, message: str) -> None:  # noqa: ARG002 - as every sink
        """The error."""
        _fail(self._connection, message, begun=False)


def _meta(request: Request, style: Style) -> bytes:
    found: dict[str, object] = {
        "id": request.rid,
        "finish_reason": _finish(request),
        "prompt_tokens": request.prompt,
        "weight_version": "default",
        "num_retractions": request.retractions,
        "completion_tokens": request.output,
        "cached_tokens": 0,
        "e2e_latency": round(style.seconds() - request.entered_s, 6),
    }
    if style.speculates:
        found |= spec_figures(request, style.minor)
    return msgspec.json.encode(found)


class OpenAI:
    """`/v1/chat/completions` and `/v1/completions`.

    Args:
        chat: Which of the two.
        stream: Chunk by chunk.
        usage: A last chunk with counts; `continuous`: counts in every one.
    """

    def __init__(
        self, connection: Connection, style: Style, *, chat: bool, stream: bool, usage: bool, continuous: bool
    ) -> None:
        self._connection = connection
        self._style = style
        self._chat = chat
        self._stream = stream
        self._usage = usage
        self._continuous = continuous
        self._begun = False

    def tokens(self, request: Request, count: int) -> None:
        """A chunk, or at the end the answer."""
        if not self._stream:
            if request.finished is not None:
                self._connection.json(200, self._whole(request))
            return
        said = b""
        if not self._begun:
            self._begun = True
            self._connection.begin()
            said = self._event(request, {"role": "assistant", "content": ""}, None) if self._chat else b""
        text, _ = answer(request.digest, request.output - count, count)
        said += self._event(request, {"content": text} if self._chat else text, request.finished)
        if request.finished is None:
            self._connection.send(said)
            return
        if self._usage:
            said += b"data: %b\n\n" % msgspec.json.encode(
                {**self._head(request, chunk=True), "choices": [], "usage": _usage(request)}
            )
        self._connection.end(said + b"data: [DONE]\n\n")

    def failed(self, request: Request, message: str) -> None:  # noqa: ARG002 - as every sink
        """The error, in the stream if there is one."""
        _fail(self._connection, message, self._begun)

    def _head(self, request: Request, *, chunk: bool) -> dict[str, object]:
        kind = ("chat.completion" if self._chat else "text_completion") + (".chunk" if chunk and self._chat else "")
        return {"id": request.rid, "object": kind, "created": self._style.created(), "model": self._style.model}

    def _event(self, request: Request, said: object, finish: str | None) -> bytes:
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": finish, "matched_stop": None}
        choice["delta" if self._chat else "text"] = said
        document = {**self._head(request, chunk=True), "choices": [choice]}
        if self._continuous:
            document["usage"] = _usage(request)
        return b"data: %b\n\n" % msgspec.json.encode(document)

    def _whole(self, request: Request) -> dict[str, object]:
        text, _ = answer(request.digest, 0, request.output)
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": request.finished}
        choice |= {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        return {**self._head(request, chunk=False), "choices": [choice], "usage": _usage(request)}


def _usage(request: Request) -> dict[str, object]:
    return {
        "prompt_tokens": request.prompt,
        "completion_tokens": request.output,
        "total_tokens": request.prompt + request.output,
        "prompt_tokens_details": None,
    }


def _fail(connection: Connection, message: str, begun: bool) -> None:
    error = {"error": {"message": message, "type": "InternalServerError", "code": 500}}
    if begun:
        connection.end(b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(error))
    else:
        connection.json(500, error)


class Health:
    """The one token of a health check: nobody reads it, and that it came is what matters."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done

    def tokens(self, request: Request, count: int) -> None:  # noqa: ARG002 - any will do
        """It came."""
        self._done()

    def failed(self, request: Request, message: str) -> None:
        """It did not."""
