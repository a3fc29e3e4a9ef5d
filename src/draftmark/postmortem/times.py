"""Clocks of several logs held against each other: what belongs to a death and what is older or later. Pure.

A zone that a log does not write shifts it by whole half hours, so a difference of that size settles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftmark.postmortem.model import Line

if TYPE_CHECKING:
    from draftmark.postmortem.scene import Stream

SLACK_S = 600.0
_HALF_HOUR_S, _ZONE_SLACK_S, _DAY_S = 1800.0, 90.0, 86400.0


def death_of(streams: Sequence[Stream]) -> float | None:
    """The last dated moment of the examined lives."""
    times = [
        s.last.time for s in streams if s.last is not None and s.last.clock == "wall" and s.last.time is not None
    ]
    return max(times) if times else None


def within(line: Line, span: tuple[float, float], *, same_clock: bool = False) -> bool:
    """Whether a line can belong to a life: inside it with some slack, or on a clock that cannot be compared.

    Args:
        line: Dated or not.
        span: First and last moment of the life.
        same_clock: Of the line and the life, so zones cannot differ.
    """
    if line.time is None or line.clock != "wall":
        return True
    if span[0] - SLACK_S <= line.time <= span[1] + SLACK_S:
        return True
    if same_clock:
        return False
    return zone_apart(line.time, span[0]) or zone_apart(line.time, span[1])


def one_clock(one: Line, other: Line) -> bool:
    """Whether two lines are stamped by one clock: of one source or host, or with their zones written."""
    if one.source == other.source or (one.host and one.host == other.host):
        return True
    return all(line.stamp is not None and _ZONE.search(line.stamp) for line in (one, other))


_ZONE = re.compile(r"(?:Z|UTC|[+-]\d\d:?\d\d)$")


def zone_apart(one: float, other: float) -> bool:
    """Whether two moments may be one, written in two zones."""
    apart = abs(one - other)
    off = abs(apart - round(apart / _HALF_HOUR_S) * _HALF_HOUR_S)
    return off < _ZONE_SLACK_S and _HALF_HOUR_S / 2 < apart < _DAY_S


def covers(times: tuple[float, float] | None, death: float | None) -> bool:
    """Whether a log reaches to a death: it begins before, and does not end more than a day before."""
    if times is None or death is None:
        return True
    return times[0] - _DAY_S / 2 <= death <= times[1] + _DAY_S
