"""Which services the sources name, and the one that the user means. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from draftmark.errors import BadInputError
from draftmark.postmortem.events import unit_of, voice
from draftmark.postmortem.model import Source
from draftmark.postmortem.records import read_records

_SHOWN = 12


def pick(sources: Sequence[Source], name: str) -> str:
    """The unit or container of that name, in full.

    Raises:
        BadInputError: No source names it; the ones that are named are shown.
    """
    known = _named(sources)
    for candidate in (name, f"{name}.service"):
        if candidate in known:
            return candidate
    close = difflib.get_close_matches(name, known, n=1)
    advice = f"--service {close[0]}" if close else "leave --service out, or pick one of these"
    raise BadInputError(
        f"Nothing that was read names a service {name}.",
        evidence=tuple(known[:_SHOWN]),
        next_step=advice if known else "leave --service out: the sources name no service at all",
    )


def _named(sources: Sequence[Source]) -> list[str]:
    found: dict[str, None] = {}
    for source in sources:
        for line in source.lines:
            about = unit_of(line) if line.unit or voice(line) == "systemd" else ""
            if about and about != "init.scope":
                found[about] = None
            if line.ident and voice(line) == "app":
                found[line.ident] = None
    records = read_records(tuple(sources))
    for container in records.containers:
        found[container.name] = None
    for name in (records.pod, records.unit.get("Id") if records.unit else ""):
        found[name] = None
    return [name for name in found if name]
