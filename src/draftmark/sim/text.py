"""Words for a simulated server: a tokeniser that is no real one, and answers that mean nothing. Pure."""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

# Four characters a token or so, as real vocabularies have it for English.
_PIECE = re.compile(r"\s?\w{1,5}|\s?[^\w\s]{1,3}|\s")
_FIRST_ID = 1000
_REMEMBERED = 1 << 16

_WORDS = """
the of and to in is that it was for on are as with they at be this from have or by one had not but what all
were when we there can an your which their said if do will each about how up out them then she many some so
these would other into has more her two like him see time could no make than first been its who now people my
made over did down only way find use may water long little very after words called just where most know
"""
PIECES = tuple(f" {word}" for word in re.findall(r"\w+", _WORDS))
"""Texts of answer tokens, in the order in which they come round."""


class Tokenizer:
    """From text to ids and back, as far as it has seen the text.

    Args:
        vocabulary: How many ids there are.
    """

    def __init__(self, vocabulary: int) -> None:
        self._ids = max(1, vocabulary - _FIRST_ID)
        self._texts: OrderedDict[int, str] = OrderedDict()

    def encode(self, text: str) -> list[int]:
        """Ids of a text, which is remembered by them."""
        found = [_FIRST_ID + zlib.crc32(piece.encode()) % self._ids for piece in _PIECE.findall(text)]
        self._texts[hash(tuple(found))] = text
        if len(self._texts) > _REMEMBERED:
            self._texts.popitem(last=False)
        return found

    def text_of(self, ids: Sequence[int]) -> str:
        """The text that gave these ids; empty for ids that are nobody's."""
        return self._texts.get(hash(tuple(ids)), "")


def chat_text(messages: Sequence[Mapping[str, object]]) -> str:
    """Messages with a chat template."""
    said = "".join(
        f"<|im_start|>{message.get('role', 'user')}\n{content_of(message)}<|im_end|>\n" for message in messages
    )
    return f"{said}<|im_start|>assistant\n"


def content_of(message: Mapping[str, object]) -> str:
    """The text of a message, which may come in parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


def answer(digest: int, start: int, count: int) -> tuple[str, str]:
    """Text and ids, as JSON has them, of tokens `start` to `start + count` of an answer."""
    places = [(digest + 7 * place) % len(PIECES) for place in range(start, start + count)]
    return "".join([PIECES[place] for place in places]), ",".join([str(place + 100) for place in places])
