"""Whatever was handed over → sources. Nothing is written to disk; archives are read as streams."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from draftmark.errors import BadInputError
from draftmark.postmortem.intake import streams
from draftmark.postmortem.intake.clean import printable
from draftmark.postmortem.intake.folders import find, no_permission
from draftmark.postmortem.intake.limits import Hints, Intake, Limits
from draftmark.postmortem.intake.order import ordered
from draftmark.postmortem.intake.sources import Raw, raw_source, read_sources
from draftmark.postmortem.intake.streams import Allowance, Counted, MissingCodecError, Peeked, Readable, Unpacked
from draftmark.postmortem.model import Kind, Source, Unread

if TYPE_CHECKING:
    from draftmark.postmortem.intake.archives import Member

_DEFAULT = Limits()
Progress = Callable[[str, int, int | None], None]
_STDIN = "stdin"
_HAND_OVER = "hand over the server's log as text: journalctl -u UNIT -o json, docker logs NAME, kubectl logs POD"


def read_bytes(name: str, data: bytes | Iterable[bytes], *, hints: Hints, limits: Limits = _DEFAULT) -> Source:
    """One source from its bytes, as they are: nothing is unpacked."""
    blocks = (data,) if isinstance(data, bytes) else data
    return read_sources([raw_source(name, blocks, hints, limits)], hints, limits)[0]


def read_paths(
    paths: Sequence[str],
    *,
    hints: Hints,
    limits: Limits = _DEFAULT,
    stdin: BinaryIO | None = None,
    progress: Progress | None = None,
) -> Intake:
    """Files, folders, archives; `-` is `stdin` (this process's, unless another is given).

    Args:
        paths: As they were named.
        hints: What makes a line of a large source worth keeping.
        limits: What is not exceeded, whatever the input.
        stdin: Instead of this process's.
        progress: Told a file's name, the bytes read so far and its size, after each block.

    Raises:
        BadInputError: A path does not exist, or nothing of what was named can be used.
    """
    found = find(paths, limits.members)
    opening = _Opening(hints, limits, progress)
    opening.unread += found.unread
    for path in found.files:
        opening.open(path, stdin)
    if not any(raw.kind is not Kind.UNUSABLE for raw in opening.raws.values()):
        raise _nothing_usable(list(opening.raws.values()), opening.unread)
    raws = [opening.raws[name] for name in ordered(opening.raws)]
    return Intake(read_sources(raws, hints, limits), tuple(opening.unread))


def _nothing_usable(raws: list[Raw], unread: list[Unread]) -> BadInputError:
    evidence = [f"{raw.name}: {', '.join(raw.notes)}" for raw in raws]
    evidence += [f"{item.source}: {item.because}" for item in unread]
    more = len(evidence) - 8
    shown = evidence[:8] + ([f"and {more} more"] if more > 0 else [])
    if not evidence:
        return BadInputError("There is no file to read.", next_step="name a log, or a folder with logs")
    what = (
        "Nothing that was handed over can be read as a log."
        if len(evidence) > 1
        else "This cannot be read as a log."
    )
    command = unread[0].command if unread else ""
    return BadInputError(
        what,
        evidence=tuple(shown),
        next_step=command
        or "hand over the server's log as text (journalctl -u UNIT -o json, docker logs, kubectl logs)",
    )


def _shown(name: str) -> str:
    """A file's name as text that any output can carry."""
    return printable(os.fsencode(name).decode("utf-8", "replace"), 4096)


class _Opening:
    """Opens one after the other, and remembers what came of it."""

    def __init__(self, hints: Hints, limits: Limits, progress: Progress | None) -> None:
        self.raws: dict[str, Raw] = {}
        self.unread: list[Unread] = []
        self._hints = hints
        self._limits = limits
        self._progress = progress
        self._allowance = Allowance(limits)
        self._lines = 0
        self._members = 0

    def open(self, path: str, stdin: BinaryIO | None) -> None:
        """A path of the command line, or below a folder that stood there."""
        try:
            if path == "-":
                self._content(_STDIN, Peeked(stdin or sys.stdin.buffer))
                return
            with Path(path).open("rb", buffering=0) as file:
                self._content(path, Peeked(self._counted(path, file)), file)
        except PermissionError:
            self.unread.append(no_permission(path))
        except OSError as error:
            self.unread.append(Unread(path, error.strerror or str(error), f"cat {shlex.quote(path)}"))

    def _counted(self, path: str, file: IO[bytes]) -> Readable:
        if self._progress is None:
            return file
        name, size, progress = _shown(path), os.fstat(file.fileno()).st_size, self._progress
        return Counted(file, lambda done: progress(name, done, size or None))

    def _content(self, name: str, stream: Peeked, file: IO[bytes] | None = None, *, inside: bool = False) -> None:
        """A stream that may be compressed, an archive, or both; `file` is the same, where it can seek.

        Archives `inside` an archive are not opened.
        """
        try:
            unpack = streams.packing(stream.head)
        except MissingCodecError as missing:
            self._not_read(name, "compressed, and no library here unpacks it", f"{missing.command} {{}}")
            return
        if unpack is None:
            self._plain(name, stream, file, inside=inside)
            return
        unpacked = Unpacked(unpack(stream), lambda: stream.given, self._allowance)
        content = Peeked(unpacked)
        if unpacked.note and not content.head:
            self._not_read(name, unpacked.note, "file {}")
            return
        self._plain(name, content, None, inside=inside)
        self._note(name, unpacked.note)

    def _plain(self, name: str, stream: Peeked, file: IO[bytes] | None, *, inside: bool) -> None:
        is_tar, is_zip = streams.is_tar(stream.head), stream.head.startswith(streams.ZIP)
        if inside and (is_tar or is_zip):
            self._not_read(name, "an archive inside an archive", "tar -xf {}" if is_tar else "unzip {}")
        elif is_tar or is_zip:
            from draftmark.postmortem.intake.archives import tar_members, zip_members

            members = tar_members(stream) if is_tar else zip_members(stream, file)
            self._members_of(name, members, "tar -tf {}" if is_tar else "unzip -l {}")
        elif stream.head.startswith(streams.JOURNAL):
            self._not_read(name, "a binary journal", "journalctl --file {} -o json")
        else:
            self._source(name, stream, f"less {shlex.quote(_shown(name))}" if file is not None else "")

    def _source(self, name: str, stream: Readable, command: str) -> None:
        limits = self._limits if self._lines < self._limits.total_lines else self._limits.tight()
        raw = raw_source(_shown(name), streams.blocks(stream), self._hints, limits)
        raw = replace(raw, command=command)
        self._lines += len(raw.scanned.lines)
        while raw.name in self.raws:
            raw = raw.renamed(raw.name + "'")
        self.raws[raw.name] = raw

    def _note(self, name: str, note: str) -> None:
        """Adds what unpacking said to the source, or to its archive's members."""
        shown = _shown(name)
        if note and shown in self.raws:
            self.raws[shown] = self.raws[shown].noted(note)
        elif note and all(item.source != shown for item in self.unread):
            self._not_read(name, note, "tar -tf {}")

    def _not_read(self, name: str, because: str, command: str) -> None:
        path = name.partition(":")[0] if not Path(name).exists() else name
        self.unread.append(Unread(_shown(name), because, command.format(shlex.quote(path))))

    def _members_of(self, archive: str, members: Iterator[Member], command: str) -> None:
        """Opens the members of an archive, until it ends or there were too many."""
        from draftmark.postmortem.intake.archives import DamagedError

        try:
            for member in members:
                self._members += 1
                if self._members > self._limits.members:
                    self._not_read(archive, f"more than {self._limits.members} members", command)
                    break
                name = f"{archive}:{member.name.removeprefix('./')}"
                content = Unpacked(member.content, member.taken, self._allowance)
                self._content(name, Peeked(content), inside=True)
                self._note(name, content.note)
        except DamagedError as error:
            self._not_read(archive, f"damaged or cut off, its first members were read ({error})", command)
