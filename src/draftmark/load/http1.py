"""HTTP/1.1 as a client reads it: one answer at a time, its framing undone, its bytes kept under their arrival.

The read path does as little as it can: httptools (C) undoes the framing, and (time, bytes) are kept. Events and
JSON are read later. A read may bring hundreds of chunks, so what httptools calls for each of them is no function of
ours but the `append` of a list.

All times are `time.monotonic()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import httptools

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


class Framing:
    """Fills exchanges, one after another, with what comes over one connection.

    Attributes:
        exchange: The one that is being answered; None when none is.
        keep: Whether another may follow the one that was answered last.
        parts: Parts of bodies that have come: a server sends each chunk of a stream as one.
    """

    __slots__ = (
        *("_at", "_body_parts", "_head_done", "_parser", "_parts", "_self_ending"),
        *("exchange", "keep", "on_body", "parts"),
    )

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self.keep = True
        self.parts = 0
        self._parts: list[bytes] = []  # of the body, in the read at hand
        self.on_body = self._parts.append
        self._parser = httptools.HttpResponseParser(self)
        self._head_done = False
        self._self_ending = False
        self._body_parts = 0
        self._at = 0.0

    def expect(self, exchange: Exchange) -> None:
        """An answer is about to come, for this one."""
        self.exchange = exchange
        self._head_done = self._self_ending = False

    def feed(self, at: float, data: bytes | memoryview) -> str | None:
        """Take what one read brought.

        Returns:
            None as long as more is to come; "" when the answer is complete; else why it is no answer.
        """
        self._at = at = max(at, self._at)  # two ways of stamping may be off by a few microseconds
        exchange, fault = self.exchange, ""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            fault = f"not HTTP/1.1: {error}"
        parts = self._parts
        if parts:
            self.parts += len(parts)
            if self.exchange is None:  # what came behind the end of the answer is none of it
                del parts[self._body_parts :]
            if exchange is not None and parts:
                exchange.reads.append((at, parts[0] if len(parts) == 1 else b"".join(parts)))
            parts.clear()
        return fault if fault or self.exchange is None else None

    def end_of_bytes(self) -> str | None:
        """The connection was closed: why the answer is not complete by that; None where it is."""
        if not self._head_done:
            return "the server closed the connection before an answer"
        if self._self_ending:
            return "the server closed the connection in the middle of the answer"
        if self.exchange is not None:  # a body without length or chunks ends with its connection
            self.exchange.end_at = max(self._at, self.exchange.sent_at)
        return None

    # --- httptools --------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._head_done = self._self_ending = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        key = name.lower()
        if key in {b"content-length", b"transfer-encoding"}:
            self._self_ending = True
        elif key == b"content-type" and self.exchange is not None:
            self.exchange.content_type = value.decode("latin-1").lower()
        elif key == b"retry-after" and self.exchange is not None:
            self.exchange.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._head_done = True
        if self.exchange is not None:
            self.exchange.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        exchange = self.exchange
        if exchange is None:
            return
        if exchange.status is not None and exchange.status < 200:  # an interim answer: the real one follows
            exchange.status = None
            return
        exchange.framed = True
        exchange.end_at = max(self._at, exchange.sent_at)
        self.keep = self._parser.should_keep_alive()
        self._body_parts = len(self._parts)
        self.exchange = None
