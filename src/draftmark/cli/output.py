"""Where results and progress go: stdout is for the result, stderr for the way there."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

import msgspec

from draftmark.errors import BadInputError

if TYPE_CHECKING:
    from rich.console import Console


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    if sys.stdout is None:
        raise BadInputError("stdout is closed, so the document has nowhere to go", next_step="leave stdout open")
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def result_console() -> Console:
    """For the result; colours and widths follow the terminal, NO_COLOR is respected by rich."""
    if sys.stdout is None:
        raise BadInputError("stdout is closed, so the result has nowhere to go", next_step="leave stdout open")
    from rich.console import Console

    class ResultConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to `main`: a reader that has seen enough is no failure."""
            raise BrokenPipeError

    return ResultConsole(highlight=False)


class _Patient(io.TextIOBase):
    """A stderr that may go away: a closed terminal or a full disk under it ends no run.

    Not `sys.stderr` by its name: while rich shows a bar, that name stands for the bar's own console.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding


def progress_console() -> Console:
    """For progress and notes. Whoever reads them may leave; the work goes on."""
    from rich.console import Console

    if sys.stderr is None:
        return Console(quiet=True)
    return Console(file=cast("IO[str]", _Patient(sys.stderr)), highlight=False)
