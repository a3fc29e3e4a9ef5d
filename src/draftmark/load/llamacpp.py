"""llama-server's own `/completion`: how its answers are read.

A chunk is `{"content", "tokens", "stop": false, "tokens_predicted", "tokens_evaluated"}`, with counts of all tokens
so far. The last one has `"stop": true`, no new text, why it stopped, and the timings, which say what became of the
drafts; no `[DONE]` follows. An answer that is no stream is such a last chunk with the whole text.
"""

from __future__ import annotations

import msgspec

from draftmark.load.answers import AnswerReader
from draftmark.load.events import Choice, Event, Timings, Usage


class _Chunk(msgspec.Struct):
    content: str | None = None
    stop: bool = False
    stop_type: str | None = None
    stopped_eos: bool = False  # builds before `stop_type`
    stopped_word: bool = False
    stopped_limit: bool = False
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: Timings | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")
    message: str | None = None

    def finish(self) -> str | None:
        """Why it stopped, in the server's word; None while it goes on."""
        if not self.stop:
            return None
        if self.stop_type is not None:
            return self.stop_type
        told = {"eos": self.stopped_eos, "word": self.stopped_word, "limit": self.stopped_limit}
        return next((word for word, true in told.items() if true), "stop")


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class CompletionReader(AnswerReader):
    """Reads one answer of `/completion`."""

    _take_many = AnswerReader._take_each

    def _decode(self, data: bytes) -> Event:
        chunk = _decode_chunk(data)
        usage = Usage(prompt_tokens=chunk.tokens_evaluated, completion_tokens=chunk.tokens_predicted)
        return Event(
            choices=[Choice(text=chunk.content, finish_reason=chunk.finish())],
            usage=usage,
            timings=chunk.timings,
            error=chunk.error,
            message=chunk.message,
        )
