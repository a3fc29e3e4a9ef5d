"""What a change of a case is, and what all changes need."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import carriers
from .carriers import Entry, body, is_application, is_document
from .corpus import Files


class NotApplicableError(Exception):
    """The change makes no sense for this case."""


@dataclass(frozen=True)
class Changed:
    """The case after a change: its files, and the order in which they are named on the command line."""

    files: dict[str, bytes]
    order: tuple[str, ...]


Change = Callable[[Files, random.Random], Changed]


def as_changed(files: Mapping[str, bytes]) -> Changed:
    return Changed(dict(files), tuple(sorted(files)))


def applications(files: Files) -> list[str]:
    return [name for name, content in files.items() if is_application(name, content)]


def logs(files: Files) -> list[str]:
    return [name for name in files if not is_document(name)]


def need(names: list[str], why: str) -> list[str]:
    if not names:
        raise NotApplicableError(why)
    return names


def entries(files: Files, name: str, ident: str, rng: random.Random) -> list[Entry]:
    """The lines of a log as journald or a container runtime would have received them."""
    lines, _ = body(files[name])
    unit, host, pid = carriers.unit_of(files), carriers.host_of(files), rng.randrange(1000, 60000)
    return [
        carriers.entry_of(line, at, unit) or Entry(at, host, ident, pid, line, unit)
        for line, at in zip(lines, carriers.moments(lines, files), strict=True)
    ]
