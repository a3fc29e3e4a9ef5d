"""Files of a host on which only commands can be run: the command that reads one, and the error that it means."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from draftmark.ports import Completed

_NOT_REGULAR = 99
# As the C library words them in the C locale.
_ERRORS = {
    "No such file or directory": errno.ENOENT,
    "Permission denied": errno.EACCES,
    "Operation not permitted": errno.EPERM,
    "Not a directory": errno.ENOTDIR,
    "Is a directory": errno.EISDIR,
    "Too many levels of symbolic links": errno.ELOOP,
    "File name too long": errno.ENAMETOOLONG,
    "Input/output error": errno.EIO,
    "Invalid argument": errno.EINVAL,
    "No such device or address": errno.ENXIO,
    "No such process": errno.ESRCH,
}


def read_command(path: str, limit_bytes: int, before: Sequence[str] = ()) -> tuple[str, ...]:
    """Prints the beginning of a regular file; of a pipe or a device, which could keep us waiting, nothing.

    Args:
        path: The file.
        limit_bytes: How much of it.
        before: Words before the command that opens it, such as those of sudo.
    """
    words = "".join(f"{word} " for word in before)
    look = f'if [ -e "$1" ] && [ ! -f "$1" ]; then exit {_NOT_REGULAR}; fi; exec {words}head -c "$2" -- "$1"'
    return ("sh", "-c", look, "sh", path, str(limit_bytes))


def contents(ended: Completed, path: str) -> bytes:
    """What the command printed.

    Raises:
        OSError: What it says, as opening the file here would have raised it.
    """
    if ended.ok:
        return ended.stdout
    if ended.status == _NOT_REGULAR and not ended.stderr:
        raise OSError(f"not a regular file: {path}")
    if ended.timed_out:
        raise TimeoutError(errno.ETIMEDOUT, "it was not read in time", path)
    said = ended.stderr.strip()
    reason = said.rpartition(": ")[2]
    if reason in _ERRORS:
        raise OSError(_ERRORS[reason], reason, path)
    raise OSError(f"{path}: {said or f'exit status {ended.status}'}")
