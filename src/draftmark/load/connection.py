"""One TCP or TLS connection: requests out, one at a time, and what comes back with the time at which it came.

No transport and no stream of asyncio's stands between the socket and the answer: the event loop says that there is
something to read, and one call takes it. With a chunk a read that is less than half of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from time import monotonic

from draftmark.load.http1 import Exchange, Framing
from draftmark.load.stamps import receiver, waited_s

_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_RESET = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)


class Connection:
    """Made by `Endpoint.connect`, within the event loop that it is used in.

    Args:
        sock: Connected, not blocking, any TLS handshake done. It is closed with the connection.
    """

    __slots__ = (
        *("_closed", "_framing", "_loop", "_receive", "_sock", "_unsent", "_waiter", "_within", "_writing"),
        "on_closed",
    )

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._receive = receiver(sock)
        self._within = sock.pending if isinstance(sock, ssl.SSLSocket) else None  # bytes that TLS holds back
        self._framing = Framing()
        self._unsent = memoryview(b"")
        self._writing = False  # the loop watches for room
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self.on_closed: Callable[[Connection], None] | None = None
        self._loop.add_reader(sock, self._readable)

    # --- use --------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return self._framing.exchange is None and not self._closed

    async def send(self, request: bytes, exchange: Exchange, timeout_s: float) -> None:
        """Write one request and wait until its answer has ended, well or not; the outcome is in `exchange`.

        Args:
            request: Head and body, ready to be written.
            exchange: Filled in as the answer arrives, so that what came before a cancellation is not lost.
            timeout_s: Limit for the whole exchange.
        """
        if not self.usable:
            raise RuntimeError("this connection is busy or closed")
        self._framing.expect(exchange)
        self._waiter = self._loop.create_future()
        limit = self._loop.call_later(timeout_s, self._expire, timeout_s)
        self._unsent = memoryview(request)
        exchange.sent_at = monotonic()
        self._writable()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self._framing.exchange = None
            self.abort()
            raise
        finally:
            limit.cancel()

    def abort(self) -> None:
        """Close the socket at once. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock)
        if self._writing:
            self._loop.remove_writer(self._sock)
        with contextlib.suppress(OSError):
            self._sock.close()
        if self.on_closed is not None:
            self.on_closed(self)

    # --- the event loop ---------------------------------------------------------------------------------------

    def _readable(self) -> None:
        """Take what has come, and stamp it. Called by the loop, again as long as there is more.

        Hot, and mostly after a sleep, with cold caches: each function that is called, each object that is looked
        at costs more than its instructions. So there are few.
        """
        try:
            data, notes, _, _ = self._receive()
            at = monotonic()
        except _NOT_NOW:
            return
        except OSError as error:
            self._lost(error)
            return
        if notes:
            at -= waited_s(notes)
        if not data:
            self._lost(None)
        elif self._framing.exchange is None:  # nobody asked
            self.abort()
        elif (ended := self._framing.feed(at, data)) is not None:
            self._ended(ended)
        if self._within is not None and not self._closed and self._within():
            self._readable()

    def _ended(self, fault: str) -> None:
        """The answer is complete, or there is a fault in it."""
        if fault:
            self._fail("malformed", fault)
            return
        if self._unsent or not self._framing.keep:
            self.abort()
        self._wake()

    def _writable(self) -> None:
        """Write as much of the request as goes. Called by the loop, too, as long as some is left."""
        try:
            written = self._sock.send(self._unsent)
        except _NOT_NOW:
            written = 0
        except OSError as error:
            self._lost(error)
            return
        self._unsent = self._unsent[written:]
        if self._unsent:
            self._loop.add_writer(self._sock, self._writable)
        elif self._writing:
            self._loop.remove_writer(self._sock)
        self._writing = bool(self._unsent)

    # --- ends -------------------------------------------------------------------------------------------------

    def _lost(self, error: OSError | None) -> None:
        """The connection is gone, with an answer under way or not."""
        if self._framing.exchange is None:
            self.abort()
        elif isinstance(error, ssl.SSLError):
            self._fail("tls", str(error))
        elif error is not None:
            self._fail("reset" if isinstance(error, _RESET) else "closed", str(error))
        elif (why := self._framing.end_of_bytes()) is not None:
            self._fail("closed", why)
        else:
            self._framing.exchange = None
            self.abort()
            self._wake()

    def _expire(self, timeout_s: float) -> None:
        self._fail("timeout", f"no end within {timeout_s:g} s")

    def _fail(self, kind: str, detail: str) -> None:
        exchange, self._framing.exchange = self._framing.exchange, None
        if exchange is not None:
            exchange.fail(kind, detail)
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
