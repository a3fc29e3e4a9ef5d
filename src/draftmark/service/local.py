"""The local computer as a Host: commands, bounded in time and size, and files."""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO

from draftmark.ports import Completed

_CHUNK = 1 << 18
_STDERR_LIMIT = 1 << 16
_REAP_S = 2.0
SETTINGS = {
    "LC_ALL": "C",
    "TZ": "UTC",  # stamps without a zone, as of systemctl and dmesg, are then in UTC
    "SYSTEMD_PAGER": "",
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_URLIFY": "0",
    "PAGER": "cat",
}


class LocalHost:
    """ports.Host for the computer that Draftmark runs on."""

    @property
    def name(self) -> str:
        """Its host name."""
        return socket.gethostname()

    @property
    def is_root(self) -> bool:
        """Whether this process is root."""
        return os.geteuid() == 0

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in the port
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        """Run to its end, or until the time is up or the output is longer than the limit."""
        command = LocalStream(argv, timeout_s, input)
        kept = bytearray()
        try:
            for chunk in command:
                kept += chunk
                if len(kept) > limit_bytes:
                    break
        finally:
            ended = command.close()
        return Completed(
            ended.status, bytes(kept[:limit_bytes]), ended.stderr, ended.cut, ended.timed_out, ended.missing
        )

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> LocalStream:
        """Start it; its output is read as it is iterated over."""
        return LocalStream(argv, timeout_s)

    def reach(self, address: str, port: int) -> tuple[str, int]:
        """As it stands: it is this computer."""
        return address, port

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """The beginning of a regular file (those of /proc and /sys are).

        Raises:
            OSError: Not there, not readable, not a regular file: a pipe or a device could keep us waiting for ever.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"not a regular file: {path}")
            return file.read(limit_bytes)


class LocalStream:
    """ports.Stream over a child process in a session of its own, so that its children end with it."""

    def __init__(self, argv: Sequence[str], timeout_s: float, stdin: bytes = b"") -> None:
        self._stdin = memoryview(stdin)
        self._deadline = time.monotonic() + timeout_s
        self._stderr = bytearray()
        self._drained = self._timed_out = False
        self._process: subprocess.Popen[bytes] | None = None
        self._completed: Completed | None = None
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **SETTINGS},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in a word
            self._completed = Completed(None, stderr=str(error), missing=True)

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of stdout; stderr is drained beside it, so that neither pipe can block the command."""
        process = self._process
        if process is None or self._completed is not None:
            return
        with selectors.DefaultSelector() as selector:
            for pipe in filter(None, (process.stdout, process.stderr)):
                selector.register(pipe, selectors.EVENT_READ)
            if process.stdin is not None:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                left = self._deadline - time.monotonic()
                if left <= 0:
                    self._timed_out = True
                    return
                for key, _ in selector.select(left):
                    if key.fileobj is process.stdin:
                        self._feed(key.fd, selector, process.stdin)
                    elif chunk := self._taken(key.fd, selector, error=key.fileobj is process.stderr):
                        yield chunk
        self._drained = True

    def _taken(self, descriptor: int, selector: selectors.BaseSelector, *, error: bool) -> bytes:
        """What a pipe holds, if it is of stdout; stderr's is kept."""
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            selector.unregister(descriptor)
        elif error:
            self._stderr += chunk[: max(0, _STDERR_LIMIT - len(self._stderr))]
        return b"" if error else chunk

    def _feed(self, descriptor: int, selector: selectors.BaseSelector, pipe: IO[bytes]) -> None:
        """Write what a pipe is sure to take; a command that does not want it all is no error."""
        try:
            self._stdin = self._stdin[os.write(descriptor, self._stdin[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            self._stdin = self._stdin[:0]
        if not self._stdin:
            selector.unregister(pipe)
            pipe.close()

    def close(self) -> Completed:
        """Kill what still runs of it, and say how it ended."""
        if self._completed is None and self._process is not None:
            status = self._reap(self._process)
            stderr = self._stderr.decode("utf-8", "replace")
            cut = not self._drained and not self._timed_out
            self._completed = Completed(status, b"", stderr, cut, self._timed_out)
        return self._completed or Completed(None)

    def _reap(self, process: subprocess.Popen[bytes]) -> int | None:
        """Its exit status; None when it does not even end at SIGKILL, as when a driver holds it."""
        if not self._drained:
            _kill(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_REAP_S)
        _kill(process)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_REAP_S)
        return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to its session: it has not been waited for, so the number is still its own."""
    with suppress(ProcessLookupError, PermissionError):  # sudo's children are not ours to signal
        os.killpg(process.pid, signal.SIGKILL)
