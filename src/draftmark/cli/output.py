"""Where results and progress go: stdout is for the result, stderr for the way there."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    sys.stdout.buffer.flush()


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `main`: a reader that has seen enough is no failure."""
        raise BrokenPipeError


def result_console() -> Console:
    """For the result; colours and widths follow the terminal, NO_COLOR is respected by rich."""
    return _Console(highlight=False)


def progress_console() -> Console:
    """For progress and notes."""
    return Console(stderr=True, highlight=False)
