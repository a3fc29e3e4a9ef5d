"""Shows a load as it goes: a bar on a terminal; elsewhere a line every ten seconds."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from statistics import median
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from draftmark.load.timings import CUT, ttft_ms
from draftmark.model import RequestRecord

EVERY_S = 10.0
_REDRAWS = 4  # a second: each takes the interpreter from the arrivals for a millisecond or so
_RECENT = 2000  # first tokens of which the median is shown


class LoadView:
    """One measurement on a console.

    Args:
        console: Where progress goes.
        name: Of the measurement.
        total: Requests to come.
        slots: Closed loop: how many are under way at most.
        send_at_s: Open loop: when they are due.
        max_seconds: Limit of the whole.
    """

    def __init__(
        self,
        console: Console,
        name: str,
        *,
        total: int,
        slots: int,
        send_at_s: Sequence[float] | None = None,
        max_seconds: float | None = None,
    ) -> None:
        self._console = console
        self._name = name
        self._total = total
        self._slots = slots
        self._send_at_s = send_at_s
        self._max_seconds = max_seconds
        self._began = time.monotonic()
        self._done = 0
        self._tok_s: float | None = None
        self._errors: Counter[str] = Counter()
        self._first_ms: list[float] = []
        self._over = threading.Event()
        self._teller: threading.Thread | None = None
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            _Note(self),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            refresh_per_second=_REDRAWS,
        )
        self._task: TaskID = self._bars.add_task(name, total=total)

    def __enter__(self) -> LoadView:
        self._began = time.monotonic()
        self._bars.start()
        if not self._console.is_terminal:
            self._teller = threading.Thread(target=self._tell, name="draftmark-progress", daemon=True)
            self._teller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._bars.stop()
        if self._teller is not None:
            self._teller.join(1.0)

    def record(self, record: RequestRecord) -> None:
        """A request that has ended."""
        if record.warmup or record.error == CUT:
            return
        if record.error is not None:
            self._errors[record.error] += 1
        elif (ms := ttft_ms(record, intended=True)) is not None:
            self._first_ms.append(ms)

    def show(self, done: int, total: int, tok_s: float | None, errors: int) -> None:
        """How far it is; errors are counted by kind from the records."""
        del errors
        self._done, self._total, self._tok_s = done, total, tok_s
        self._bars.update(self._task, completed=done, total=total)

    def note(self) -> str:
        """Under way, tokens per second, median TTFT, errors by kind, time left."""
        spent = time.monotonic() - self._began
        parts = [f"{self._running(spent)} under way"]
        if self._tok_s is not None:
            parts.append(f"{self._tok_s:,.0f} tok/s")
        if self._first_ms:
            parts.append(f"TTFT p50 {median(self._first_ms[-_RECENT:]):.0f} ms")
        parts += [f"{count} {kind}" for kind, count in sorted(self._errors.items())]
        if (left := self._left_s(spent)) is not None:
            parts.append(f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left")
        return ", ".join(parts)

    def _running(self, spent: float) -> int:
        """Under way or waiting to be."""
        if self._send_at_s is None:
            return max(0, min(self._slots, self._total - self._done))
        return max(0, bisect_right(self._send_at_s, spent) - self._done)

    def _left_s(self, spent: float) -> float | None:
        """Until the last has ended, as far as can be said."""
        bounds = []
        if self._max_seconds is not None:
            bounds.append(max(0.0, self._max_seconds - spent))
        if self._send_at_s is not None and self._send_at_s[-1] > spent:
            bounds.append(self._send_at_s[-1] - spent)
        elif self._done and self._total > self._done:
            bounds.append(spent / self._done * (self._total - self._done))
        return min(bounds) if bounds else None

    def _tell(self) -> None:
        while not self._over.wait(EVERY_S):
            line = f"  {self._name}: {self._done} of {self._total} done, {self.note()}"
            self._console.print(line, style="dim", markup=False, soft_wrap=True)


class _Note(ProgressColumn):
    """The view's note, made anew at each redraw, so that it moves while nothing ends."""

    max_refresh = 0.25

    def __init__(self, view: LoadView) -> None:
        super().__init__()
        self._view = view

    def render(self, task: Task) -> Text:
        """The note; nothing of the task is needed."""
        del task
        return Text(self._view.note(), style="dim")
