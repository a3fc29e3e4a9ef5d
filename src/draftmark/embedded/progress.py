"""What a first set-up shows while it works: the seam, a silent one, and one for the terminal."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.console import Console


class Progress(Protocol):
    """Told what is being done. One step at a time: `step`, any number of `advance`, `done`."""

    def step(self, name: str, total_bytes: int | None) -> None:
        """A step begins; `total_bytes` is None where its size is unknown."""
        ...

    def advance(self, done_bytes: int) -> None:
        """Bytes done of this step so far (not since the last call)."""
        ...

    def done(self, note: str) -> None:
        """The step ended; `note` is one line for people."""
        ...


class NullProgress:
    """Shows nothing."""

    def step(self, name: str, total_bytes: int | None) -> None:
        """Ignored."""

    def advance(self, done_bytes: int) -> None:
        """Ignored."""

    def done(self, note: str) -> None:
        """Ignored."""


class RichProgress:
    """A bar on a terminal: what is awaited, bytes, speed, elapsed; plain lines where there is no terminal.

    Nothing appears before the first step, so that a warm start shows nothing at all. Use as a context manager.
    """

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn
        from rich.progress import Progress as Bars

        self._console = console
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("", total=None, visible=False)
        self._started = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started:
            self._bars.stop()

    def step(self, name: str, total_bytes: int | None) -> None:
        """Begin a bar, its clock at zero."""
        if not self._started:
            self._bars.start()
            self._started = True
        self._bars.reset(self._task, description=name, total=total_bytes, visible=True)
        if not self._console.is_terminal:
            self._line(f"{name} …")

    def advance(self, done_bytes: int) -> None:
        """Move the bar."""
        self._bars.update(self._task, completed=done_bytes)

    def done(self, note: str) -> None:
        """Replace the bar by a line that stays."""
        self._bars.update(self._task, visible=False)
        self._line(note)

    def _line(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)
