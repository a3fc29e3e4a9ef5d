"""Lines of a window of the journal, and what is left out of one that holds too many."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, islice

from draftmark.ports import Host
from draftmark.postmortem.collect.gathering import reason
from draftmark.postmortem.collect.journal import LEAD_S, History, entries
from draftmark.postmortem.collect.streams import Output
from draftmark.postmortem.collect.units import Unit

MAX_LINES = 200_000
"""Of a unit's window; beyond it the newest, and the beginning of the window. Some 120 MB of JSON, 8 s of CPU."""

HEAD_LINES = 2_000
"""Of the beginning of a run, where a server says its version and arguments."""

_TRAIL_S = 2
_TICK_S = 1e-6  # both ends of a window belong to it
_STAMP = re.compile(rb'"__REALTIME_TIMESTAMP"\s*:\s*"(\d{1,19})"')
_UNIX = re.compile(rb"(\d{1,13}\.\d{6}) ")


def unit_lines(host: Host, unit: Unit, past: History, since: str | None) -> tuple[Iterator[bytes], list[str]]:
    """The unit's lines in order, and what a reader of them should know: complete when they have been read.

    Of a window with too many lines, the newest are read whole, and of each run before them the beginning and the
    end: a restart may hide a death that is many lines away.
    """
    notes: list[str] = []
    parts: list[Iterable[bytes]] = []
    if past.before_loop is not None:
        run = past.before_loop
        parts.append(ends_of(host, unit, run.first_s - LEAD_S, run.last_s + _TRAIL_S))
        notes.append("the last runs were short: the last one before them that lasted was read too")
    later = shortened(host, unit, since)
    if later is not None:
        notes.append(f"of more than {MAX_LINES} lines, the newest and the beginning and end of each run were read")
        parts += _before(host, unit, past, since, float(later[1:]))
    return chain(*parts, _to_its_end(Output(host, entries(*unit.journal(), since=later or since)), notes)), notes


def _to_its_end(output: Output, notes: list[str]) -> Iterator[bytes]:
    """The chunks; what kept journalctl from its end, the newest lines, becomes a note."""
    yield from output
    if output.ended is not None and not output.ended.ok:
        notes.append(f"not read to the end: {reason(output.ended, output.argv)}")


def _before(host: Host, unit: Unit, past: History, since: str | None, cut_s: float) -> Iterator[list[bytes]]:
    """What is read of the lines before the cut."""
    if not past.runs:
        yield list(first_lines(host, entries(*unit.journal(), since=since), HEAD_LINES, cut_s))
    read_s = 0.0
    for run in reversed(past.runs):
        if run.first_s < cut_s:
            begin_s = max(run.first_s - LEAD_S, read_s)
            # Of the newest run only the start may be known: it goes on to the cut.
            read_s = cut_s if run is past.runs[0] else min(run.last_s + _TRAIL_S, cut_s)
            yield ends_of(host, unit, begin_s, read_s - _TICK_S)


def shortened(host: Host, unit: Unit, since: str | None) -> str | None:
    """A later `--since` when the window holds more lines than MAX_LINES; None when it can be read whole."""
    argv = ["journalctl", "--reverse", "--output=short-unix", "--no-pager", "--quiet"]
    output = Output(host, [*argv, *([f"--since={since}"] if since else []), *unit.journal()])
    count = 0
    with closing(output.lines()) as lines:
        for line in lines:
            if match := _UNIX.match(line):
                count += 1
                if count >= MAX_LINES:
                    return f"@{match[1].decode()}"
    return None


def first_lines(host: Host, argv: list[str], limit: int, before_s: float) -> Iterator[bytes]:
    """The first entries of a command that writes them oldest first, up to a time."""
    with closing(Output(host, argv).lines()) as lines:
        for line in islice(lines, limit):
            if (_stamp(line) or 0.0) >= before_s:
                return
            yield line + b"\n"


def last_lines(host: Host, argv: list[str], limit: int) -> list[bytes]:
    """The newest entries of a command that writes them newest first, put into order."""
    with closing(Output(host, argv).lines()) as lines:
        return [line + b"\n" for line in islice(lines, limit)][::-1]


def ends_of(host: Host, unit: Unit, begin_s: float, end_s: float) -> list[bytes]:
    """The first and the last lines from one time to another, in order; seconds since the epoch."""
    since, until = f"@{begin_s:.6f}", f"@{end_s:.6f}"
    tail = last_lines(host, entries(*unit.journal(), since=since, until=until, newest=True), 2 * HEAD_LINES)
    if len(tail) < 2 * HEAD_LINES:
        return tail
    oldest = _stamp(tail[0]) or begin_s
    return [*first_lines(host, entries(*unit.journal(), since=since, until=until), HEAD_LINES, oldest), *tail]


def _stamp(line: bytes) -> float | None:
    match = _STAMP.search(line)
    return int(match[1]) / 1e6 if match else None
