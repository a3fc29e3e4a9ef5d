"""What one run of a unit writes, copied as far as it is there: from the journal, or from files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from draftmark.errors import StorageError
from draftmark.ports import Host

_CURSOR = b"-- cursor: "
_SIZES = 'for f in "$@"; do stat -Lc %s -- "$f" 2>/dev/null || echo 0; done'


class UnitLog(Protocol):
    """Where a run's words come from."""

    def gather(self) -> None:
        """Append what is new since the last time.

        Raises:
            StorageError: Our own file cannot be written.
        """
        ...


@dataclass(slots=True)
class JournalLog:
    """Copies what one invocation writes into a file, as far as it is there whenever it is asked.

    Attributes:
        log: Appended to.
    """

    host: Host
    invocation: str
    log: Path
    _cursor: str = field(default="", repr=False)

    def gather(self) -> None:
        """Append what is new.

        Raises:
            StorageError: The file cannot be written.
        """
        after = (f"--after-cursor={self._cursor}",) if self._cursor else ()
        match = f"_SYSTEMD_INVOCATION_ID={self.invocation}"
        argv = ("journalctl", "--no-pager", "--quiet", "--output=cat", "--show-cursor", *after, match)
        stream = self.host.stream(argv)
        tail = b""
        try:
            with appending(self.log) as file:
                for chunk in stream:
                    data = tail + chunk
                    # The cursor comes last, on a line of its own: what may be its beginning is held back.
                    at = data.rfind(b"\n", 0, len(data) - 1) + 1
                    file.write(data[:at])
                    tail = data[at:]
                if not tail.startswith(_CURSOR):
                    file.write(tail)
                    tail = b""
        finally:
            stream.close()
        if tail:
            self._cursor = tail.removeprefix(_CURSOR).strip().decode("ascii", "replace")


@dataclass(slots=True)
class FileLogs:
    """Copies what is written behind the present end of files. One that is cut short is read from its beginning.

    Attributes:
        host: Commands run with the rights to read them.
        files: Paths there, and whether systemd empties them at a start.
        log: Appended to.
    """

    host: Host
    files: Mapping[str, bool]
    log: Path
    _at: list[int] = field(default_factory=list, repr=False)

    def mark(self) -> None:
        """What is there now is of an earlier run."""
        self._at = [
            0 if emptied else size for size, emptied in zip(self._sizes(), self.files.values(), strict=True)
        ]

    def gather(self) -> None:
        """Append what is new."""
        with appending(self.log) as out:
            for index, (path, size) in enumerate(zip(self.files, self._sizes(), strict=True)):
                start = self._at[index] if size >= self._at[index] else 0
                if size > start:
                    self._copy(path, start, size - start, out.write)
                self._at[index] = size

    def _sizes(self) -> list[int]:
        ended = self.host.run(("sh", "-c", _SIZES, "sh", *self.files))
        found = [int(word) for word in ended.stdout.split() if word.isdigit()]
        return found if len(found) == len(self.files) else [0] * len(self.files)

    def _copy(self, path: str, start: int, size: int, write: Callable[[bytes], int]) -> None:
        stream = self.host.stream(("tail", "-c", f"+{start + 1}", "--", path))
        left = size
        try:
            for chunk in stream:
                write(chunk[:left])
                left -= len(chunk)
                if left <= 0:  # what came since is for the next time
                    break
        finally:
            stream.close()


@contextmanager
def appending(log: Path) -> Iterator[BinaryIO]:
    """A log of ours, to append to."""
    try:
        with log.open("ab") as file:
            yield file
    except OSError as error:
        raise StorageError(
            f"the server's log cannot be written: {error.strerror}",
            evidence=(str(log),),
            next_step="make room, or name another place with --run",
        ) from None
