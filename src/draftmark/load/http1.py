"""An HTTP/1.1 client for streamed answers: one request at a time per connection, stamped as bytes arrive.

The read path does as little as it can: `buffer_updated` takes the time, lets httptools (C) undo the framing, and
keeps (time, bytes). Events and JSON are read later, where slowness costs no accuracy. A read may bring hundreds of
chunks, so what httptools calls for each of them is no function of ours but the `append` of a list.

All times are `time.monotonic()`. Where the server is and how it is reached: `draftmark.load.endpoint`.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from time import monotonic
from typing import cast

import httptools

_RESET = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)
_STALE_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an exchange did not end well.

    Attributes:
        kind: `connect-refused`, `connect-timeout`, `connect-failed`, `client-limit` (this computer has no more
            files or ports), `dns`, `tls`, `reset`, `closed`, `timeout`, `malformed` (not HTTP).
        detail: The system's own words.
    """

    kind: str
    detail: str


class Exchange:
    """One request and what came back.

    Attributes:
        sent_at: Just before the first byte was written.
        status: HTTP status; None when no head arrived.
        content_type: Of the answer, lower case.
        retry_after: What the server says about when to come again; empty where it says nothing.
        reads: (arrival, bytes of the body), in order. Bytes of one read share one arrival.
        end_at: The body was complete, or the failure was seen.
        framed: The body said itself where it ends (length or chunks) and did end there.
        failure: What went wrong below the level of HTTP status; None when the body ended as framed.
    """

    __slots__ = ("content_type", "end_at", "failure", "framed", "reads", "retry_after", "sent_at", "status")

    def __init__(self) -> None:
        self.sent_at = monotonic()
        self.status: int | None = None
        self.content_type = ""
        self.retry_after = ""
        self.reads: list[tuple[float, bytes]] = []
        self.end_at: float | None = None
        self.framed = False
        self.failure: Failure | None = None

    def fail(self, kind: str, detail: str) -> None:
        """End it with a failure, now."""
        self.failure = Failure(kind, detail)
        self.end_at = monotonic()

    @property
    def stale(self) -> bool:
        """Lost before a single byte came, soon after it was sent.

        So looks a kept connection that the server was just closing. One that dies at work is seen later than that.
        """
        if self.failure is None or self.end_at is None or self.status is not None:
            return False
        return self.failure.kind in {"reset", "closed"} and self.end_at - self.sent_at < _STALE_WITHIN_S


READ_BYTES = 262_144
"""Room for one read."""


class Connection(asyncio.BufferedProtocol):
    """One TCP or TLS connection. Made by `Endpoint.connect`.

    Args:
        buffer: Room for `READ_BYTES`. What is read is taken from it at once, so that all connections of one event
            loop can share it: room made anew for each read would cost more than the reading.
    """

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []  # of the body, in the read at hand
        self.on_body = self._parts.append
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._now = 0.0
        self._head_done = False
        self._self_ending = False
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.used = False

    # --- asyncio ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its name

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Called by the loop, before a read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Stamp, undo the framing, keep. Called by the loop, after a read."""
        self._now = monotonic()
        if self._exchange is None:  # nobody asked
            self.abort()
            return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep()
            self._end("malformed", f"not HTTP/1.1: {error}")
            self.abort()
        if self._parts:
            self._keep()

    def _keep(self) -> None:
        """What the parser found of the body, under the time at which it came."""
        parts = self._parts
        if self._exchange is not None and parts:
            self._exchange.reads.append((self._now, parts[0] if len(parts) == 1 else b"".join(parts)))
        parts.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop, once."""
        if not self.lost.done():
            self.lost.set_result(None)
        if self._exchange is None:
            return
        if isinstance(exc, ssl.SSLError):
            self._end("tls", str(exc))
        elif exc is not None:
            self._end("reset" if isinstance(exc, _RESET) else "closed", str(exc))
        elif self._head_done and not self._self_ending:
            self._end()  # a body without length or chunks ends with its connection
        else:
            where = "in the middle of the answer" if self._head_done else "before an answer"
            self._end("closed", f"the server closed the connection {where}")

    # --- httptools --------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._head_done = False
        self._self_ending = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        key = name.lower()
        if key in {b"content-length", b"transfer-encoding"}:
            self._self_ending = True
        elif key == b"content-type" and self._exchange is not None:
            self._exchange.content_type = value.decode("latin-1").lower()
        elif key == b"retry-after" and self._exchange is not None:
            self._exchange.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._head_done = True
        if self._exchange is not None:
            self._exchange.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._keep()
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.status is not None and exchange.status < 200:  # an interim answer: the real one follows
            exchange.status = None
            return
        exchange.framed = True
        keep = self._parser.should_keep_alive()
        self._end()
        if not keep:
            self.abort()

    # --- use --------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return self._exchange is None and self._transport is not None and not self._transport.is_closing()

    async def send(self, request: bytes, exchange: Exchange, timeout_s: float) -> None:
        """Write one request and wait until its answer has ended, well or not; the outcome is in `exchange`.

        Args:
            request: Head and body, ready to be written.
            exchange: Filled in as the answer arrives, so that what came before a cancellation is not lost.
            timeout_s: Limit for the whole exchange.
        """
        if self._transport is None or not self.usable:
            raise RuntimeError("this connection is busy or closed")
        self.used = True
        self._exchange = exchange
        self._waiter = self._loop.create_future()
        limit = self._loop.call_later(timeout_s, self._expire, timeout_s)
        exchange.sent_at = monotonic()
        self._transport.write(request)
        try:
            await self._waiter
        except asyncio.CancelledError:
            self._exchange = None
            self.abort()
            raise
        finally:
            limit.cancel()

    def abort(self) -> None:
        """Drop the connection at once. `lost` is done when the socket is closed."""
        if self._transport is not None:
            self._transport.abort()

    def _expire(self, timeout_s: float) -> None:
        self._end("timeout", f"no end within {timeout_s:g} s")
        self.abort()

    def _end(self, kind: str | None = None, detail: str = "") -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        exchange.end_at = monotonic() if kind else max(self._now, exchange.sent_at)
        if kind:
            exchange.failure = Failure(kind, detail)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
