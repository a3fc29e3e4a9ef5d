"""`draftmark tune --surface FILE.json`: the search against recorded figures, without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from draftmark.cli.output import print_json, progress_console, result_console
from draftmark.errors import BadInputError
from draftmark.report.figures import visible
from draftmark.tune import surface, surface_file

_LARGEST = 16 * 2**20  # bytes


def run(path: Path, *, as_json: bool) -> int:
    """Search, show each step, and what it comes to.

    Returns:
        10 where another depth than the baseline is recommended, else 0.

    Raises:
        BadInputError: The file cannot be read, or is no surface.
    """
    done = surface.replay(surface_file.read(_text(path), str(path)))
    steps = progress_console() if as_json else result_console()
    for line in _lines(done):
        steps.print(visible(line), markup=False, soft_wrap=True)
    if as_json:
        print_json(surface.document(done, str(path)))
    return done.exit_status


def _text(path: Path) -> bytes:
    """The file, or standard input for `-`."""
    try:
        if str(path) == "-":
            return sys.stdin.buffer.read(_LARGEST)
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        raise BadInputError(
            f"{path} cannot be read: {error.strerror or error}", next_step="name a surface file: docs/search.md"
        ) from error


def _lines(done: surface.Replay) -> list[str]:
    """The search as it went, and the choice."""
    levels = [c for c in (done.surface.latency, done.surface.throughput) if c is not None]
    told = done.surface.entries[done.surface.baseline].tok_s
    lines = [f"assumed: {each}" for each in done.surface.assumed]
    lines.append(f"baseline: {_name(done.surface.baseline)}, {_figures(levels, told)}; no restart")
    for number, step in enumerate(done.tried, start=1):
        lines.append(f"restart {number}: {step.because}")
        off = ", ".join(f"{step.predicted[c].mean / step.measured[c] - 1.0:+.1%}" for c in levels)
        lines.append(f"           measured {_figures(levels, step.measured)}; the prediction was off by {off}")
    lines.append(done.stop)
    lines += [f"never started: {_name(k)}: {because}" for k, because in sorted(done.refused.items())]
    lines.append(f"choice: {done.choice.because}; {len(done.tried)} restart{'s' * (len(done.tried) != 1)}")
    return lines


def _name(depth: int) -> str:
    from draftmark.model import Arm

    return Arm(depth).label


def _figures(levels: list[int], tok_s: Any) -> str:
    return ", ".join(f"{tok_s[c]:.4g} tok/s at {c}" for c in levels)
