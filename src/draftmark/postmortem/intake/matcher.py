"""Finds which of a few hundred literals a window of bytes holds: Hyperscan where it is installed, else `re`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

Found = Callable[[memoryview], Sequence[int]]


@lru_cache(maxsize=8)
def matcher(literals: tuple[bytes, ...]) -> Found:
    """Of a window: the indices of the literals in it, each once, in no order.

    Hyperscan reads 1 to 3 GB/s whatever the number of literals. Where it has no wheel or does not start,
    a pattern of Python does the same more than a hundred times slower.
    """
    if not literals:
        return lambda _window: ()
    try:
        return _hyperscan(literals)
    except Exception:
        return _pattern(literals)


def _hyperscan(literals: Sequence[bytes]) -> Found:
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=list(literals),
        ids=list(range(len(literals))),
        elements=len(literals),
        flags=[hyperscan.HS_FLAG_SINGLEMATCH] * len(literals),
        literal=True,
    )
    seen: list[int] = []

    def note(index: int, _start: int, _end: int, _flags: int, _context: Any) -> None:
        seen.append(index)

    def found(window: memoryview) -> Sequence[int]:
        seen.clear()
        database.scan(window, match_event_handler=note)  # type: ignore[type-var]
        return tuple(set(seen))

    return found


def _pattern(literals: Sequence[bytes]) -> Found:
    """A trie as a pattern, tried at every position; of literals with a common start, the longest is found."""
    index = {literal: number for number, literal in enumerate(literals)}
    search = re.compile(b"(?=(" + _trie(sorted(index)) + b"))")

    def found(window: memoryview) -> Sequence[int]:
        names = {match[1] for match in search.finditer(window)}
        return [number for literal, number in index.items() if any(name.startswith(literal) for name in names)]

    return found


def _trie(words: Sequence[bytes]) -> bytes:
    """Sorted words as one pattern without a choice between equal first bytes."""
    branches: dict[int, list[bytes]] = {}
    for word in words:
        if word:
            branches.setdefault(word[0], []).append(word[1:])
    parts = [re.escape(bytes([first])) + _trie(rests) for first, rests in branches.items()]
    body = parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")" if parts else b""
    return b"(?:" + body + b")?" if body and b"" in words else body
