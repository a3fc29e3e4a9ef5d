"""The system's journal: how much of it this user may see, when the unit last ran, and its lines since then.

Found on systemd 252, and minded here:

- `-o json` silences journalctl's hint that a user does not see everything, so sight is asked for by itself;
- `-k` means this boot only, so kernel lines are matched by their transport;
- fields longer than 4 KiB are null in JSON without `--all`, and a server's argument line is longer;
- `-n` together with `--since` gives the first lines in some versions and the last in others, and a cursor of
  another filter's loses a line: windows are cut by time, and the newest lines are read in reverse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from draftmark.ports import Completed, Host
from draftmark.postmortem.collect.streams import Output
from draftmark.postmortem.collect.units import Unit

FIELDS = (
    "MESSAGE,MESSAGE_ID,PRIORITY,SYSLOG_IDENTIFIER,_PID,_HOSTNAME,_SYSTEMD_UNIT,_SYSTEMD_USER_UNIT,UNIT,USER_UNIT,"
    "OBJECT_SYSTEMD_UNIT,OBJECT_PID,INVOCATION_ID,USER_INVOCATION_ID,_SYSTEMD_INVOCATION_ID,EXIT_CODE,EXIT_STATUS,"
    "UNIT_RESULT,N_RESTARTS,JOB_TYPE,JOB_RESULT,COMMAND,ERRNO,EXECUTABLE,N_DROPPED,CPU_USAGE_NSEC,MEMORY_PEAK,"
    "MEMORY_SWAP_PEAK,COREDUMP_UNIT,COREDUMP_PID,COREDUMP_COMM,COREDUMP_EXE,COREDUMP_SIGNAL,COREDUMP_SIGNAL_NAME,"
    "CONTAINER_ID,_SOURCE_MONOTONIC_TIMESTAMP"
)
"""Fields that are kept of a line. Command lines are not: secrets. Each costs journalctl
time: for 250,000 lines of a server 7 s of CPU with the seven that they have, 11 s with this list, 15 s with all."""

_JSON = ("journalctl", "--output=json", "--all", "--no-pager", "--output-fields=" + FIELDS)
_EXITED = "98e322203f7a4ed290d09fe03c09fe15"
_STARTS = ("39f53479d3a045ac8e11786248231fbf", "7d4958e842da4a758f6c1cdc7b36dcc5")
_MANAGER_LINES = 20_000
LEAD_S = 10
_LOOP_S = 600.0


class Sight(StrEnum):
    """How much of the journal this user may see."""

    ALL = "all"
    OWN = "own"  # his own messages only
    NOTHING = "nothing"
    NO_JOURNAL = "no journal"  # no journalctl, or no journal kept


@dataclass(slots=True)
class Run:
    """One invocation of the unit, by what its manager said: seconds since the epoch."""

    invocation: str
    first_s: float
    last_s: float
    started: bool = False  # the start itself is among the lines
    boot: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The unit's last runs, the newest first.

    Attributes:
        runs: As many as were asked for, as far as the journal goes.
        before_loop: The last run before a crash loop that lasted a while, when all of `runs` were short: what
            ended it began the trouble.
        exits: When its main process was seen to end, the newest first.
    """

    runs: tuple[Run, ...] = ()
    before_loop: Run | None = None
    exits: tuple[float, ...] = ()


def sight(host: Host) -> tuple[Sight, Completed]:
    """Ask for one line in a format that does not silence the hint."""
    ended = host.run(("journalctl", "--lines=1", "--output=short-unix", "--no-pager"))
    said = ended.stderr.lower()
    if "insufficient permissions" in said or "permission denied" in said:
        return Sight.NOTHING, ended
    if "not seeing messages" in said:
        return Sight.OWN, ended
    empty = "no journal files" in said or not ended.stdout.strip() or ended.stdout.startswith(b"-- No entries")
    return (Sight.ALL if ended.ok and not empty else Sight.NO_JOURNAL), ended


def entries(*matches: str, since: str | None = None, until: str | None = None, newest: bool = False) -> list[str]:
    """The command that writes matching entries as JSON, oldest first unless `newest`."""
    argv = [*_JSON, *(("--reverse",) if newest else ())]
    argv += [f"--since={since}"] if since else []
    argv += [f"--until={until}"] if until else []
    return [*argv, *matches]


def for_people(*matches: str, since: str | None = None) -> list[str]:
    """The same as a person would type it."""
    return ["journalctl", *([f"--since={since}"] if since else []), *matches]


def history(host: Host, unit: Unit, runs: int, since: str | None) -> History:
    """When the unit last ran, from what its manager says: about ten lines a run.

    A loop of short runs is followed back to the run before it, or for as long as is bearable.
    """
    output = Output(host, entries(*unit.manager_lines(), since=since, newest=True))
    found: list[Run] = []
    exits: list[float] = []
    loop = _may_loop(unit, runs)
    with closing(output.lines()) as lines:
        for line in islice(lines, _MANAGER_LINES):
            entry = _entry(line)
            when = _seconds(entry)
            if when is None:
                continue
            _note(found, entry, when)
            if _seen_enough(found, runs, loop):
                break
            if entry.get("MESSAGE_ID") == _EXITED:
                exits.append(when)
    earlier = found[runs:] if loop and _looping(found[:runs]) else []
    return History(tuple(found[:runs]), next(filter(_lasted, earlier), None), tuple(exits))


def _may_loop(unit: Unit, runs: int) -> bool:
    """A unit that has been up since somebody started it is in no loop, however often it was tried before."""
    restarts = unit.properties.get("NRestarts", "")
    return unit.properties.get("ActiveState") != "active" or (restarts.isdecimal() and int(restarts) >= runs)


def _seen_enough(found: list[Run], runs: int, loop: bool) -> bool:
    """Whether a run has begun that is not wanted any more. The oldest so far may still have lines to come."""
    if len(found) <= runs:
        return False
    return not (loop and _looping(found[:runs])) or any(map(_lasted, found[runs:-1]))


def _note(found: list[Run], entry: dict[str, Any], when: float) -> None:
    """Add an entry, older than all before it, to its run."""
    invocation = entry.get("INVOCATION_ID") or entry.get("USER_INVOCATION_ID")
    if not isinstance(invocation, str):
        return
    run = next((each for each in found[-3:] if each.invocation == invocation), None)
    if run is None:
        run = Run(invocation, when, when, boot=str(entry.get("_BOOT_ID", "")))
        found.append(run)
    run.first_s = min(run.first_s, when)
    run.started = run.started or entry.get("MESSAGE_ID") in _STARTS


def _lasted(run: Run) -> bool:
    return run.last_s - run.first_s >= _LOOP_S


def _looping(runs: list[Run]) -> bool:
    """Whether it starts again and again."""
    return not any(_lasted(run) for run in runs)


def window(found: History) -> str | None:
    """`--since` that covers those runs."""
    return f"@{int(min(run.first_s for run in found.runs)) - LEAD_S}" if found.runs else None


def newest_boot(lines: Iterable[bytes]) -> str:
    """Boot id of the last entry; `` when there is none."""
    boot = ""
    for line in lines:
        boot = str(_entry(line).get("_BOOT_ID", "")) or boot
    return boot


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _seconds(entry: dict[str, Any]) -> float | None:
    stamp = entry.get("__REALTIME_TIMESTAMP")
    return int(stamp) / 1e6 if isinstance(stamp, str) and stamp.isdecimal() and len(stamp) < 20 else None
