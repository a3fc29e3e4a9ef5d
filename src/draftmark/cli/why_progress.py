"""Says on stderr what a long post-mortem waits for. A short one says nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

QUIET_S = 2.0
"""Seconds before the first word."""


class WhyProgress:
    """A line with what is awaited, the bytes read and the time spent; only on a terminal, gone when it is done.

    Args:
        console: Makes the console when there is something to say: a quick answer needs none.
    """

    def __init__(self, console: Callable[[], Console]) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._timer = threading.Timer(QUIET_S, self._begin)
        self._timer.daemon = True
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._now: tuple[str, int, int | None] = ("", 0, None)

    def __enter__(self) -> WhyProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()

    def awaits(self, what: str) -> None:
        """Something else is waited for."""
        self.read(what, 0, None)

    def read(self, what: str, done: int, total: int | None) -> None:
        """So many bytes of it were read, of so many if that is known."""
        self._now = (what, done, total)
        with self._lock:
            if self._bar is not None and self._task is not None:
                self._bar.update(
                    self._task, description=what, completed=done, total=total, amount=_amount(done, total)
                )

    def _begin(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        what, done, total = self._now
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}", markup=False),
            TimeElapsedColumn(),
        )
        bar = Progress(*columns, console=self._console(), transient=True)
        with self._lock:
            if self._timer.finished.is_set():  # it ended in the meantime
                return
            self._task = bar.add_task(what, completed=done, total=total, amount=_amount(done, total))
            bar.start()
            self._bar = bar


def _amount(done: int, total: int | None) -> str:
    """`1.2 GB of 3.0 GB`; empty where nothing is counted."""
    from rich.filesize import decimal

    if not done:
        return ""
    return decimal(done) if total is None else f"{decimal(done)} of {decimal(total)}"
