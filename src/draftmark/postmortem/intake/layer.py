"""One kind of prefix."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from draftmark.postmortem.intake.head import Head

Note: TypeAlias = Callable[[re.Match[str], Head], int]


class Layer:
    """A pattern, matched at a position of the line, and what it says of the line.

    Patterns are linear: bounded repeats, no nesting. They are compiled when they are first tried: there are dozens,
    and a short log needs a few.

    Args:
        pattern: Of the prefix.
        note: Notes what a match says, and returns where the text goes on, or -1 to decline.
    """

    __slots__ = ("match", "note")

    def __init__(self, pattern: str, note: Note) -> None:
        self.note = note
        self.match: Callable[[str, int], re.Match[str] | None]

        def first(text: str, at: int) -> re.Match[str] | None:
            self.match = re.compile(pattern).match
            return self.match(text, at)

        self.match = first
