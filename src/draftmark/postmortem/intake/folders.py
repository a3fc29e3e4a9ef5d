"""The regular files below what was named, each once."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from draftmark.errors import BadInputError
from draftmark.postmortem.model import Unread


@dataclass(slots=True)
class Found:
    """Files to be opened, in the order of a walk, and what could not be."""

    files: list[str] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def first_time(self, status: os.stat_result) -> bool:
        """Whether a file or folder was not met before, under any name."""
        identity = (status.st_dev, status.st_ino)
        if identity in self._seen:
            return False
        self._seen.add(identity)
        return True


def find(paths: Sequence[str], most: int) -> Found:
    """What is named itself is opened whatever it is; inside folders only regular files are.

    Raises:
        BadInputError: A path does not exist.
    """
    found = Found()
    for path in paths:
        if path == "-":
            found.files.append(path)
            continue
        try:
            status = Path(path).stat()
        except (OSError, ValueError) as error:
            _top_level(path, error, found)
            continue
        if found.first_time(status):
            if stat.S_ISDIR(status.st_mode):
                _walk(path, found, most)
            else:
                found.files.append(path)
    return found


def _top_level(path: str, error: OSError | ValueError, found: Found) -> None:
    if isinstance(error, PermissionError):
        found.unread.append(no_permission(path))
        return
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    raise BadInputError(
        f"{path} cannot be opened: {reason}.",
        evidence=(f"stat {path}: {reason}",),
        next_step="name files or folders that exist, or pipe a log in: … | draftmark why -",
    )


def no_permission(path: str, *, folder: bool = False) -> Unread:
    """What may not be read, with the command that may."""
    return Unread(path, "no permission", f"sudo {'ls -la' if folder else 'cat'} {shlex.quote(path)}")


def _walk(folder: str, found: Found, most: int) -> None:
    """Depth first, by name. Links are followed once: what was met under another name is left out."""
    waiting = [folder]
    while waiting and len(found.files) < most:
        here = waiting.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            found.unread.append(_unlistable(here, error))
            continue
        folders = [path for entry in entries if (path := _enter(entry, found, most))]
        waiting += reversed(folders)


def _unlistable(folder: str, error: OSError) -> Unread:
    if isinstance(error, PermissionError):
        return no_permission(folder, folder=True)
    return Unread(folder, error.strerror or str(error), f"ls -la {shlex.quote(folder)}")


def _enter(entry: os.DirEntry[str], found: Found, most: int) -> str | None:
    """Notes a file; the path of a folder that is to be walked."""
    try:
        status = entry.stat()
    except OSError as error:
        if not entry.is_symlink():
            found.unread.append(_unlistable(entry.path, error))
        return None
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)) or not found.first_time(status):
        return None
    if stat.S_ISDIR(status.st_mode):
        return entry.path
    if len(found.files) < most:
        found.files.append(entry.path)
    elif not found.unread or not found.unread[-1].because.startswith("more than"):
        found.unread.append(
            Unread(str(Path(entry.path).parent), f"more than {most} files", "draftmark why PATH… with fewer files")
        )
    return None
