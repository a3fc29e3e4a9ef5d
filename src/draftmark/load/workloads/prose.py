"""Text of a wanted length, made of real sentences, and how long a text is in tokens, roughly.

Draftmark has no tokeniser of its own: which one counts is the server's affair, and its usage gives the true number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from random import Random

from draftmark.model import Workload

BYTES_PER_TOKEN = 4.4
"""Of English prose, in UTF-8: 4.38 with SmolLM2's 49 000 tokens over the built-in text; vocabularies of 130 000 to
150 000 come to about 4.6, code to 3.5. Bytes serve other scripts better than characters do."""

_RUN = 5  # sentences that stay together
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")  # noqa: RUF001 - full-width marks end sentences, too
_LONGEST_SENTENCE = 600


def estimated_tokens(text: str) -> int:
    """Tokens in a text, within a fifth for prose; at least 1."""
    return max(1, round(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN))


class Prose:
    """Passages cut from a stock of sentences.

    Args:
        texts: What the sentences are taken from.
        seed: Another seed makes other passages under the same keys.
    """

    def __init__(self, texts: Iterable[str], seed: int = 0) -> None:
        sentences = [
            piece.strip()[:_LONGEST_SENTENCE] for text in texts for piece in _SENTENCE.split(text) if piece.strip()
        ]
        self._runs = [" ".join(sentences[i : i + _RUN]) for i in range(len(sentences))]
        self._seed = seed
        self.tokens = estimated_tokens(" ".join(sentences))

    @classmethod
    def built_in(cls, seed: int = 0) -> Prose:
        """From the text that comes with Draftmark."""
        return cls(chapters(), seed)

    @classmethod
    def of(cls, workloads: Iterable[Workload], seed: int = 0) -> Prose:
        """From what the prompts of these workloads say."""
        return cls((m.content for w in workloads for p in w.prompts for m in p.messages), seed)

    def passage(self, tokens: int, key: str) -> str:
        """About so many tokens of text: for the same key the same, for another one that begins otherwise.

        Args:
            tokens: From 1 on; a shorter passage of the same key is the beginning of a longer one.
            key: What it is for; stands at its beginning.
        """
        size = max(1, round(tokens * BYTES_PER_TOKEN))
        draw = Random(f"{self._seed} {key}")  # noqa: S311 - chance that must repeat, not a secret
        parts = [f"({key})"]
        have = len(parts[0])
        while have < size:
            parts.append(self._runs[draw.randrange(len(self._runs))])
            have += 1 + len(parts[-1].encode())
        return _cut(" ".join(parts), size)


@cache
def chapters() -> tuple[str, ...]:
    """The built-in text, by chapters, each with its heading."""
    text = resources.files("draftmark.load").joinpath("builtin", "prose.txt").read_text(encoding="utf-8")
    return tuple(f"# {chapter.strip()}" for chapter in text.split("# ")[1:])


def _cut(text: str, size: int) -> str:
    """The first `size` bytes of a text, back to the end of a word where that loses little."""
    cut = text.encode()[:size].decode("utf-8", "ignore")
    if len(cut) == len(text):
        return cut
    space = cut.rfind(" ")
    return cut[:space] if space > len(cut) - 20 and space > 0 else cut
