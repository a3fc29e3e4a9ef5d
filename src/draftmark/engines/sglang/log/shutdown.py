"""How a server ended, in its own words. A vanished process says nothing: then only its supervisor knows more."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from draftmark.engines.sglang.log.grammar import Rule
from draftmark.engines.sglang.log.records import Record

_KEPT: Final = 32  # lines of a drain at either end, and children


class Drained(NamedTuple):
    """How many requests a drain waits for, at a time (as printed, None without a stamp)."""

    line: int
    time: str | None
    remaining: int


class Child(NamedTuple):
    """A child process that the server found dead: `code` below zero is a signal."""

    line: int
    name: str
    pid: int | None
    code: int


class Teardown(NamedTuple):
    """SGLang kills its process tree. With `include_parent`, itself too: status 9 then is no OOM kill."""

    line: int
    include_parent: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """What was said of the end. Lines are None where nothing was."""

    sigterm_line: int | None
    sigterm_time: str | None
    drain: tuple[Drained, ...]
    """The drain's progress: the first and the last lines of a long one."""
    forced: str | None
    """Why the drain was skipped, in SGLang's words."""
    stragglers_line: int | None
    """Schedulers outlived the shutdown request (0.5.23)."""
    sigquit_line: int | None
    children: tuple[Child, ...]
    exception_line: int | None
    exception_in: str | None
    """The process that hit an exception ("Scheduler")."""
    watchdog_line: int | None
    teardown: Teardown | None

    @property
    def way(self) -> str:
        """In one word: what the lines add up to.

        Asked to stop: "graceful" (the drain ended), "draining" (the log ends before the drain does), "forced" (the
        drain was skipped), "children-stopped" (the children were sent the signal too, which cuts the drain:
        systemd's `KillMode=control-group`). Else "hang" (the watchdog), "exception" (of Python), "child-died" (a
        child is gone), "torn-down" (killed by itself, nothing says why), "none" (no end is told).
        """
        if self.sigterm_line is not None:
            return self._stopped()
        if self.watchdog_line is not None:
            return "hang"
        if self.exception_line is not None:
            return "exception"
        if self.children:
            return "child-died"
        return "torn-down" if self.teardown is not None or self.sigquit_line is not None else "none"

    def _stopped(self) -> str:
        if self.forced is not None:
            return "forced"
        if any(child.code == -15 for child in self.children):
            return "children-stopped"
        if self.children or self.exception_line is not None:
            return "exception" if self.exception_line is not None else "child-died"
        return "graceful" if self.drain and self.drain[-1].remaining == 0 else "draining"


class EndingReader:
    """Takes the matches of the rules about failures and the end."""

    def __init__(self) -> None:
        self._sigterm: tuple[int, str | None] | None = None
        self._drain: list[Drained] = []
        self._late: deque[Drained] = deque(maxlen=_KEPT)
        self._forced: str | None = None
        self._lines: dict[str, int] = {}
        self._children: list[Child] = []
        self._exception_in: str | None = None
        self._teardown: Teardown | None = None

    def take(self, record: Record, rule: Rule, match: re.Match[str]) -> None:
        """Note a line of the end, or of a failure that may be one."""
        name = rule.name
        if name == "sigterm":
            self._sigterm = self._sigterm or (record.line, record.time)
        elif name == "drain":
            drained = Drained(record.line, record.time, _whole(match["remaining"]))
            (self._drain if len(self._drain) < _KEPT else self._late).append(drained)
        elif name == "forced":
            self._forced = match["why"]
        elif name == "kill-tree":
            self._teardown = Teardown(record.line, match["include"] == "True")
        elif name in ("child-died", "child-died-in-start"):
            self._child(record.line, match)
        elif name == "exception":
            self._exception_in = self._exception_in or match["who"]
        self._lines.setdefault(name, record.line)

    def _child(self, line: int, match: re.Match[str]) -> None:
        if len(self._children) < _KEPT:
            pid = match.groupdict().get("pid")
            child = Child(line, match["who"], _whole(pid) if pid else None, _whole(match["code"]))
            self._children.append(child)

    def result(self) -> Ending:
        """What was said of the end so far."""
        line, time = self._sigterm or (None, None)
        return Ending(
            sigterm_line=line,
            sigterm_time=time,
            drain=(*self._drain, *self._late),
            forced=self._forced,
            stragglers_line=self._lines.get("stragglers"),
            sigquit_line=self._lines.get("sigquit", self._lines.get("sigquit-launch")),
            children=tuple(self._children),
            exception_line=self._lines.get("exception"),
            exception_in=self._exception_in,
            watchdog_line=self._lines.get("watchdog"),
            teardown=self._teardown,
        )


def _whole(text: str) -> int:
    return int(text) if len(text) < 16 else 0
