"""One TCP or TLS connection: requests out, one at a time, and what comes back with the time at which it came.

No transport and no stream of asyncio's stands between the socket and the answer: the event loop says that there is
something to read, and one call takes it. With a chunk a read that is less than half of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Callable
from time import monotonic

from draftmark.load.gathering import arrivals_in
from draftmark.load.http1 import Exchange, Framing
from draftmark.load.stamps import READ_BYTES, receiver, waited_s

_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_RESET = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)
_QUICK_S = 0.0008  # a chunk after so short a gap: no model decodes so fast
_BLOCK = 8  # reads, after which is looked back on how they came
_PILE = READ_BYTES // 2  # more of one stream than that must not pile up: it would hold the server up


class Connection:
    """Made by `Endpoint.connect`, within the event loop that it is used in.

    Args:
        sock: Connected, not blocking, any TLS handshake done. It is closed with the connection.
    """

    __slots__ = (
        *("_arrivals", "_closed", "_fd", "_framing", "_loop", "_receive", "_room", "_sent_at", "_sock", "_unsent"),
        *("_block_at", "_bytes", "_last_at", "_least_s", "_reads", "_swept"),
        *("_waiter", "_within", "_writing", "on_closed"),
    )

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._fd = sock.fileno()
        self._arrivals = arrivals_in(self._loop)
        self._room = self._arrivals.room
        self._receive, stamped = receiver(sock, self._room)
        if not stamped:  # what is read late is stamped late
            self._arrivals.pace.stamped = False
        self._reads = self._bytes = 0  # of the block at hand
        self._least_s = math.inf  # the shortest gap in it
        self._last_at = self._block_at = 0.0
        self._swept = False  # rather than watched
        self._within = sock.pending if isinstance(sock, ssl.SSLSocket) else None  # bytes that TLS holds back
        self._framing = Framing()
        self._unsent = memoryview(b"")
        self._writing = False  # the loop watches for room
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self.on_closed: Callable[[Connection], None] | None = None
        self._arrivals.watch(self._fd, self._readable)

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
        exchange.sent_at = self._sent_at = self._last_at = self._block_at = monotonic()
        self._reads, self._bytes, self._least_s, self._framing.parts = 0, 0, math.inf, 0
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
        self._arrivals.spare(self._fd)
        self._arrivals.leave(self._fd)
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
            size, notes, _, _ = self._receive()
            at = monotonic()
        except _NOT_NOW:
            if self._swept:
                self._spare()
            return
        except OSError as error:
            self._lost(error)
            return
        if notes:
            at -= waited_s(notes)
        if not size:
            self._lost(None)
        elif self._framing.exchange is None:  # nobody asked
            self.abort()
        else:
            self._take(at, size)
        if self._within is not None and not self._closed and self._within():
            self._readable()

    def _take(self, at: float, size: int) -> None:
        gap = at - self._last_at
        if gap < 0.0:  # after a stamp that was not trusted: it stood for the later time of its read
            at, gap = self._last_at, 0.0
        self._last_at = at
        if gap < self._least_s:
            self._least_s = gap
        self._reads += 1
        self._bytes += size
        ended = self._framing.feed(at, self._room[:size])
        if ended is not None:
            self._ended(ended)
        elif self._swept or self._reads == _BLOCK:
            self._look_back(at)

    def _look_back(self, at: float) -> None:
        """At some reads, or a sweep: how soon they, and what they brought, came one after another."""
        lasted_s, least_s, parts, size = at - self._block_at, self._least_s, self._framing.parts, self._bytes
        self._reads, self._bytes, self._block_at, self._least_s, self._framing.parts = 0, 0, at, math.inf, 0
        quick = lasted_s < parts * _QUICK_S and size * self._arrivals.pace.sweep_s <= _PILE * lasted_s
        if self._swept:
            if not quick:
                self._spare()
        elif quick:
            self._swept = True
            self._arrivals.sweep(self._fd, self._readable)
        else:
            self._arrivals.pace.gap(least_s)

    def _spare(self) -> None:
        """Be told of arrivals again."""
        self._swept = False
        self._arrivals.spare(self._fd)
        self._arrivals.watch(self._fd, self._readable)

    def _ended(self, fault: str) -> None:
        """The answer is complete, or there is a fault in it."""
        if self._swept:
            self._spare()
        if fault:
            self._fail("malformed", fault)
            return
        self._arrivals.pace.answer(self._last_at - self._sent_at)
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
