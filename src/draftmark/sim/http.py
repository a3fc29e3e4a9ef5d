"""A small HTTP/1.1 server: whole answers and chunked streams, kept connections. Knows nothing of what it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httptools
import msgspec

_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    413: "Content Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip
_MOST_BODY = 64 << 20
_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of a client."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def target(self) -> str:
        """As the client wrote it."""
        return f"{self.path}?{self.query}" if self.query else self.path


Handler = Callable[[Call, "Connection"], None]
Told = Callable[["Connection", Call, int], None]


class Connection(asyncio.Protocol):
    """One client. A handler answers with `whole`, or with `begin`, `send` and `end`; later, if it likes."""

    def __init__(self, handler: Handler, told: Told) -> None:
        self._handler = handler
        self._told = told
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._reset()
        self._call: Call | None = None
        self._keep = True
        self.peer = ("127.0.0.1", 0)
        self.on_lost: Callable[[], None] | None = None

    def _reset(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    # --- asyncio ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - narrows the type
        self._transport = transport
        self.peer = transport.get_extra_info("peername", self.peer)[:2]

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called by the loop: whoever asked is gone."""
        self._transport = None
        if self.on_lost is not None:
            self.on_lost()

    # --- httptools --------------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._size += len(body)
        if self._size > _MOST_BODY:
            self._close()
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        path, _, query = self._url.decode("latin-1").partition("?")
        call = Call(
            method=self._parser.get_method().decode(),
            path=path,
            query=query,
            headers=self._headers,
            body=b"".join(self._body),
        )
        self._keep = self._parser.should_keep_alive()
        self._call = call
        self._reset()
        self._handler(call, self)

    # --- answers ----------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether somebody is still there."""
        return self._transport is not None and not self._transport.is_closing()

    def whole(self, status: int, body: bytes, kind: str = _JSON) -> None:
        """The whole answer."""
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        close = "" if self._keep else "connection: close\r\n"
        self._write(f"{head}{close}\r\n".encode() + body)
        self._said(status)
        self._over()

    def json(self, status: int, document: object) -> None:
        """The whole answer, as JSON."""
        self.whole(status, msgspec.json.encode(document))

    def begin(self) -> None:
        """The head of a stream of events."""
        close = "" if self._keep else "connection: close\r\n"
        self._write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {_EVENTS}\r\ntransfer-encoding: chunked\r\n{close}\r\n".encode()
        )
        self._said(200)

    def send(self, data: bytes) -> None:
        """A piece of the stream."""
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self, data: bytes = b"") -> None:
        """The last piece, and the end of the stream."""
        last = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._write(last + b"0\r\n\r\n")
        self._over()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _said(self, status: int) -> None:
        if self._call is not None:
            self._told(self, self._call, status)

    def _over(self) -> None:
        self._call = self.on_lost = None
        if not self._keep:
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def reason(status: int) -> str:
    """In words."""
    return _REASONS[status]
