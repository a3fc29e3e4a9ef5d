"""An answer's bytes → `Answer`, by the API that it was asked over. The one entry for whoever sends requests."""

from __future__ import annotations

import asyncio

from draftmark.load.answers import Answer, AnswerReader, refusal
from draftmark.load.http1 import Exchange
from draftmark.load.llamacpp import CompletionReader
from draftmark.load.native import GenerateReader
from draftmark.load.stamps import READ_BYTES

_STEP_BYTES = 32_768
"""Decoded between two turns of the loop, or what one read brought: some tenths of a millisecond."""
_READERS: dict[str, type[AnswerReader]] = {"sglang": GenerateReader, "llamacpp": CompletionReader}


def reader_of(
    api: str, *, stream: bool = True, max_tokens: int | None = None, keep_text: bool = False
) -> AnswerReader:
    """A reader for one answer of this API (its name in `protocols.APIS`)."""
    return _READERS.get(api, AnswerReader)(max_tokens, stream=stream, keep_text=keep_text)


async def read_answer(
    exchange: Exchange, *, api: str, stream: bool = True, max_tokens: int | None = None, keep_text: bool = False
) -> Answer:
    """Decode an answer in steps, letting the arrivals of others be stamped between them.

    Args:
        exchange: It has ended.
        api: Its name in `protocols.APIS`.
        stream: The answer was asked for as a stream.
        max_tokens: What the request asked for at most; None when it is not known.
        keep_text: The answer shall carry its text.
    """
    if exchange.status != 200:
        return refusal(exchange)
    reader = reader_of(api, stream=stream, max_tokens=max_tokens, keep_text=keep_text)
    step: list[tuple[float, bytes]] = []
    size = 0
    for at, data in exchange.reads:
        for start in range(0, len(data), READ_BYTES):
            piece = data if len(data) <= READ_BYTES else data[start : start + READ_BYTES]
            step.append((at, piece))
            size += len(piece)
            if size >= _STEP_BYTES:
                reader.feed_reads(step)
                step, size = [], 0
                await asyncio.sleep(0)
    if step:
        reader.feed_reads(step)
    return reader.finish(exchange)
