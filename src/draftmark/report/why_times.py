"""Log times as numbers, for drawing only: order and cause are the verdict's.

Log times are written in a dozen ways, some without a year or a zone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from draftmark.postmortem.intake.clock import day_start, fraction, month_number, seconds_of_day, zone_offset

_CLOCK = r"(?P<clock>\d{2}:\d{2}:\d{2})(?P<fraction>[.,]\d{1,9})?"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?P<Y>\d{{4}})[-/](?P<M>\d{{1,2}})[-/](?P<D>\d{{1,2}})[T ]{_CLOCK}\s*(?P<zone>Z|[+-]\d{{2}}:?\d{{2}})?",
        rf"(?P<name>[^\W\d]{{3,12}})\.?\s+(?P<D>\d{{1,2}})\s+{_CLOCK}(?:\s+(?P<Y>\d{{4}}))?",
        rf"(?P<M>\d{{2}})-(?P<D>\d{{2}})\s+{_CLOCK}",
        rf"\b[IWEF]?(?P<M>\d{{2}})(?P<D>\d{{2}})\s+{_CLOCK}",
    )
)
_RELATIVE = re.compile(r"\[?\s*(?P<s>\d{1,9}\.\d{1,9})\]?")
NO_YEAR = 1972
"""Where no line says the year: one that has every day."""


def seconds(stamps: Sequence[str | None]) -> tuple[list[float | None], bool]:
    """Seconds on one clock, and whether that clock is a relative one.

    Where all zones that are written are the same, times without one are taken to be in it: a log's own clock and
    its journal's then agree.
    """
    year = next((int(found["Y"]) for stamp in stamps if stamp and (found := _FORMS[0].search(stamp))), NO_YEAR)
    read = [_read(stamp, year) if stamp else None for stamp in stamps]
    if not any(read):
        since_start = [_RELATIVE.fullmatch(stamp.strip()) if stamp else None for stamp in stamps]
        return [float(match["s"]) if match else None for match in since_start], True
    several = len({entry[1] for entry in read if entry and entry[1] is not None}) > 1
    return [None if entry is None else entry[0] - (entry[1] or 0) * several for entry in read], False


def _read(stamp: str, year: int) -> tuple[float, int | None] | None:
    """Seconds since the epoch as the digits read, and the zone's offset if it is written; None if it is no date."""
    for form in _FORMS:
        if match := form.search(stamp):
            said = match.groupdict()
            month = month_number(said["name"]) if said.get("name") else int(said["M"])
            day = day_start(int(said.get("Y") or year), month or 0, int(said["D"]))
            within = seconds_of_day(said["clock"])
            if day is not None and within is not None:
                offset = zone_offset(said["zone"]) if said.get("zone") else None
                return day + within + fraction(said["fraction"]), offset
    return None
