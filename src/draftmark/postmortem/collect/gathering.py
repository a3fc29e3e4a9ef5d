"""What every collector does: run a command, keep what it said, and say of what it did not why and how to get it."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from draftmark.ports import Completed, Host
from draftmark.postmortem.intake.clean import printable
from draftmark.postmortem.model import Line, Source, Unread

Reader = Callable[[str, "bytes | Iterable[bytes]"], Source]
"""Makes a source of a name and of bytes; given by the caller, who knows what lines are looked for."""

_UNIT_TYPE = re.compile(r"\.(?:service|socket|scope|slice|target|timer)$")
_DENIED = ("permission", "denied", "not permitted", "not seeing messages", "access", "must be root", "forbidden")


@dataclass(frozen=True, slots=True)
class Collected:
    """What a host knows of a service.

    Attributes:
        sources: What was read.
        unread: What was not.
        unit: The service's own name for itself: the canonical unit, container, `namespace/pod`, job id.
    """

    sources: tuple[Source, ...]
    unread: tuple[Unread, ...]
    unit: str | None


@dataclass(slots=True)
class Gathering:
    """Sources as they come together."""

    host: Host
    read: Reader
    sources: list[Source] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    def add(
        self,
        name: str,
        data: bytes | Iterable[bytes],
        notes: Iterable[str] = (),
        *,
        argv: Sequence[str] | str = "",
        as_root: bool = False,
    ) -> None:
        """Keep a source; `argv` shows it to people."""
        source = self.read(name, data)
        lines = tuple(map(_as_journalctl_shows, source.lines))
        self.sources.append(replace(source, lines=lines, command=self._typed(argv, as_root=as_root)))
        self.annotate(notes)

    def annotate(self, notes: Iterable[str]) -> None:
        """Add notes to the source that was kept last: some are known only when a stream has been read."""
        last = self.sources[-1]
        self.sources[-1] = replace(last, notes=(*last.notes, *notes))

    def miss(self, source: str, because: str, argv: Sequence[str] | str, *, as_root: bool = False) -> None:
        """Name a source that was not read, and the command that reads it."""
        self.unread.append(Unread(source, because, self._typed(argv, as_root=as_root)))

    def _typed(self, argv: Sequence[str] | str, *, as_root: bool) -> str:
        """A command as people type it."""
        command = argv if isinstance(argv, str) else shlex.join(argv)
        sudo = "sudo " if as_root and not self.host.is_root and not command.startswith("sudo ") else ""
        return sudo + command

    def command(self, name: str, argv: Sequence[str], *, unread: str = "", timeout_s: float = 20.0) -> bytes | None:
        """Run a command and keep its output as a source.

        Args:
            name: Of the source.
            argv: Command.
            unread: What the source is called where it cannot be read; `` when that needs no word.
            timeout_s: Longest wait.

        Returns:
            Its output; None when it failed.
        """
        ended = self.host.run(argv, timeout_s=timeout_s)
        if not ended.ok and not (ended.cut and ended.stdout):
            if unread:
                self.failed(unread, ended, argv)
            return None
        if ended.stdout.strip():
            self.add(name, ended.stdout, ("longer than was read",) if ended.cut else (), argv=argv)
        return ended.stdout

    def failed(self, source: str, ended: Completed, argv: Sequence[str]) -> None:
        """Name a source that a command did not give."""
        because = reason(ended, argv)
        self.miss(source, because, argv, as_root=denied(ended.stderr))

    def done(self, unit: str | None) -> Collected:
        """What came together."""
        return Collected(tuple(self.sources), tuple(self.unread), unit)


def _as_journalctl_shows(line: Line) -> Line:
    """A journal is asked for as JSON, which people who look there do not see: no record is shown whole."""
    record = line.raw.startswith("{") and '"__REALTIME_TIMESTAMP"' in line.raw and '"_BOOT_ID"' in line.raw
    return replace(line, raw=printable(line.text, len(line.raw))) if record and line.text else line


def reason(ended: Completed, argv: Sequence[str]) -> str:
    """Why a command gave nothing, in words."""
    program = argv[0]
    if ended.missing:
        return f"there is no {program} here, or it may not be run"
    if ended.timed_out:
        return f"{program} gave no answer in time"
    said = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    if said:
        return said[-1][:200] if said[-1].startswith(program) else f"{program}: {said[-1][:200]}"
    return f"{program} said nothing" if ended.status == 0 else f"{program} ended with status {ended.status}"


def denied(stderr: str) -> bool:
    """Whether a command complains of rights, which root would have."""
    return any(word in stderr.lower() for word in _DENIED)


def close_names(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """Names that may have been meant, the likeliest first: spelt alike but for the suffix, or one in the other."""
    stems = {each: _UNIT_TYPE.sub("", each).lower() for each in sorted(set(names))}
    wanted = _UNIT_TYPE.sub("", name).lower()
    cutoff = 0.65 if len(wanted) > 3 else 0.5
    alike = difflib.get_close_matches(wanted, stems.values(), n=limit, cutoff=cutoff)
    short = {stem: min(stem, wanted, key=len) for stem in stems.values()}
    holding = [
        stem for stem in stems.values() if len(short[stem]) > 2 and short[stem] in max(stem, wanted, key=len)
    ]
    found = [each for stem in (*alike, *holding) for each in stems if stems[each] == stem]
    return list(dict.fromkeys(found))[:limit]
