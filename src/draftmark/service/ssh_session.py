"""The channel of one command: what comes of it, and how it ended. Runs in the connection's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Callable

import asyncssh

from draftmark.ports import Completed
from draftmark.service.ssh_command import KILL

_STDERR_LIMIT = 1 << 16
_AHEAD = 1 << 20  # output that is kept before anybody takes it
_REAP_S = 5.0  # a busy host takes seconds to run the watcher that kills, and its answer tells how the command ended
_NOT_RUN = (126, 127)  # what sh says of a program that may not be executed, or is not there
_SHOWN = 5


class Session(asyncssh.SSHClientSession[bytes]):
    """What one command says.

    Args:
        mark: What the script says when it becomes the command (`ssh_command`).
        on_end: Is called once, when the channel is closed.
    """

    def __init__(self, mark: str, on_end: Callable[[], None]) -> None:
        self._mark = mark.encode()
        self._on_end = on_end
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._changed = asyncio.Event()
        self._chunks: deque[bytes] = deque()
        self._ahead = 0
        self._noise = bytearray()
        self._stderr = bytearray()
        self._unwanted = False
        self.pid: int | None = None
        self.ended = False
        self.lost: Exception | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """The channel is open; nothing has been asked of it yet."""
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Keep stderr's beginning, and stdout until it is taken."""
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self._stderr += data[: max(0, 2 * _STDERR_LIMIT - len(self._stderr))]
            return
        if self.pid is None:
            data = self._after_mark(data)
        if not data or self._unwanted:
            return
        self._chunks.append(data)
        self._ahead += len(data)
        if self._ahead > _AHEAD and self._channel is not None:
            self._channel.pause_reading()
        self._changed.set()

    def _after_mark(self, data: bytes) -> bytes:
        """What follows the line of mark and process number; before it is what the shell's start-up files print."""
        self._noise += data
        at = self._noise.find(self._mark + b" ")
        end = self._noise.find(b"\n", at)
        if at < 0 or end < 0:
            del self._noise[:-_STDERR_LIMIT]
            return b""
        self.pid = int(self._noise[at + len(self._mark) : end])
        return bytes(self._noise[end + 1 :])

    def eof_received(self) -> bool:
        """Stdout ended; stdin stays open, for its end would kill a command that goes on."""
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is closed, in order or not."""
        self.lost = exc
        self.ended = True
        self._changed.set()
        self._on_end()

    def feed(self, data: bytes) -> None:
        """Send script or input."""
        if self._channel is not None:
            with contextlib.suppress(BrokenPipeError):  # the other side has ended it: its status and words tell
                self._channel.write(data)

    async def chunk(self) -> bytes | None:
        """The next of stdout; None at the end."""
        while not self._chunks:
            if self.ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._ahead = 0
        if self._channel is not None:
            self._channel.resume_reading()
        return data

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None where neither was told."""
        channel = self._channel
        if channel is None:
            return None
        told = channel.get_exit_signal()
        if told is None:
            return channel.get_exit_status()
        with contextlib.suppress(KeyError):
            return -signal.Signals[f"SIG{told[0]}"].value
        return channel.get_returncode()

    def said(self) -> tuple[str, ...]:
        """The first lines of what came, for an error about a command that never started."""
        text = (self._stderr + self._noise).decode("utf-8", "replace")
        return tuple(line for line in text.splitlines() if line.strip())[:_SHOWN]

    def completed(self, *, cut: bool, timed_out: bool) -> Completed:
        """How it ended; stderr without what stands before the mark."""
        before, mark, after = bytes(self._stderr).partition(self._mark + b"\n")
        text = (after if mark else before)[:_STDERR_LIMIT].decode("utf-8", "replace")
        by_sh = self._mark.decode() + ": "
        if self.status in _NOT_RUN and text.startswith(by_sh):
            return Completed(None, stderr=text.removeprefix(by_sh), missing=True)
        return Completed(self.status, b"", text, cut, timed_out)

    async def kill(self) -> bool:
        """Have the watcher kill the command, if it still runs; whether the channel is closed a moment later."""
        self._unwanted = True
        self._chunks.clear()
        if self._channel is not None and not self.ended:
            self._channel.resume_reading()
            if self.status is not None:
                return False
            with contextlib.suppress(OSError):  # it has just been closed
                self._channel.write(KILL)
                self._channel.write_eof()
        return await self.wait_ended()

    async def wait_ended(self) -> bool:
        """Whether the channel is closed within a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP_S):
                while not self.ended:
                    self._changed.clear()
                    await self._changed.wait()
        return self.ended

    def abandon(self) -> None:
        """Close the channel, whatever the other side does."""
        if self._channel is not None and not self.ended:
            self._channel.abort()
