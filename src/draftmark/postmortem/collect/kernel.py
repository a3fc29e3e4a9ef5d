"""The kernel's log of a window: from the journal, which knows earlier boots, or else from the ring buffer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from draftmark.ports import Completed
from draftmark.postmortem.collect.gathering import Gathering, denied, reason
from draftmark.postmortem.collect.journal import Sight, entries, for_people, newest_boot
from draftmark.postmortem.collect.streams import Output, peeked
from draftmark.postmortem.collect.windows import last_lines

NAME = "kernel log"
_MATCH = "_TRANSPORT=kernel"
_DMESG = (("dmesg", "-T"), ("dmesg",))  # busybox knows no -T
_CTIME = re.compile(rb"\[\w{3} (\w{3} +\d+ \d\d:\d\d:\d\d \d{4})\]")
_QUIET_LINES = 200
_MARGIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Span:
    """The time that matters.

    Attributes:
        since: Its beginning, for journalctl; None for all there is.
        begun_s: The same for the ring buffer, which is cut by us, seconds since the epoch; None to keep all.
        death_s: When the service died, as far as is known, seconds since the epoch.
        boot: Boot id of the newest run; `` when unknown.
    """

    since: str | None = None
    begun_s: float | None = None
    death_s: float | None = None
    boot: str = ""


def collect_kernel(gathering: Gathering, seen: Sight, span: Span) -> None:
    """Keep the kernel's log of that time, or say why not; `seen`: how much of the journal may be read."""
    if seen is Sight.ALL and _from_journal(gathering, span):
        return
    _from_ring_buffer(gathering, seen, span)


def _from_journal(gathering: Gathering, span: Span) -> bool:
    output = Output(gathering.host, entries(_MATCH, since=span.since))
    chunks = peeked(output)
    if chunks is not None:
        gathering.add(NAME, chunks)
        if output.ended is not None and not output.ended.ok:
            gathering.annotate((f"not read to the end: {reason(output.ended, output.argv)}",))
        return True
    # Quiet, or not kept? It was quiet if the journal holds other lines of the kernel of that boot.
    older = last_lines(gathering.host, entries(_MATCH, newest=True), _QUIET_LINES)
    if not older or (span.boot and newest_boot(older) != span.boot):
        return False
    gathering.add(NAME, b"".join(older), (f"the kernel said nothing since {span.since}: these lines are older",))
    return True


def _from_ring_buffer(gathering: Gathering, seen: Sight, span: Span) -> None:
    ended = Completed(None, missing=True)
    for argv in _DMESG:
        ended = gathering.host.run(argv)
        if ended.ok or ended.missing or denied(ended.stderr):
            break
    command = for_people(_MATCH, since=span.since)
    if not ended.ok or not ended.stdout.strip():
        journal = {Sight.ALL: "the journal holds none of it", Sight.NO_JOURNAL: "no journal to read it from"}
        because = f"{journal.get(seen, 'this user may not read it in the journal')}; {reason(ended, ('dmesg',))}"
        gathering.miss(NAME, because, command if seen is not Sight.ALL else "dmesg -T", as_root=True)
        return
    output, note = _of_span(ended.stdout, span.begun_s)
    gathering.add(NAME, output, ("from the ring buffer (dmesg): this boot only", *note))
    oldest = _first_time(ended.stdout.splitlines())
    if oldest is not None and span.death_s is not None and oldest > span.death_s:
        when = datetime.fromtimestamp(oldest, UTC).strftime("%Y-%m-%d %H:%M:%S")
        because = "the ring buffer begins after the death: it was overwritten, or the host was booted since"
        gathering.miss(f"{NAME} before {when} UTC", because, command, as_root=True)


def _of_span(output: bytes, begun_s: float | None) -> tuple[bytes, tuple[str, ...]]:
    """What was said since then, with a margin for a clock that was set; if that is nothing, the end of it all."""
    lines = output.splitlines(keepends=True)
    if begun_s is None or _first_time(lines) is None:
        return output, ()
    for index, line in enumerate(lines):
        when = _first_time([line])
        if when is not None and when >= begun_s - _MARGIN_S:
            return b"".join(lines[index:]), (("older lines are left out",) if index else ())
    return b"".join(lines[-_QUIET_LINES:]), ("the kernel said nothing in that time: these lines are older",)


def _first_time(lines: Sequence[bytes]) -> float | None:
    """Time of the first line that has one, seconds since the epoch."""
    for line in lines[:_QUIET_LINES]:
        if match := _CTIME.match(line):
            with suppress(ValueError):
                return datetime.strptime(match[1].decode(), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    return None
