"""A log holds one life of a server after the other: which of them is the one that ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from draftmark.postmortem.events import Event

_ENDINGS = frozenset(
    ("fatal", "child-exit", "teardown", "killed", "exit", "clean-exit", "stop", "oom-kill", "oom-record", "term")
)
_PROGRESS = frozenset(("ready", "traffic", "weights-begin", "weights-end", "pool", "drain", "http-up"))


@dataclass(frozen=True, slots=True)
class Life:
    """One life.

    Attributes:
        begin: Order of its first line.
        end: Order after its last line.
        failed: It holds a fault or an ending.
        alive: It reached readiness or served.
    """

    begin: int
    end: int
    failed: bool
    alive: bool


def split_lives(events: Sequence[Event], total: int) -> list[Life]:
    """Cut a stream where a start follows something that only an earlier life can have done.

    Args:
        events: In order.
        total: Number of lines of the stream.
    """
    cuts = [0]
    dirty = False
    ended = False
    for event in events:
        if event.role == "start":
            if dirty and (ended or event.sign.voice == "app"):
                cuts.append(event.order)
                dirty = ended = False
        elif event.role in _ENDINGS:
            dirty = ended = True
        elif event.role in _PROGRESS or (event.role == "fault" and _ends(event)):
            dirty = True
    bounds = [*cuts, total]
    lives = []
    for begin, end in pairwise(bounds):
        roles = [event for event in events if begin <= event.order < end]
        failed = any(e.role in _ENDINGS or (e.role == "fault" and not e.sign.request) for e in roles)
        alive = any(e.role in ("ready", "traffic") for e in roles)
        lives.append(Life(begin, end, failed, alive))
    return lives


def _ends(event: Event) -> bool:
    """Whether a fault can have ended a life: a warning has not."""
    return not event.sign.wrapper and event.line.level not in ("W", "I", "D")


def last_ended(lives: Sequence[Life], *, first_of_burst: bool) -> tuple[Life, bool]:
    """The life to explain, and whether a later one is up.

    Args:
        lives: In order, at least one.
        first_of_burst: systemd gave up restarting: the first failure is the cause of the ones that followed.
    """
    failed = [life for life in lives if life.failed]
    if not failed:
        return lives[-1], False
    chosen = failed[-1]
    if first_of_burst:
        index = lives.index(chosen)
        while index > 0 and lives[index - 1].failed:
            index -= 1
        chosen = lives[index]
    later = any(life.alive and not life.failed for life in lives if life.begin >= chosen.end)
    return chosen, later
