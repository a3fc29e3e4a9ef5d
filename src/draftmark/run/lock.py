"""One Draftmark a service: the second is refused and told who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from draftmark.errors import BadInputError, RefusedError


def _lock_directory() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    usable = runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK)  # noqa: PTH112 - a str, maybe None
    base = Path(runtime) if runtime and usable else Path(tempfile.gettempdir())
    return base / f"draftmark-{os.getuid()}"


def _opened(path: Path) -> TextIO:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return path.open("a+")
    except OSError as error:
        raise BadInputError(
            "the lock that keeps two draftmarks apart cannot be taken",
            evidence=(f"{path}: {error.strerror}",),
            next_step="make that place writable, or set TMPDIR to one that is",
        ) from None


@contextlib.contextmanager
def exclusive(service: str, *, about: str) -> Iterator[None]:
    """Hold the lock of a service for as long as the block runs. The kernel frees it however this process ends.

    Args:
        service: What is locked, such as `http://127.0.0.1:8080`.
        about: Who holds it, for the one who is refused: run directory and the like.

    Raises:
        RefusedError: Another process holds it.
    """
    directory = _lock_directory()
    path = directory / f"{hashlib.sha256(service.encode()).hexdigest()[:16]}.lock"
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read(500).strip() or "unknown"
            raise RefusedError(
                f"another draftmark is working on {service}",
                evidence=(holder,),
                next_step="wait for it to end, or stop it (it puts the service back first)",
            ) from None
        file.truncate(0)
        file.write(f"pid {os.getpid()}: {about}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
