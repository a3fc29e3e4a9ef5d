"""One kind of prefix, and patterns that are compiled when they are first tried."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from draftmark.postmortem.intake.head import Head

Note: TypeAlias = Callable[[re.Match[str], Head], int]


class Lazy:
    """A pattern, matched at a position of the line.

    Patterns are linear: bounded repeats, no nesting. They are compiled when they are first tried: there are dozens,
    and a short log needs a few.
    """

    __slots__ = ("match",)

    def __init__(self, pattern: str) -> None:
        self.match: Callable[[str, int], re.Match[str] | None]

        def first(text: str, at: int) -> re.Match[str] | None:
            self.match = re.compile(pattern).match
            return self.match(text, at)

        self.match = first


class Layer(Lazy):
    """A pattern, and what it says of the line.

    Args:
        pattern: Of the prefix.
        note: Notes what a match says, and returns where the text goes on, or -1 to decline.
    """

    __slots__ = ("note",)

    def __init__(self, pattern: str, note: Note) -> None:
        super().__init__(pattern)
        self.note = note
