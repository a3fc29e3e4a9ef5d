"""Which hints stand in which lines: by a loop for a few lines, by a multi-pattern scan for many. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

_FEW = 400  # lines for which building the scanner costs more than it saves
_SHORT = 100_000  # characters, likewise


def hints_in(texts: Sequence[str], hints: Sequence[str]) -> list[list[str]]:
    """For each text the hints that it holds, in no order."""
    if len(texts) > _FEW or sum(map(len, texts)) > _SHORT:
        found = _scanned(texts, hints)
        if found is not None:
            return found
    return [[hint for hint in hints if hint in text] for text in texts]


def _scanned(texts: Sequence[str], hints: Sequence[str]) -> list[list[str]] | None:
    """The same with one pass over all texts; None where the scanner is not installed."""
    try:
        import hyperscan
    except ImportError:
        return None
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[hint.encode() for hint in hints],
        ids=list(range(len(hints))),
        elements=len(hints),
        literal=True,
    )
    data = [text.encode("utf-8", "replace") for text in texts]
    ends = list(accumulate(len(piece) + 1 for piece in data))
    hits: set[tuple[int, int]] = set()

    def note(index: int, _start: int, end: int, _flags: int, _context: Any) -> None:
        hits.add((bisect_right(ends, end - 1), index))

    database.scan(b"\n".join(data), match_event_handler=note)
    found: list[list[str]] = [[] for _ in texts]
    for place, index in hits:
        found[place].append(hints[index])
    return found
