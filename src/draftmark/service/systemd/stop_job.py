"""Whether a unit ended because systemd was asked to stop it, by systemd's own lines about that run of it.

A server that dies, or that somebody kills, leaves no such line: `Stopping …` is written for a stop job alone, be it
of `systemctl stop` or `restart`, or of another unit that pulls this one down.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from draftmark.ports import Host
from draftmark.service.systemd.manager import Manager

# systemd/sd-messages.h: SD_MESSAGE_UNIT_STOPPING and SD_MESSAGE_UNIT_STOPPED
_STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"
_STOPPED = "9d1aaa27d60140bd96365438aad20286"
_TRIES, _PAUSE_S = 3, 0.2  # the journal is written by another process


@dataclass(frozen=True, slots=True)
class StopJob:
    """What ended a run of a unit.

    Attributes:
        line: systemd's, with its time.
        restart: It was to be started again at once.
    """

    line: str
    restart: bool


def stop_job(host: Host, manager: Manager, invocation: str, sleep: Callable[[float], None]) -> StopJob | None:
    """The job that stopped this run; None where there was none, or the journal does not tell.

    Args:
        host: Commands run with the rights to read the journal.
        manager: Of the unit.
        invocation: InvocationID of a run that is over.
        sleep: Waits so many seconds.
    """
    field = "USER_INVOCATION_ID" if manager.user else "INVOCATION_ID"
    matches = (f"{field}={invocation}", f"MESSAGE_ID={_STOPPING}", f"MESSAGE_ID={_STOPPED}")
    argv = ("journalctl", "--quiet", "--no-pager", "--output=json", *matches)
    for left in reversed(range(_TRIES)):
        if (found := parse(host.run(argv).stdout)) is not None or not left:
            return found
        sleep(_PAUSE_S)
    return None


def parse(output: bytes) -> StopJob | None:
    """From the journal's lines about one run of a unit, as JSON."""
    entries = list(_entries(output))
    begun = next((entry for entry in entries if entry.get("MESSAGE_ID") == _STOPPING), None)
    if begun is None:
        return None
    # Of a restart, the line of the beginning says `stop`, and that of the end, with the same job, `restart`.
    restart = any(entry.get("JOB_TYPE") in ("restart", "try-restart") for entry in entries)
    return StopJob(line=f"{_time(begun)} systemd: {begun.get('MESSAGE', '')}", restart=restart)


def _entries(output: bytes) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def _time(entry: dict[str, Any]) -> str:
    text = str(entry.get("__REALTIME_TIMESTAMP", ""))
    if not text.isdecimal() or len(text) > 17:
        return "-"
    return datetime.fromtimestamp(int(text) / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
