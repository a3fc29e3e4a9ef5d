"""SGLang's own `/generate`: how its answers are read.

It is asked with token ids, which the server's `/tokenize` has made of the messages with the chat template: the very
prompt that `/v1/chat/completions` would have made. Its answers say, per request, what became of the drafts.

A chunk is `{"text", "output_ids", "meta_info"}`, its text all so far, or only what is new under
`--incremental-streaming-output`; `completion_tokens` in `meta_info` counts all so far in every chunk. Names of the
draft figures changed: those of 0.5.10, those of 0.5.12 to 0.5.17, and those since.
"""

from __future__ import annotations

import msgspec

from draftmark.load.answers import MOST_TOKENS, Answer, AnswerReader
from draftmark.load.events import Choice, Event, Usage
from draftmark.load.http1 import Exchange

_LONG_TEXT = 64  # letters; nobody says as much twice in a row by chance, with nothing before it
_MOST_ACCEPTED = 1024  # of one round; a longer histogram is none


class _Meta(msgspec.Struct):
    finish_reason: msgspec.Raw = msgspec.Raw(b"null")
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    spec_num_proposed_drafts: int | None = None
    spec_proposed_drafts: int | None = None
    spec_draft_token_num: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_accepted_drafts: int | None = None
    spec_accept_token_num: int | None = None
    spec_correct_drafts_histogram: list[int] | None = None
    spec_accept_histogram: list[int] | None = None

    def drafted(self) -> int | None:
        return _first(self.spec_num_proposed_drafts, self.spec_proposed_drafts, self.spec_draft_token_num)

    def accepted(self) -> int | None:
        return _first(self.spec_num_correct_drafts, self.spec_accepted_drafts, self.spec_accept_token_num)

    def histogram(self) -> tuple[int, ...] | None:
        """Rounds by the number of drafts accepted in them; None where there is none, or one that cannot be true."""
        found = self.spec_correct_drafts_histogram or self.spec_accept_histogram
        if not found or len(found) > _MOST_ACCEPTED or any(not 0 <= count <= MOST_TOKENS for count in found):
            return None
        return tuple(found)


class _Chunk(msgspec.Struct):
    text: str | None = None
    output_ids: list[int] | None = None
    meta_info: _Meta | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Finish(msgspec.Struct):
    type: str | None = None
    message: str | None = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_decode_finish = msgspec.json.Decoder(_Finish | str | None).decode


class GenerateReader(AnswerReader):
    """Reads one answer of `/generate`."""

    def __init__(self, max_tokens: int | None = None, *, stream: bool = True, keep_text: bool = False) -> None:
        super().__init__(max_tokens, stream=stream, keep_text=keep_text)
        self._so_far: list[
            str
        ] = []  # in pieces: joined only for a text that is at least as long as they are together
        self._so_far_length = 0
        self._meta = _Meta()

    _take_many = AnswerReader._take_each

    def finish(self, exchange: Exchange) -> Answer:
        """The whole answer, once everything was fed, with what became of its drafts."""
        answer = super().finish(exchange)
        meta = self._meta
        drafted = self._believed(meta.drafted(), MOST_TOKENS)
        accepted = self._believed(meta.accepted(), drafted or 0)
        if drafted is not None and accepted is not None:
            answer.drafted_tokens, answer.accepted_tokens = drafted, accepted
            answer.accepted_histogram = meta.histogram()
        return answer

    def _decode(self, data: bytes) -> Event:
        chunk = _decode_chunk(data)
        meta = self._meta = chunk.meta_info or self._meta
        reason = _decode_finish(meta.finish_reason)
        finish = reason.type if isinstance(reason, _Finish) else reason
        if finish == "abort":
            message = reason.message if isinstance(reason, _Finish) else None
            return Event(error=msgspec.Raw(msgspec.json.encode({"message": message or "the request was aborted"})))
        said = self._new(chunk)
        usage = Usage(prompt_tokens=meta.prompt_tokens, completion_tokens=meta.completion_tokens)
        return Event(choices=[Choice(text=said, finish_reason=finish)], usage=usage, error=chunk.error)

    def _new(self, chunk: _Chunk) -> str:
        """What this chunk adds. All ids so far beside a text that goes on from the last one make it cumulative.

        A text that repeats all of a long one is cumulative, too, whatever its ids are.
        """
        text = chunk.text or ""
        total = self._meta.completion_tokens
        whole = chunk.output_ids is None or total is None or len(chunk.output_ids) >= total
        length = self._so_far_length
        if len(text) >= length and (whole or length >= _LONG_TEXT) and text.startswith("".join(self._so_far)):
            self._so_far, self._so_far_length = [text], len(text)
            return text[length:]
        self._so_far.append(text)
        self._so_far_length += len(text)
        return text


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
