"""The text of the one drop-in that changes a unit, and what its head says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

TRIAL = "zz-draftmark.trial.conf"
"""Name of a trial's drop-in; systemd reads those of all directories in the order of their names."""


def render(*, exec_start: str | None, settings: Mapping[str, str], header: Sequence[str]) -> str:
    """A drop-in.

    Args:
        exec_start: The command line, spelled for a unit; it takes the place of the unit's own. None leaves that.
        settings: Further settings of [Service], spelled for a unit.
        header: What wrote it, when, why, and how it is undone; a line each.

    Raises:
        ValueError: A setting that would not end with its line.
    """
    lines = [f"# {line}".rstrip() for text in header for line in text.replace("\0", " ").splitlines() or [""]]
    if lines:
        lines.append("")
    lines.append("[Service]")
    if exec_start is not None:
        lines += ["ExecStart=", _assignment("ExecStart", exec_start)]
    lines += [_assignment(key, value) for key, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def _assignment(key: str, value: str) -> str:
    goes_on = (len(value) - len(value.rstrip("\\"))) % 2
    if goes_on or any(char in f"{key}{value}" for char in "\n\r\0"):
        raise ValueError(f"not one line of a unit: {key}={value!r}")
    return f"{key}={value}"


def parse_header(text: str) -> tuple[str, ...]:
    """The header that `render` was given, line by line; empty for a file without one."""
    return tuple(_comments(text))


def _comments(text: str) -> Iterator[str]:
    for line in takewhile(lambda line: line.startswith("#"), text.splitlines()):
        yield line[1:].removeprefix(" ")
