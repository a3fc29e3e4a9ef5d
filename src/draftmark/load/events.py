"""The JSON of answers, of which only the fields that count are decoded, and of error documents."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

DETAIL_LIMIT = 300
"""Characters kept of a server's words."""
ABSENT = msgspec.Raw(b"null")
"""Stands for a field that is not there; one that is there is another object, whatever it says."""


class Usage(msgspec.Struct, gc=False):
    """Token counts: of the whole answer, or of all so far."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Timings(msgspec.Struct, gc=False):
    """llama.cpp's own counts."""

    predicted_n: int | None = None
    prompt_n: int | None = None
    cache_n: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: msgspec.Raw = ABSENT


class Choice(msgspec.Struct, gc=False):
    """What one chunk adds."""

    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    message: _Delta | None = None  # of an answer that is no stream

    def carried(self) -> str:
        """Whatever the model put out in this chunk: text, reasoning or a part of a tool call."""
        if self.text:
            return self.text
        delta = self.delta or self.message
        if delta is None:
            return ""
        said = (delta.reasoning_content or delta.reasoning or "") + (delta.content or "")
        if not said and (calls := bytes(delta.tool_calls)) not in {b"null", b"[]"}:
            return calls.decode("utf-8", "replace")
        return said

    def content(self) -> str:
        """Of that, what belongs into the conversation: neither reasoning nor tool calls."""
        delta = self.delta or self.message
        return self.text or (delta.content if delta is not None else None) or ""


class Event(msgspec.Struct, gc=False):
    """One event of a stream."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    error: msgspec.Raw = ABSENT
    object: str | None = None  # "error" in older vLLM, with `message` beside it
    message: str | None = None

    def said(self) -> str | None:
        """Its text, where it is one choice with new text and, but for counts, nothing else; None of any other."""
        choices = self.choices
        if choices is None or len(choices) != 1 or self.error is not ABSENT or self.object == "error":
            return None
        choice = choices[0]
        if choice.finish_reason is not None:
            return None
        delta = choice.delta
        if delta is None:
            return choice.text or None
        if choice.text is None and delta.reasoning_content is None and delta.reasoning is None:
            return delta.content or None
        return None


decode_event = msgspec.json.Decoder(Event).decode
"""One event."""
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a server's JSON can raise."""


def says(data: bytes) -> bool:
    """Whether an event has text, and but for counts nothing else."""
    try:
        return decode_event(data).said() is not None
    except DECODE_ERRORS:
        return False


# --- ordinary events --------------------------------------------------------------------------------------

# To decode an event costs by the fields that are looked for and by the types that each may have. Nearly all events
# of a stream are alike: one choice with new text, counts at most, and no error. A decoder that knows nothing else
# takes half of the time, and refuses all that is otherwise.


class Counting(Protocol):
    """What may count."""

    usage: Usage | None
    timings: Timings | None


class _OrdinaryDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: None = None

    def carried(self) -> str:
        """As of `Choice`."""
        return (self.reasoning_content or self.reasoning or "") + (self.content or "")


class _OrdinaryChoice(msgspec.Struct, gc=False):
    text: str | None = None
    delta: _OrdinaryDelta | None = None
    finish_reason: None = None


class Ordinary(msgspec.Struct, gc=False):
    """An event that is one choice with, perhaps, text or a delta, and counts."""

    choices: tuple[_OrdinaryChoice]
    usage: Usage | None = None
    timings: Timings | None = None
    error: None = None
    object: Literal["text_completion", "chat.completion.chunk"] | None = None


_decode_ordinary = msgspec.json.Decoder(Ordinary).decode


def ordinary(events: list[bytes]) -> tuple[list[Ordinary], list[str], bool] | None:
    """Events, the text of each, and whether that is all content; None unless all are ordinary and say something."""
    try:
        decoded = list(map(_decode_ordinary, events))
    except DECODE_ERRORS:
        return None
    texts = [event.choices[0].text or "" for event in decoded]
    deltas = [delta for event in decoded if (delta := event.choices[0].delta) is not None]
    content = True
    if deltas:
        if len(deltas) != len(texts) or any(texts):
            return None
        texts = [delta.content or "" for delta in deltas]
        content = all(texts) and not any(delta.reasoning or delta.reasoning_content for delta in deltas)
        if not content:
            texts = [delta.carried() for delta in deltas]
    return (decoded, texts, content) if all(texts) else None


def error_message(body: bytes) -> str | None:
    """The server's words in an error document: OpenAI's, vLLM's, FastAPI's or llama.cpp's. None if it is none."""
    try:
        document = msgspec.json.decode(body)
    except DECODE_ERRORS:
        return None
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if error is None or error is False:
        error = document.get("detail") or (document.get("message") if "choices" not in document else None)
    if isinstance(error, dict):
        error = error.get("message") or error
    if error is None:
        return None
    return (error if isinstance(error, str) else msgspec.json.encode(error).decode())[:DETAIL_LIMIT]
