"""A local port that leads to one of the other side's. Runs in the event loop of its connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import cast

import asyncssh

from draftmark.errors import HostError
from draftmark.service.ssh_link import Link

_RESET = struct.pack("ii", 1, 0)  # for SO_LINGER
_BACKLOG = 1024


class Forward:
    """Listens on the loopback for as long as it lives, whatever becomes of the connection behind it.

    Args:
        link: Where channels are opened.
        address: Where the other side is to connect to.
        port: The same.
    """

    def __init__(self, link: Link, address: str, port: int) -> None:
        self._link = link
        self._target = (address, port)
        self._ends: set[_LocalEnd] = set()
        self._server: asyncio.Server | None = None

    async def check(self) -> None:
        """See that the server forwards at all. Whether something listens behind it does not matter.

        Raises:
            HostError: It does not.
        """
        try:
            channel = await self.open(asyncssh.SSHTCPSession())
            channel.abort()
        except asyncssh.ChannelOpenError as error:
            if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                raise HostError(
                    f"{self._link.destination} does not forward connections to {self._target[0]}:{self._target[1]}",
                    evidence=(str(error),),
                    next_step="see AllowTcpForwarding and PermitOpen in its sshd_config, and `no-port-forwarding` "
                    "in ~/.ssh/authorized_keys there",
                ) from error

    async def listen(self) -> tuple[str, int]:
        """Start, and say where."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _LocalEnd(self), "127.0.0.1", 0, backlog=_BACKLOG)
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def open(self, session: asyncssh.SSHTCPSession[bytes]) -> asyncssh.SSHTCPChannel[bytes]:
        """A channel to the target.

        Raises:
            HostError: The host cannot be reached any more.
            asyncssh.Error: It cannot, or will not, connect to the target.
        """
        connection = await self._link.connection()
        channel, _ = await connection.create_connection(lambda: session, *self._target, encoding=None)
        return channel

    def opened(self, end: _LocalEnd) -> None:
        """Somebody has connected."""
        self._ends.add(end)

    def closed(self, end: _LocalEnd) -> None:
        """And has gone."""
        self._ends.discard(end)

    def close(self) -> None:
        """Stop listening, and reset what is connected."""
        if self._server is not None:
            self._server.close()
        for end in tuple(self._ends):
            end.reset()


class _LocalEnd(asyncio.Protocol):
    """A connection that somebody made to the local port."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._transport: asyncio.Transport | None = None
        self._channel: asyncssh.SSHTCPChannel[bytes] | None = None
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()
        self._forward.opened(self)
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        try:
            channel = await self._forward.open(_RemoteEnd(self))
        except Exception:  # whatever it is, the one who connected is told by a reset
            self.reset()
            return
        if self._transport is None or self._transport.is_closing():
            channel.abort()
            return
        self._channel = channel
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._channel is not None:
            try:
                self._channel.write(data)
            except BrokenPipeError:  # the link is gone
                self.reset()

    def eof_received(self) -> bool:
        """The other direction stays open."""
        if self._channel is not None:
            with contextlib.suppress(BrokenPipeError):
                self._channel.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._forward.closed(self)
        self._transport = None
        if self._opening is not None:
            self._opening.cancel()
        if self._channel is None:
            return
        if exc is None:
            self._channel.close()
        else:
            self._channel.abort()

    def pause_writing(self) -> None:
        if self._channel is not None:
            self._channel.pause_reading()

    def resume_writing(self) -> None:
        if self._channel is not None:
            self._channel.resume_reading()

    def pause(self) -> None:
        """The channel takes no more for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """The channel takes more."""
        if self._transport is not None:
            self._transport.resume_reading()

    def send(self, data: bytes) -> None:
        """To the one who connected."""
        if self._transport is not None:
            self._transport.write(data)

    def send_eof(self) -> None:
        """The other side will send no more."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def finish(self) -> None:
        """Close in order."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Close so that it cannot be taken for an answer's end."""
        if self._transport is not None:
            endpoint: socket.socket = self._transport.get_extra_info("socket")
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()


class _RemoteEnd(asyncssh.SSHTCPSession[bytes]):
    """The channel that belongs to it."""

    def __init__(self, local: _LocalEnd) -> None:
        self._local = local

    def data_received(self, data: bytes, _datatype: asyncssh.DataType) -> None:
        self._local.send(data)

    def eof_received(self) -> bool:
        self._local.send_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._local.finish()
        else:
            self._local.reset()

    def pause_writing(self) -> None:
        self._local.pause()

    def resume_writing(self) -> None:
        self._local.resume()
