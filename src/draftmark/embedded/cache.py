"""Where engine and model are kept: checked cheaply on each use, filled under a lock, published by rename."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from draftmark.errors import BadInputError, StorageError

from .pins import FilePin, megabytes
from .progress import Progress

_STAMP = ".stamp.json"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_UNUSABLE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOENT,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}
ELSEWHERE = "set DRAFTMARK_CACHE to a directory that can be written to and has room"


def cache_dir() -> Path:
    """$DRAFTMARK_CACHE, else $XDG_CACHE_HOME/draftmark, else ~/.cache/draftmark.

    Raises:
        BadInputError: None of them names a place.
    """
    if own := os.environ.get("DRAFTMARK_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():  # the XDG specification says to ignore a relative one
        return Path(base, "draftmark")
    try:
        return Path.home() / ".cache" / "draftmark"
    except RuntimeError as error:
        raise BadInputError("there is no place for a cache", evidence=(str(error),), next_step=ELSEWHERE) from None


@contextmanager
def storage_errors(path: Path, *, needed_bytes: int | None = None) -> Iterator[None]:
    """Turn what the file system says about `path` into an error for people.

    Raises:
        StorageError: It is full, or failed.
        BadInputError: It cannot be written to, or is not a directory.
    """
    try:
        yield
    except OSError as error:
        text = f"{error.filename or path}: {os.strerror(error.errno) if error.errno else error}"
        if error.errno in _FULL:
            raise StorageError(
                f"no room left in {path}", evidence=(text, room(path, needed_bytes)), next_step=ELSEWHERE
            ) from error
        if error.errno in _UNUSABLE:
            raise BadInputError(
                f"the cache directory {path} cannot be used", evidence=(text,), next_step=ELSEWHERE
            ) from error
        raise StorageError(f"the cache directory {path} failed", evidence=(text,), next_step=ELSEWHERE) from error


def room(path: Path, needed_bytes: int | None) -> str:
    """`free 120 MB, needed 1100 MB`."""
    needed = f", needed {megabytes(needed_bytes)}" if needed_bytes is not None else ""
    return f"free {megabytes(free_bytes(path))}{needed}"


def free_bytes(path: Path) -> int:
    """Free space where `path` is, or where it would be."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def sha256_of(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """Content hash of a file; `on_bytes` hears how far it is."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(4 << 20):
            digest.update(block)
            done += len(block)
            if on_bytes:
                on_bytes(done)
    return digest.hexdigest()


class Store:
    """The cache directory.

    Args:
        root: It; made when first written to.

    Raises:
        BadInputError: The path has a colon, which the search paths that must name it cannot carry.
    """

    def __init__(self, root: Path) -> None:
        if ":" in str(root):
            raise BadInputError(
                "a cache directory with a colon in its path cannot be used",
                evidence=(str(root),),
                next_step="set DRAFTMARK_CACHE to a path without a colon",
            )
        self.root = root
        self.downloads = root / "downloads"
        self._staging = root / "staging"

    def damage(self, name: str, files: Sequence[FilePin]) -> str | None:
        """What is wrong with a published directory; None if nothing is.

        A file is trusted by size and modification time once its hash was checked; else it is hashed again. Where
        that cannot be noted (a read-only cache), it is hashed each time.
        """
        directory = self.root / name
        known = _read_stamp(directory)
        fresh: dict[str, list[str | int]] = {}
        for pin in files:
            path = directory / pin.path
            try:
                state = path.stat()
                if state.st_size != pin.size_bytes:
                    return f"{path} has {state.st_size} bytes, not {pin.size_bytes}"
                fresh[pin.path] = [pin.sha256, state.st_mtime_ns]
                if known.get(pin.path) != fresh[pin.path] and (actual := sha256_of(path)) != pin.sha256:
                    return f"{path} has sha256 {actual}, not {pin.sha256}"
            except OSError as error:
                return f"{path}: {error.strerror}"
        if fresh != known:
            with suppress(OSError):
                _write_stamp(directory, fresh)
        return None

    def require(self, needed_bytes: int) -> None:
        """Refuse to begin what cannot end.

        Raises:
            StorageError: Less is free.
        """
        with storage_errors(self.root):
            short = free_bytes(self.root) < needed_bytes
        if short:
            raise StorageError(
                f"not enough room in {self.root}", evidence=(room(self.root, needed_bytes),), next_step=ELSEWHERE
            )

    @contextmanager
    def lock(self, progress: Progress) -> Iterator[None]:
        """One process at a time fills the cache. The kernel lets go of the lock when its holder dies.

        Raises:
            BadInputError: The directory cannot be made or written to.
        """
        with storage_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            file = (self.root / "lock").open("a+")
        with file:
            self._acquire(file, progress)
            with suppress(OSError):
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
            yield

    def _acquire(self, file: IO[str], progress: Progress) -> None:
        waiting = False
        while not self._locked(file):
            if not waiting:
                file.seek(0)
                progress.step(f"waiting for process {file.read(20) or '?'}, which is filling the same cache", None)
                waiting = True
            time.sleep(0.1)
        if waiting:
            progress.done("the other process is through")

    def _locked(self, file: IO[str]) -> bool:
        with storage_errors(self.root):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A fresh directory on the cache's own file system, gone afterwards. Only under the lock.

        What an attempt that was killed has left is removed first.
        """
        self.sweep()
        with storage_errors(self.root):
            self._staging.mkdir(exist_ok=True)
            here = Path(tempfile.mkdtemp(prefix="attempt-", dir=self._staging))
        try:
            yield here
        finally:
            self.sweep()

    def sweep(self) -> None:
        """Remove the leftovers of attempts."""
        shutil.rmtree(self._staging, ignore_errors=True)

    def publish(self, staged: Path, name: str, files: Sequence[FilePin]) -> Path:
        """Move a complete directory to its name, in one rename; a damaged predecessor goes.

        A server that runs from the predecessor keeps its open files.
        """
        target = self.root / name
        with storage_errors(self.root):
            _write_stamp(staged, {pin.path: [pin.sha256, (staged / pin.path).stat().st_mtime_ns] for pin in files})
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists() or target.is_symlink():
                target.rename(staged.with_name(staged.name + ".old"))
            staged.rename(target)
        return target


def _read_stamp(directory: Path) -> dict[str, list[str | int]]:
    try:
        stamp = json.loads((directory / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _write_stamp(directory: Path, stamp: dict[str, list[str | int]]) -> None:
    """Whole or not at all, so that a reader never sees half a stamp."""
    fresh = directory / f"{_STAMP}.{os.getpid()}"
    fresh.write_text(json.dumps(stamp), encoding="utf-8")
    fresh.replace(directory / _STAMP)
