"""The kernel's log of one trial: only what came after its start, and no OOM kill that may be somebody else's."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from draftmark.ports import Host

if TYPE_CHECKING:
    from draftmark.postmortem.collect.gathering import Reader
    from draftmark.postmortem.model import Line, Source, Unread

_DMESG = ("dmesg",)
_DMESG_S = 5.0
_OLDER_LINES = 200
_NAME = "kernel log"
_CHOSEN = re.compile(r"oom-kill:.*task_memcg=(?P<group>[^,]*),task=.*,pid=(?P<pid>\d+)")
_KILLED = re.compile(r"Killed process (?P<pid>\d+)")
_MEMORY_GROUP = re.compile(r"^\d+:(?:[^:\n]*,)?memory(?:,[^:\n]*)?:(?P<path>/.*)$", re.MULTILINE)  # cgroup v1
_UNIFIED_GROUP = re.compile(r"^0::(?P<path>/.*)$", re.MULTILINE)


class KernelWindow:
    """What the kernel said since `begin`.

    The ring buffer is marked by its newest line and not by a time, since its clock strays from the wall's over
    weeks of uptime. Where it may not be read, the journal is asked.
    """

    def __init__(self, host: Host, wall_s: Callable[[], float] = time.time) -> None:
        self._host = host
        self._wall_s = wall_s
        self._mark: bytes | None = None
        self._begun_s = 0.0

    def begin(self) -> None:
        """Remember where the log ends now."""
        lines = self._ring()
        self._mark = lines[-1] if lines else None
        self._begun_s = self._wall_s()

    def read(self, read: Reader, literals: Sequence[str]) -> tuple[list[Source], list[Unread]]:
        """The window as a source, or why there is none.

        Args:
            read: Makes a source of a name and of bytes.
            literals: Words that make a line mean something: an older line with none of them may head the window.
        """
        ring = self._ring() if self._mark is not None else []
        if not ring:
            return self._from_journal(read, literals)
        older = 0
        if self._mark in ring:  # else it was overwritten: everything is newer
            place = len(ring) - ring[::-1].index(self._mark)
            older = min(place, _OLDER_LINES)
            ring = ring[place - older :]
        source = read(_NAME, b"\n".join(ring) + b"\n")
        return self._window(source, [line.number > older for line in source.lines], literals)

    def _ring(self) -> list[bytes]:
        ended = self._host.run(_DMESG, timeout_s=_DMESG_S)
        return [line for line in ended.stdout.splitlines() if line.strip()] if ended.ok else []

    def _from_journal(self, read: Reader, literals: Sequence[str]) -> tuple[list[Source], list[Unread]]:
        from draftmark.postmortem.collect.gathering import Gathering
        from draftmark.postmortem.collect.journal import sight
        from draftmark.postmortem.collect.kernel import Span, collect_kernel

        gathering = Gathering(self._host, read)
        collect_kernel(gathering, sight(self._host)[0], Span(f"@{self._begun_s:.0f}", self._begun_s))
        if not gathering.sources:
            return [], gathering.unread
        source = gathering.sources[0]
        newer = [line.time is not None and line.time >= self._begun_s for line in source.lines]
        found, unread = self._window(source, newer, literals)
        return found, [*gathering.unread, *unread]

    def _window(
        self, source: Source, newer: Sequence[bool], literals: Sequence[str]
    ) -> tuple[list[Source], list[Unread]]:
        from draftmark.postmortem.model import Unread

        said = [line for line, is_newer in zip(source.lines, newer, strict=True) if is_newer]
        older = [line for line, is_newer in zip(source.lines, newer, strict=True) if not is_newer]
        kills = _kills(said)
        ours = {pid for pid, group in kills.items() if group is not None and group == self._group()}
        if kills and not ours:
            because = (
                f"it tells of {len(kills)} OOM kill(s) at that time, none in our own control group: whether "
                "one was the server's is not known"
            )
            return [], [Unread(_NAME, because, f"sudo journalctl -k --since=@{self._begun_s:.0f}")]
        # A line that says nothing shows that the log was read, also when the kernel was quiet.
        head = [line for line in older if not any(literal in line.text for literal in literals)][-1:]
        lines = (*head, *(line for line in said if _pid(line) in (None, *ours)))
        return [dataclasses.replace(source, lines=lines)], []

    def _group(self) -> str | None:
        """Our own memory control group, in which our children are too; None where it cannot be told."""
        try:
            text = self._host.read("/proc/self/cgroup").decode("utf-8", "replace")
        except OSError:
            return None
        match = _MEMORY_GROUP.search(text) or _UNIFIED_GROUP.search(text)
        return match["path"] if match else None


def _kills(lines: Sequence[Line]) -> dict[str, str | None]:
    """Victims by pid, with the control group that each was in, where the kernel says so (since 5.0)."""
    found: dict[str, str | None] = {}
    for line in lines:
        if match := _CHOSEN.search(line.text):
            found[match["pid"]] = match["group"]
        elif match := _KILLED.search(line.text):
            found.setdefault(match["pid"])
    return found


def _pid(line: Line) -> str | None:
    match = _CHOSEN.search(line.text) or _KILLED.search(line.text)
    return match["pid"] if match else None
