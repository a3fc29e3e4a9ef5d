"""The options of a command line, to be typed again: what is measured and how, and how the service is treated."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import Any

from draftmark.run.records import RunInfo

_NOT_AGAIN = frozenset({"help", "service", "host", "json", "depth", "surface", "run", "resume", "keep"})
"""What names the service, the arms and the run, and what becomes of it."""


def options(args: argparse.Namespace, parser: argparse.ArgumentParser, resumed: RunInfo | None) -> str:
    """Those that were given, ready for a shell.

    Args:
        args: As they were read by the parser.
        parser: Of the verb.
        resumed: The run that was gone on with, which has its own load.
    """
    told = dict(vars(args)) | (_load_of(resumed) if resumed is not None else {})
    return shlex.join(word for action in parser._actions for word in _words(action, told))


def _load_of(info: RunInfo) -> dict[str, Any]:
    """A run's own load, as far as its record tells it in the words of options."""
    built_in = all(workload.source == "built-in" for workload in info.workloads)
    return {
        "concurrency": ",".join(map(str, info.concurrency)),
        "workload": ",".join(workload.name for workload in info.workloads) if built_in else None,
    }


def _words(action: argparse.Action, told: dict[str, Any]) -> Iterator[str]:
    value = told.get(action.dest)
    if action.dest in _NOT_AGAIN or not action.option_strings or value in (None, action.default):
        return
    name = max(action.option_strings, key=len)
    if action.nargs == 0:
        yield name
        return
    for each in value if isinstance(value, list) else [value]:
        yield from (name, f"{each:g}" if isinstance(each, float) else str(each))
