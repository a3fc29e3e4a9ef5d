"""A computer behind SSH as a Host: commands, bounded in time and size, files, and ports.

The OpenSSH configuration of the user (`~/.ssh/config`), their agent and their known_hosts decide how it is reached
and whom to trust; nobody is ever asked for anything. What runs on the other side is in `ssh_command`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from draftmark.errors import HostError, UsageError
from draftmark.ports import Completed
from draftmark.service.local import SETTINGS
from draftmark.service.reading import contents, read_command
from draftmark.service.ssh_destination import Destination, parse_destination
from draftmark.service.ssh_loop import LoopThread

if TYPE_CHECKING:
    from draftmark.service.ssh_forward import Forward
    from draftmark.service.ssh_link import Link
    from draftmark.service.ssh_runner import Runner, Running

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1", "": "127.0.0.1"}  # noqa: S104 - no address to go to


class SshHost:
    """ports.Host for a computer behind SSH. Made by `connect`, closed by `close` or as a context manager.

    A connection that is lost is made again by the next call; what was running is killed by the other side, and is
    never repeated. Ports of `reach` stay the same. Safe to use from several threads; more than eight commands at
    once wait for one another.
    """

    def __init__(self, destination: Destination, thread: LoopThread, link: Link, runner: Runner) -> None:
        self._destination = destination
        self._thread = thread
        self._link = link
        self._runner = runner
        self._lock = threading.Lock()
        self._forwards: dict[tuple[str, int], tuple[Forward, tuple[str, int]]] = {}
        self._is_root = False

    @classmethod
    def connect(
        cls,
        destination: str,
        *,
        on_wait: Callable[[str], None] | None = None,
        connect_s: float = 30.0,
        reconnect_s: float = 30.0,
        keepalive_s: float = 3.0,
        keepalive_count: int = 3,
    ) -> SshHost:
        """Connect, and see that commands run there.

        Args:
            destination: `[user@]host[:port]`, the host as `ssh` would be given it.
            on_wait: Is told, in a sentence, what is waited for; called from another thread.
            connect_s: Patience with one connection, where the configuration has no ConnectTimeout.
            reconnect_s: For how long a lost connection is tried again.
            keepalive_s: Silence after which the server is asked whether it is there.
            keepalive_count: Questions without an answer after which the connection is lost.

        Raises:
            UsageError: Not such a destination, or asyncssh is not installed.
            RefusedError: A host key is unknown, or not the one that is known.
            HostError: It cannot be reached, does not let us in, or runs no commands.
        """
        target = parse_destination(destination)
        try:
            from draftmark.service.ssh_link import Link, LinkSettings
            from draftmark.service.ssh_runner import Runner
        except ImportError as error:
            raise UsageError(
                "a host behind SSH needs asyncssh, which is not installed",
                evidence=(str(error),),
                next_step="pip install 'draftmark[ssh]'",
            ) from error
        settings = LinkSettings(
            connect_s=connect_s,
            reconnect_s=reconnect_s,
            keepalive_s=keepalive_s,
            keepalive_count=keepalive_count,
            on_wait=on_wait,
        )
        link = Link(target, settings)
        host = cls(target, LoopThread(str(target)), link, Runner(link, SETTINGS))
        try:
            host._thread.call(link.connect())
            host._is_root = host.run(["id", "-u"]).stdout.strip() == b"0"
        except BaseException:
            host.close()
            raise
        return host

    def __enter__(self) -> SshHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and with it whatever still runs over it. Idempotent."""
        self._thread.close(self._wind_up())

    async def _wind_up(self) -> None:
        for forward, _ in self._forwards.values():
            forward.close()
        await self._link.close()

    @property
    def name(self) -> str:
        """The host as it was named, without user and port."""
        return self._destination.host

    @property
    def is_root(self) -> bool:
        """Whether the user that we log in as is root."""
        return self._is_root

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in the port
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        """Run to its end, or until the time is up or the output is longer than the limit.

        The input is there whole before the command starts. A command is never started twice.

        Raises:
            HostError: The host cannot be reached, or not any more: then how far the command came is not known.
            RefusedError: The host was reached again, and its key has changed.
        """
        if (refusal := _cannot_be_sent(argv)) is not None:
            return refusal
        return self._thread.call(self._run(argv, input, timeout_s, limit_bytes))

    async def _run(self, argv: Sequence[str], data: bytes, timeout_s: float, limit_bytes: int) -> Completed:
        running = await self._runner.start(argv, data, timeout_s)
        kept = bytearray()
        try:
            while (chunk := await running.chunk()) is not None:
                kept += chunk
                if len(kept) > limit_bytes:
                    break
        finally:
            ended = await running.end()
        return replace(ended, stdout=bytes(kept[:limit_bytes]))

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> SshStream:
        """Start it; its output is read as it is iterated over.

        Raises:
            HostError: The host cannot be reached.
            RefusedError: The host was reached again, and its key has changed.
        """
        if (refusal := _cannot_be_sent(argv)) is not None:
            return SshStream(self._thread, refusal)
        return SshStream(self._thread, self._thread.call(self._runner.start(argv, b"", timeout_s)))

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """The beginning of a regular file (those of /proc and /sys are).

        Raises:
            OSError: Not there, not readable, not a regular file.
            HostError: The host cannot be reached any more.
        """
        return contents(self.run(read_command(path, limit_bytes), limit_bytes=limit_bytes), path)

    def reach(self, address: str, port: int) -> tuple[str, int]:
        """A port of the loopback here that leads to that one; the same whenever asked.

        Nothing need listen there yet. A connection that cannot be carried on is reset.

        Raises:
            HostError: The host cannot be reached any more, or allows no forwarding.
        """
        target = (_ANY.get(address, address), port)
        with self._lock:
            if target not in self._forwards:
                self._forwards[target] = self._thread.call(self._forward(*target))
            return self._forwards[target][1]

    async def _forward(self, address: str, port: int) -> tuple[Forward, tuple[str, int]]:
        from draftmark.service.ssh_forward import Forward

        forward = Forward(self._link, address, port)
        await forward.check()
        return forward, await forward.listen()


class SshStream:
    """ports.Stream over a command on the other side."""

    def __init__(self, thread: LoopThread, command: Running | Completed) -> None:
        self._thread = thread
        self._command = command

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of stdout.

        Raises:
            HostError: The connection was lost.
        """
        command = self._command
        while not isinstance(command, Completed) and (chunk := self._thread.call(command.chunk())) is not None:
            yield chunk

    def close(self) -> Completed:
        """Kill the command if it still runs, and say how it ended."""
        if not isinstance(self._command, Completed):
            try:
                self._command = self._thread.call(self._command.end())
            except HostError:  # closed, and the command with it
                self._command = Completed(None, cut=True)
        return self._command


def _cannot_be_sent(argv: Sequence[str]) -> Completed | None:
    """The answer for a command that no system could run; None for any other."""
    if argv and argv[0] and argv[0][0] != "-" and not any("\0" in word for word in argv):
        return None
    return Completed(None, stderr="no such program, or a word holds a NUL byte", missing=True)
