"""The kernel's log of a window: from the journal, which knows earlier boots, or else from the ring buffer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

from draftmark.ports import Completed
from draftmark.postmortem.collect.gathering import Gathering, denied, reason
from draftmark.postmortem.collect.journal import LEAD_S, Sight, entries, for_people, newest_boot
from draftmark.postmortem.collect.streams import Output, peeked
from draftmark.postmortem.collect.windows import last_lines

NAME = "kernel log"
_MATCH = "_TRANSPORT=kernel"
_DMESG = (("dmesg", "-T"), ("dmesg",))  # busybox knows no -T
_CTIME = re.compile(rb"\[\w{3} (\w{3} +\d+ \d\d:\d\d:\d\d \d{4})\]")
_CLOCKS = re.compile(rb'"(__REALTIME|__MONOTONIC|_SOURCE_MONOTONIC)_TIMESTAMP"\s*:\s*"(\d{1,18})"')
_QUIET_LINES = 200
_QUIET_SHOWN = 3
_TELLING = re.compile(
    rb"oom|kill|memory|segfault|trap|fault|error|fail|xid|nvrm|blocked|signal|crash", re.IGNORECASE
)
_MARGIN_S = 600.0
_RING_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """The time that matters.

    Attributes:
        since: Its beginning, for journalctl; None for all there is.
        begun_s: The same for the ring buffer, which is cut by us, seconds since the epoch; None to keep all.
        death_s: When the service died, as far as is known, seconds since the epoch.
        boot: Boot id of the newest run; `` when unknown.
        until_s: Its end, when the service has been dead for a while: what happened to others since is not its
            death. None for now.
    """

    since: str | None = None
    begun_s: float | None = None
    death_s: float | None = None
    boot: str = ""
    until_s: float | None = None

    @property
    def until(self) -> str | None:
        """Its end, for journalctl."""
        return None if self.until_s is None else f"@{self.until_s:.0f}"


def collect_kernel(gathering: Gathering, seen: Sight, span: Span) -> None:
    """Keep the kernel's log of that time, or say why not; `seen`: how much of the journal may be read."""
    if seen is Sight.ALL and _from_journal(gathering, span):
        return
    _from_ring_buffer(gathering, seen, span)


def _from_journal(gathering: Gathering, span: Span) -> bool:
    output = Output(gathering.host, entries(_MATCH, since=span.since, until=span.until))
    chunks = peeked(_said_since(output, span.begun_s))
    if chunks is not None:
        gathering.add(NAME, chunks, argv=for_people(_MATCH, since=span.since), as_root=True)
        if output.ended is not None and not output.ended.ok:
            gathering.annotate((f"not read to the end: {reason(output.ended, output.argv)}",))
        return True
    # Quiet, or not kept? It was quiet if the journal holds other lines of the kernel of that boot.
    older = last_lines(gathering.host, entries(_MATCH, until=span.until, newest=True), _QUIET_LINES)
    if not older or (span.boot and newest_boot(older) != span.boot):
        return False
    _add_quiet(gathering, older, for_people(_MATCH, since=span.since))
    return True


def _said_since(output: Output, begun_s: float | None) -> Iterator[bytes]:
    """Lines said since then.

    A journald that starts late, as in a container, dates all that is in the ring buffer by its own start; what the
    kernel's clock says is in the entry, too.
    """
    for line in output.lines():
        if begun_s is None or _said_at(line) >= begun_s - LEAD_S:
            yield line + b"\n"


def _said_at(line: bytes) -> float:
    """When the kernel said it, seconds since the epoch: received then, minus the time in the ring buffer."""
    clocks = {match[1]: int(match[2]) for match in _CLOCKS.finditer(line)}
    received = clocks.get(b"__REALTIME", 0)
    monotonic = clocks.get(b"__MONOTONIC", 0)
    return (received - max(0, monotonic - clocks.get(b"_SOURCE_MONOTONIC", monotonic))) / 1e6


def _add_quiet(gathering: Gathering, older: Sequence[bytes], argv: Sequence[str]) -> None:
    """Show that the log was read and that nothing was in it, by lines from before that nobody takes for a cause."""
    harmless = [line for line in older if not _TELLING.search(line)][-_QUIET_SHOWN:]
    if harmless:
        notes = ("the kernel said nothing in that time: these lines are older",)
        gathering.add(NAME, b"".join(harmless), notes, argv=argv, as_root=True)
    else:
        gathering.miss(NAME, "the kernel said nothing in that time", argv, as_root=True)


def _from_ring_buffer(gathering: Gathering, seen: Sight, span: Span) -> None:
    ended = Completed(None, missing=True)
    for argv in _DMESG:
        ended = gathering.host.run(argv, limit_bytes=_RING_BYTES)
        if ended.ok or ended.missing or denied(ended.stderr):
            break
    command = for_people(_MATCH, since=span.since)
    if not ended.ok or not ended.stdout.strip():
        journal = {Sight.ALL: "the journal holds none of it", Sight.NO_JOURNAL: "no journal to read it from"}
        because = f"{journal.get(seen, 'this user may not read it in the journal')}; {reason(ended, ('dmesg',))}"
        gathering.miss(NAME, because, command if seen is not Sight.ALL else "dmesg -T", as_root=True)
        return
    oldest = _first_time(ended.stdout.splitlines())
    found, older = _of_span(ended.stdout, span)
    if found:
        notes = ("from the ring buffer (dmesg): this boot only",)
        gathering.add(NAME, b"".join(found), notes, argv=_DMESG[0], as_root=True)
    elif older:
        _add_quiet(gathering, older, _DMESG[0])
    if oldest is not None and span.death_s is not None and oldest > span.death_s:
        when = datetime.fromtimestamp(oldest, UTC).strftime("%Y-%m-%d %H:%M:%S")
        because = "the ring buffer begins after the death: it was overwritten, or the host was booted since"
        gathering.miss(f"{NAME} before {when} UTC", because, command, as_root=True)


def _of_span(output: bytes, span: Span) -> tuple[list[bytes], list[bytes]]:
    """What was said in that time, with a margin for a clock that was set, and what was said before."""
    timed, when = [], None
    for line in output.splitlines(keepends=True):
        when = _first_time([line]) or when  # a line without one belongs to the line before it
        timed.append((when or 0.0, line))
    if when is None:
        return [line for _, line in timed], []
    begin = -inf if span.begun_s is None else span.begun_s - _MARGIN_S
    end = inf if span.until_s is None else span.until_s + _MARGIN_S
    found = [line for at, line in timed if begin <= at <= end]
    return found, [line for at, line in timed if at < begin]


def _first_time(lines: Sequence[bytes]) -> float | None:
    """Time of the first line that has one, seconds since the epoch."""
    for line in lines[:_QUIET_LINES]:
        if match := _CTIME.match(line):
            with suppress(ValueError):
                return datetime.strptime(match[1].decode(), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    return None
