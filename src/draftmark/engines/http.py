"""Small blocking HTTP for asking a server about itself. Not the load path: that is `draftmark.load`.

Over `http.client`, not `urllib.request`: that one follows redirects with the `Authorization` header, opens other
schemes, and bounds each read instead of the call. No proxy is asked: a server under tuning is reached directly.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_TOO_LONG = 16 << 20
_CHUNK = 64 << 10
_LONGEST_S = 86_400.0  # a socket refuses a timeout that does not fit its clock
_KEPT_IN_PATH = "/%:@!$&'()*+,;=~?"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: HTTP status and body."""

    status: int
    body: bytes

    def json(self) -> object:
        """The body as JSON; None when it is not, or nests deeper than can be read."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def call(
    url: str, *, body: object | None = None, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0
) -> Reply | None:
    """As `tried`, for those to whom it is all one why there is no reply: None then."""
    reply = tried(url, body=body, headers=headers, timeout_s=timeout_s)
    return reply if isinstance(reply, Reply) else None


def tried(
    url: str, *, body: object | None = None, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0
) -> Reply | str:
    """GET, or POST when there is a body. A redirect is not followed: its 3xx is the reply.

    Args:
        url: `http://` or `https://`; what is not ASCII in host and path is encoded.
        body: Sent as JSON.
        headers: Sent to this host alone.
        timeout_s: For the whole call: name lookup, connection, TLS, sending, and reading to the end.

    Returns:
        The reply whatever its status, of a body at most the first 16 MiB; or why there is none, in words: the
        server could not be reached, did not answer in time, answered no HTTP, or the URL or a header cannot be
        sent. The words hold nothing of the headers.
    """
    deadline = _Deadline(time.monotonic() + timeout_s)
    try:
        data = None if body is None else msgspec.json.encode(body)
        head = {**(headers or {}), "Connection": "close"}
        if data is not None:
            head["Content-Type"] = "application/json"
        connection = _connection(urlsplit(url), deadline)
        try:
            connection.request("GET" if data is None else "POST", _target(urlsplit(url)), data, head)
            with connection.getresponse() as response:
                return Reply(response.status, _read(response, deadline))
        finally:
            connection.close()
            connection.sock_below.close()
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return _in_words(error)
    except (ValueError, http.client.HTTPException):  # UnicodeError is a ValueError
        return "no connection, or no HTTP over it"


def _in_words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection ({error.strerror or error})"
    return f"no connection ({error.strerror or error})"


@dataclass(frozen=True, slots=True)
class _Deadline:
    at: float

    def left_s(self) -> float:
        """Seconds that remain.

        Raises:
            TimeoutError: None do.
        """
        left = self.at - time.monotonic()
        if not left > 0:  # also when it is no number
            raise TimeoutError("the call took too long")
        return min(left, _LONGEST_S)


class _Received(io.RawIOBase):
    """What a socket receives, each wait cut to what is left of the call: a server that drips cannot stretch it."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(self._deadline.left_s())
        return self._sock.recv_into(buffer)


class _Connection(http.client.HTTPConnection):
    """A connection over a socket that is there already."""

    def __init__(self, host: str, port: int, default_port: int, sock: socket.socket, deadline: _Deadline) -> None:
        super().__init__(host, port)
        self.default_port = default_port  # left out of the Host header
        self.sock_below = sock
        self.sock = _Bounded(sock, deadline)


class _Bounded:
    """As much of a socket as `http.client` uses."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock, self._deadline = sock, deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left_s())  # bounds all of it, not each part
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Received(self._sock, self._deadline))

    def close(self) -> None:
        """Nothing: it is closed once the head is read, and the body is still to come."""


def _connection(parts: SplitResult, deadline: _Deadline) -> _Connection:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("no http:// or https:// URL")
    secure = parts.scheme == "https"
    default_port = 443 if secure else 80
    port = parts.port or default_port
    host = parts.hostname if ":" in parts.hostname else parts.hostname.encode("idna").decode("ascii")
    sock = _connected(host, port, deadline)
    try:
        if secure:
            sock.settimeout(deadline.left_s())
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        return _Connection(host, port, default_port, sock, deadline)
    except BaseException:
        sock.close()
        raise


def _connected(host: str, port: int, deadline: _Deadline) -> socket.socket:
    """The first of the host's addresses that answers; all tries share the deadline."""
    failure: OSError | None = None
    for family, address in _addresses(host, port, deadline):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(deadline.left_s())
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
    raise failure or OSError(f"{host} has no address")


def _addresses(host: str, port: int, deadline: _Deadline) -> list[tuple[int, tuple[object, ...]]]:
    """Resolved in a thread unless numeric, since a name lookup has no timeout of its own."""
    try:
        return _looked_up(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        found: list[tuple[int, tuple[object, ...]]] = []

    def look_up() -> None:
        try:
            found.extend(_looked_up(host, port, 0))
        except (OSError, ValueError):
            return  # no address: told by the caller

    thread = threading.Thread(target=look_up, name=f"lookup {host}", daemon=True)
    thread.start()
    thread.join(deadline.left_s())
    return list(found)


def _looked_up(host: str, port: int, flags: int) -> list[tuple[int, tuple[object, ...]]]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(int(entry[0]), tuple(entry[4])) for entry in entries]


def _target(parts: SplitResult) -> str:
    """Path and query as they are sent: what HTTP cannot carry is percent-encoded, what is encoded stays so."""
    path = quote(parts.path or "/", safe=_KEPT_IN_PATH.replace("?", ""))
    return f"{path}?{quote(parts.query, safe=_KEPT_IN_PATH)}" if parts.query else path


def _read(response: http.client.HTTPResponse, deadline: _Deadline) -> bytes:
    body = bytearray()
    while len(body) < _TOO_LONG and (chunk := response.read(min(_CHUNK, _TOO_LONG - len(body)))):
        deadline.left_s()
        body += chunk
    return bytes(body)
