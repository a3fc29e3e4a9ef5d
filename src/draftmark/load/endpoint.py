"""Where a server is, and how to reach it over HTTP/1.1.

Proxy variables (`http_proxy`, `https_proxy`, `all_proxy`) are not used: a proxy would be measured along with the
server, and it merges and delays chunks. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from draftmark.errors import UsageError
from draftmark.load.connection import Connection
from draftmark.load.http1 import Failure

_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_PATH_SAFE = "/%:@!$&'()*+,;=~"  # a URL's path is encoded already; only what HTTP cannot carry is changed


_OUR_LIMITS = {
    errno.EMFILE: "ulimit -n",
    errno.ENFILE: "fs.file-max",
    errno.ENOBUFS: "memory for sockets",
    errno.ENOMEM: "memory",
}
"""What the client's own computer may refuse, and which of its limits that is. No fault of the server."""


_Address = tuple[int, tuple[Any, ...]]  # family, and where


class ConnectError(Exception):
    """No connection could be made."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.failure = Failure(kind, detail)


class Endpoint:
    """Where the server is, and how to reach it.

    Args:
        base_url: `http://host:port` or `https://…`; a path before `/v1` is kept, a final `/v1` is not doubled.
        headers: Sent with every request, such as `Authorization`.
        connect_timeout_s: Limit for name lookup, TCP and TLS together.
        tls: Context for https; None is the system's trust store (`SSL_CERT_FILE` is honoured).

    Raises:
        UsageError: The URL or a header cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            url = urlsplit(base_url)
            port = url.port
            path = quote(url.path, safe=_PATH_SAFE)
            (url.hostname or "").encode("idna")
        except ValueError as error:  # UnicodeError too: a host with an empty or over-long label
            raise UsageError(
                f"{base_url!r} is not a URL", evidence=(str(error),), next_step="write it as http://HOST:PORT"
            ) from error
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise UsageError(
                f"{base_url!r} is not an http:// or https:// URL", next_step="write it as http://HOST:PORT"
            )
        if port == 0 or _UNPRINTABLE.search(url.hostname):
            raise UsageError(
                f"{base_url!r} has {'port 0' if port == 0 else 'a blank in its host'}",
                next_step="write it as http://HOST:PORT",
            )
        self.host = url.hostname if url.hostname.isascii() else url.hostname.encode("idna").decode("ascii")
        self.port = port or (443 if url.scheme == "https" else 80)
        self.prefix = path.rstrip("/").removesuffix("/v1")
        self._tls = (tls or ssl.create_default_context()) if url.scheme == "https" else None
        self._connect_timeout_s = connect_timeout_s
        self._addresses: list[_Address] = []
        self._reached = False
        name = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"Host: {name}:{self.port}", "User-Agent: draftmark", "Accept: text/event-stream, */*"]
        for key, value in (headers or {}).items():
            if not key or any(c in "\r\n:" or c.isspace() for c in key) or any(c in "\r\n\0" for c in value):
                raise UsageError(
                    f"header {key!r} cannot be sent: a name or value with a line break or a space",
                    next_step="give a name of one word and a value of one line",
                )
            lines.append(f"{key}: {value}")
        try:
            self._head = ("\r\n".join(lines) + "\r\n").encode("latin-1")
        except UnicodeEncodeError as error:
            raise UsageError("a header has a character that HTTP cannot carry", evidence=(str(error),)) from error

    def request(self, method: str, path: str, body: bytes = b"", *, request_id: str | None = None) -> bytes:
        """Head and body of one request, ready to be written."""
        head = f"{method} {self.prefix}{path} HTTP/1.1\r\n".encode("latin-1") + self._head
        if request_id is not None:
            head += f"X-Request-Id: {request_id}\r\n".encode("latin-1")
        if body or method == "POST":
            head += b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        return head + b"\r\n" + body

    async def connect(self) -> Connection:
        """Open a connection, over the first of the host's addresses that answers.

        Raises:
            ConnectError: With the kind of failure.
        """
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await self._connect()
        except TimeoutError as error:
            raise ConnectError("connect-timeout", f"no connection within {self._connect_timeout_s:g} s") from error
        except socket.gaierror as error:
            raise ConnectError("dns", f"{self.host}: {error.strerror}") from error
        except ssl.SSLError as error:
            raise ConnectError("tls", str(error)) from error
        except UnicodeError as error:
            raise ConnectError("dns", f"{self.host}: {error}") from error
        except OSError as error:
            kind, detail = _connect_kind(error, tls=self._tls is not None, reached=self._reached)
            raise ConnectError(kind, detail) from error

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        if not self._addresses:
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            self._addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        error: OSError | None = None
        for address in self._addresses:
            try:
                connection = Connection(await self._open(*address))
            except TimeoutError:
                raise
            except OSError as failed:
                error = error or failed
            else:
                self._addresses, self._reached = [address], True  # the next one goes straight there
                return connection
        raise error or OSError(errno.EADDRNOTAVAIL, f"{self.host} has no address")

    async def _open(self, family: int, address: tuple[Any, ...]) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a request is sent as soon as it is written
            await asyncio.get_running_loop().sock_connect(sock, address)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self.host, do_handshake_on_connect=False)
                await _shake_hands(sock)
        except BaseException:
            sock.close()
            raise
        return sock


async def _shake_hands(sock: ssl.SSLSocket) -> None:
    """The TLS handshake of a socket that does not block."""
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            watch, leave = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            watch, leave = loop.add_writer, loop.remove_writer
        else:
            return
        watch(sock, _set, ready)
        try:
            await ready
        finally:
            leave(sock)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _connect_kind(error: OSError, *, tls: bool, reached: bool) -> tuple[str, str]:
    """What to call it, and the words for it; where the address was `reached` before, only a port can be wanting."""
    detail = str(error)
    if error.errno in _OUR_LIMITS:
        return "client-limit", f"{detail} (of this client: {_OUR_LIMITS[error.errno]})"
    if error.errno == errno.EADDRNOTAVAIL and reached:
        return "client-limit", f"{detail} (no local port is free: net.ipv4.ip_local_port_range, tcp_tw_reuse)"
    if error.errno == errno.ECONNREFUSED:
        return "connect-refused", detail
    if error.errno == errno.ETIMEDOUT:
        return "connect-timeout", detail
    return "tls" if tls and isinstance(error, ConnectionError) else "connect-failed", detail
