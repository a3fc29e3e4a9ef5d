"""Puts the post-mortem together: the tables of every engine, and how each kind of service is collected.

The only place of `why` that knows which engines there are.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from draftmark.cli.why_reference import Service
    from draftmark.ports import Host
    from draftmark.postmortem.collect import Collected
    from draftmark.postmortem.intake import Hints
    from draftmark.postmortem.tables import Tables
    from draftmark.report.why_lines import Marker


@cache
def tables() -> Tables:
    """What lines mean: the common signs, and those in each engine's folder."""
    from draftmark.postmortem.tables import load_tables

    return load_tables(engine_signs())


def engine_signs() -> tuple[Traversable, ...]:
    """`signs.toml` of every engine that has one."""
    folders = sorted(resources.files("draftmark.engines").iterdir(), key=lambda folder: folder.name)
    files = [folder.joinpath("signs.toml") for folder in folders if folder.is_dir()]
    return tuple(file for file in files if file.is_file())


def marker(cause: str) -> Marker:
    """Tells where in a line the proof is: by the signs of that cause first, then by any that is no traffic."""
    signs = [sign for sign in tables().signs if not sign.flood]
    signs.sort(key=lambda sign: sign.cause != cause)

    def find(text: str) -> tuple[int, int] | None:
        for sign in signs:
            if any(hint in text for hint in sign.hints) and (match := sign.search(text)):
                return match.span()
        return None

    return find


def collect(service: Service, host: Host, *, hints: Hints, runs: int, since: str | None) -> Collected:
    """What a host knows of a service."""
    from draftmark.postmortem import collect as rooms
    from draftmark.postmortem.intake import read_bytes

    collector = {
        "unit": rooms.collect_unit,
        "docker": rooms.collect_container,
        "pod": rooms.collect_pod,
        "job": rooms.collect_job,
    }[service.kind]
    read = partial(read_bytes, hints=hints)
    return collector(host, service.name, read=read, runs=runs, since=since)
