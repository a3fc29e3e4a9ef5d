"""The kernel's log of a window: from the journal, which knows earlier boots, or else from the ring buffer."""

from __future__ import annotations

import re
from contextlib import suppress
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


def collect_kernel(
    gathering: Gathering, *, seen: Sight, since: str | None, death_s: float | None, boot: str
) -> None:
    """Keep the kernel's log, or say why it cannot be had.

    Args:
        gathering: What comes together.
        seen: How much of the journal may be read.
        since: Beginning of the window, for journalctl; None for all there is.
        death_s: When the service died, as far as is known, seconds since the epoch.
        boot: Boot id of its newest run; `` when unknown.
    """
    if seen is Sight.ALL and _from_journal(gathering, since, boot):
        return
    _from_ring_buffer(gathering, seen, since, death_s)


def _from_journal(gathering: Gathering, since: str | None, boot: str) -> bool:
    chunks = peeked(Output(gathering.host, entries(_MATCH, since=since)))
    if chunks is not None:
        gathering.add(NAME, chunks)
        return True
    # Quiet, or not kept? It was quiet if the journal holds other lines of the kernel of that boot.
    older = last_lines(gathering.host, entries(_MATCH, newest=True), _QUIET_LINES)
    if not older or (boot and newest_boot(older) != boot):
        return False
    gathering.add(NAME, b"".join(older), (f"the kernel said nothing since {since}: these lines are older",))
    return True


def _from_ring_buffer(gathering: Gathering, seen: Sight, since: str | None, death_s: float | None) -> None:
    host = gathering.host
    ended = Completed(None, missing=True)
    for argv in _DMESG:
        ended = host.run(argv)
        if ended.ok or ended.missing or denied(ended.stderr):
            break
    command = for_people(_MATCH, since=since)
    if not ended.ok or not ended.stdout.strip():
        journal = {Sight.ALL: "the journal holds none of it", Sight.NO_JOURNAL: "no journal to read it from"}
        because = f"{journal.get(seen, 'this user may not read it in the journal')}; {reason(ended, ('dmesg',))}"
        gathering.miss(NAME, because, command if seen is not Sight.ALL else "dmesg -T", as_root=True)
        return
    gathering.add(NAME, ended.stdout, ("from the ring buffer (dmesg): this boot only",))
    oldest = _oldest(ended.stdout)
    if oldest is not None and death_s is not None and oldest > death_s:
        when = datetime.fromtimestamp(oldest, UTC).strftime("%Y-%m-%d %H:%M:%S")
        because = "the ring buffer begins after the death: it was overwritten, or the host was booted since"
        gathering.miss(f"{NAME} before {when} UTC", because, command, as_root=True)


def _oldest(output: bytes) -> float | None:
    """Time of the first line that has one, seconds since the epoch."""
    head = output[: 1 << 16]
    if match := _CTIME.search(head):
        with suppress(ValueError):
            return datetime.strptime(match[1].decode(), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    return None
