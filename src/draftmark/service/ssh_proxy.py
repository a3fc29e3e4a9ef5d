"""ProxyCommand: a program whose stdin and stdout are the connection."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile

_SHOWN = 5
_TAIL = 4096


class Proxy:
    """The program, from its start to `close`.

    Args:
        command: As the configuration has it, its `%` replaced: a line for a shell.

    Attributes:
        socket: Our end of the connection.
    """

    def __init__(self, command: str) -> None:
        self.socket, theirs = socket.socketpair()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        with theirs:
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                start_new_session=True,  # Ctrl-C is for us
            )

    def said(self) -> tuple[str, ...]:
        """The last lines of its stderr."""
        end = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, end - _TAIL))
        lines = self._stderr.read().decode("utf-8", "replace").splitlines()
        return tuple(f"ProxyCommand: {line}" for line in lines if line.strip())[-_SHOWN:]

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.socket.close()
        self._stderr.close()
