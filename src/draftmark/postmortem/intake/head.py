"""What the prefixes of a line have told so far, while they are peeled off it."""

from __future__ import annotations

from collections.abc import Mapping

from draftmark.postmortem.intake.clock import Calendar
from draftmark.postmortem.model import NO_FIELDS

LEVELS = {
    "TRACE": "D",
    "DEBUG": "D",
    "INFO": "I",
    "NOTICE": "I",
    "WARN": "W",
    "WARNING": "W",
    "ERR": "E",
    "ERROR": "E",
    "CRIT": "F",
    "CRITICAL": "F",
    "FATAL": "F",
    "I": "I",
    "W": "W",
    "E": "E",
    "F": "F",
    "D": "D",
    "V": "D",
}


class Head:
    """The attributes of `Line` that prefixes fill.

    The first clock with a date wins: the carrier's, for it is one clock for all that it carries. Of levels, the
    innermost wins.

    Attributes:
        stream: `stdout` or `stderr`, where a container runtime says so.
        partial: The runtime cut the line here: the stream's next one goes on with it.
        around: What a viewer put around the text: `|` (a table), `"` (a quoted cell), or nothing.
        dated: Epoch seconds of a date that was written with its year, wherever it stood.
    """

    time: float | None = None
    clock = ""
    stamp: str | None = None
    dated: float | None = None
    ident = ""
    actor = ""
    pid: int | None = None
    level = ""
    unit = ""
    host = ""
    stream = ""
    partial = False
    around = ""
    fields: Mapping[str, str] = NO_FIELDS

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar

    def copy(self) -> Head:
        """For the further lines of one record."""
        other = Head(self.calendar)
        other.__dict__.update(self.__dict__)
        return other

    def wall(self, moment: float | None, stamp: str, *, dated: bool = True) -> None:
        """A clock with a date."""
        if moment is None:
            return
        if dated and self.dated is None:
            self.dated = moment
        if self.clock != "wall":
            self.time, self.clock, self.stamp = moment, "wall", stamp

    def relative(self, seconds: float, stamp: str) -> None:
        """A clock that counts from a start of its own."""
        if not self.clock:
            self.time, self.clock, self.stamp = seconds, "relative", stamp

    def act(self, actor: str) -> None:
        """Another layer says who of the engine writes."""
        if not self.actor:
            self.actor = actor
        elif actor not in self.actor.split(" "):
            self.actor = f"{self.actor} {actor}"

    def writer(self, ident: str, pid: str | None = None, host: str = "") -> None:
        """The carrier says who writes; the outermost wins."""
        self.ident = self.ident or ident
        self.host = self.host or host
        if pid and self.pid is None:
            self.pid = int(pid)
