"""Runs commands over a connection, each from its start to its end. Runs in the connection's event loop."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence

import asyncssh

from draftmark.errors import HostError
from draftmark.ports import Completed
from draftmark.service.ssh_command import login_line, script
from draftmark.service.ssh_link import Link
from draftmark.service.ssh_session import Session

_AT_ONCE = 8  # sshd's MaxSessions is 10 by default
_SLOT_S = 60.0
_ALONE_S = 3.0  # a server may still count a session that is closed
_PAUSE_S = 0.1
_TRIES = 3
_KILL_S = 5.0


class Runner:
    """Starts commands over a link.

    Args:
        link: The connection.
        environment: Variables that every command is given.
    """

    def __init__(self, link: Link, environment: Mapping[str, str]) -> None:
        self.link = link
        self._mark = f"draftmark-{secrets.token_hex(8)}"
        self._line = login_line(self._mark, environment)
        self._limit = _AT_ONCE
        self._busy = 0
        self._freed = asyncio.Event()

    async def start(self, argv: Sequence[str], data: bytes, seconds: float) -> Running:
        """Start a command with this input; `seconds` do not count the wait for a connection or a free session.

        Raises:
            RefusedError: A host key has changed since.
            HostError: The host cannot be reached any more, or takes no command.
        """
        session = await self._session()
        session.feed(script(argv, len(data), seconds))
        if data:
            session.feed(data)
        return Running(self, session, argv, seconds)

    async def _session(self) -> Session:
        """An open session. Nothing has been started in it yet, so that a failure may be tried again."""
        begun = asyncio.get_running_loop().time()
        lost = 0
        while True:
            session = None
            release = await self._slot(begun + _SLOT_S)
            try:
                connection = await self.link.connection()
                session = await self._open(connection, release)
                return session
            except (asyncssh.Error, OSError) as error:
                lost += connection.is_closed()
                again = lost < _TRIES if connection.is_closed() else self._crowded(error, begun)
                if not again:
                    raise HostError(
                        f"{self.link.destination} does not start a command for us",
                        evidence=(f"{type(error).__name__}: {error}",),
                        next_step=f"see what `{self.link.destination.ssh_command}` says",
                    ) from error
            finally:
                if session is None:
                    release()
            await asyncio.sleep(_PAUSE_S)

    def _crowded(self, error: Exception, begun: float) -> bool:
        """Whether the server allows no more sessions at once, so that it is worth waiting for one to end."""
        if not isinstance(error, asyncssh.ChannelOpenError) or error.code == asyncssh.OPEN_REQUEST_SESSION_FAILED:
            return False
        patience = _SLOT_S if self._busy > 1 else _ALONE_S
        self._limit = max(1, min(self._limit, self._busy - 1))
        return asyncio.get_running_loop().time() < begun + patience

    async def _slot(self, deadline: float) -> Callable[[], None]:
        """Wait until a session may be opened; what is returned gives the place back."""
        try:
            async with asyncio.timeout_at(deadline):
                while self._busy >= self._limit:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            raise HostError(
                f"{self._busy} commands run on {self.link.destination}, and it allows no more at once",
                next_step="raise MaxSessions in its sshd_config",
            ) from None
        self._busy += 1
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._busy -= 1
                self._freed.set()

        return release

    async def _open(self, connection: asyncssh.SSHClientConnection, on_end: Callable[[], None]) -> Session:
        session = Session(self._mark, on_end)
        opening = asyncio.ensure_future(
            connection.create_session(
                lambda: session, self._line, request_pty=False, x11_forwarding=False, encoding=None
            )
        )
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(lambda _: session.abandon())
            raise
        return session

    async def kill_group(self, leader: int) -> None:
        """Kill what is left of a command whose main process has ended: its watcher has ended with it."""
        session = await self._open(await self.link.connection(), lambda: None)
        session.feed(script(("sh", "-c", 'kill -9 "-$1"', "sh", str(leader)), 0, _KILL_S))
        await session.wait_ended()
        session.abandon()


class Running:
    """A command that was started."""

    def __init__(self, runner: Runner, session: Session, argv: Sequence[str], seconds: float) -> None:
        self._runner = runner
        self._session = session
        self._argv = argv
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._drained = False
        self._timed_out = False
        self._completed: Completed | None = None

    async def chunk(self) -> bytes | None:
        """The next of stdout; None when there is no more, or the time is up.

        Raises:
            HostError: The connection was lost, or what the host did was not to start the command.
        """
        if self._completed is not None or self._timed_out:
            return None
        try:
            async with asyncio.timeout_at(self._deadline):
                data = await self._session.chunk()
        except TimeoutError:
            self._timed_out = True
            return None
        if data is None:
            self._drained = True
            self._check()
        return data

    def _check(self) -> None:
        """See that the command ended by itself.

        Raises:
            HostError: It did not.
        """
        session, target = self._session, self._runner.link.destination
        command = shlex.join(self._argv)
        if session.lost is not None or (session.status is None and not self._runner.link.alive):
            raise HostError(
                f"the connection to {target} was lost while a command ran there; it is killed there, "
                "and how far it came is not known",
                evidence=(f"command: {command}", f"connection: {session.lost or 'closed'}"),
                next_step="see whether the host is up and reachable, and what the command did",
            )
        if session.pid is None:
            status = session.status
            raise HostError(
                f"{target} did not run a command, but something else",
                evidence=(f"command: {command}", f"exit status: {status}", *session.said()),
                next_step=f"see what `{target.ssh_command}` does there: the login shell or a forced command "
                "may not run programs",
            )

    async def end(self) -> Completed:
        """Kill it if it still runs, and say how it ended. Idempotent."""
        if self._completed is None:
            if not self._session.ended and not await self._session.kill():
                await self._bury()
            cut = not self._drained and not self._timed_out
            self._completed = self._session.completed(cut=cut, timed_out=self._timed_out)
        return self._completed

    async def _bury(self) -> None:
        """Once more, for children that hold its output; then leave it behind."""
        session = self._session
        try:
            if session.pid is not None and session.status is not None and self._runner.link.alive:
                await self._runner.kill_group(session.pid)
                await session.wait_ended()
        except (asyncssh.Error, OSError, HostError):
            pass  # the connection is lost, and the other side kills by itself
        finally:
            session.abandon()
