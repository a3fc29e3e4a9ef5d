"""Writes a simulated server's log: stamps as SGLang's, on stderr, a line at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime

Write = Callable[[str], object]


class Log:
    """The server's log.

    Args:
        now: The clock of its stamps.
        write: Takes text with its line end; stderr when None.
    """

    def __init__(self, now: Callable[[], datetime], write: Write | None = None) -> None:
        self._now = now
        self._write: Write = write if write is not None else sys.stderr.write

    def say(self, text: str, rank: str = "") -> None:
        """One stamped record; it may hold several lines."""
        stamp = self._now().strftime("%Y-%m-%d %H:%M:%S")
        self._write(f"[{stamp}{f' {rank}' if rank else ''}] {text}\n")

    def on_ranks(self, text: str, ranks: Sequence[str]) -> None:
        """The same from every rank."""
        for rank in ranks:
            self.say(text, rank)

    def plain(self, text: str) -> None:
        """A line without a stamp."""
        self._write(f"{text}\n")


def ranks_of(tp: int) -> tuple[str, ...]:
    """As stamps name them: nothing for a single one."""
    return tuple(f"TP{rank}" for rank in range(tp)) if tp > 1 else ("",)
