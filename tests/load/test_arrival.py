"""Arrivals: the kernel's stamps, and what one connection makes of the bytes that come."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable

import pytest

from draftmark.load import stamps
from draftmark.load.connection import Connection
from draftmark.load.http1 import Exchange, Framing

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def note(seconds_ago: float, kind: int = 35) -> list[tuple[int, int, bytes]]:
    at = time.time_ns() - int(seconds_ago * 1e9)
    return [(socket.SOL_SOCKET, kind, struct.pack("@ll", *divmod(at, 10**9)))]


def test_the_kernel_says_how_long_bytes_have_waited() -> None:
    assert stamps.waited_s(note(0.02)) == pytest.approx(0.02, abs=0.01)


@pytest.mark.parametrize("notes", [note(10.0), note(-5.0), note(0.02, kind=29), [(1, 35, b"short")]])
def test_a_stamp_that_cannot_be_trusted_is_none(notes: list[tuple[int, int, bytes]]) -> None:
    assert stamps.waited_s(notes) == 0.0


def over(talk: Callable[[socket.socket, Connection, Exchange], Awaitable[None]]) -> Exchange:
    """What comes of one request on a connection whose other end `talk` holds."""
    exchange = Exchange()

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
        near.setblocking(False)
        connection = Connection(near)
        with far:
            sending = asyncio.create_task(connection.send(b"GET / HTTP/1.1\r\n\r\n", exchange, 5.0))
            await asyncio.sleep(0)
            await talk(far, connection, exchange)
            await sending
        connection.abort()

    asyncio.run(main())
    return exchange


def test_a_client_that_is_busy_does_not_stamp_late() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the kernel's stamps are Linux's")
    sent = 0.0

    async def talk(far: socket.socket, _connection: Connection, _exchange: Exchange) -> None:
        nonlocal sent
        far.sendall(HEAD)
        await asyncio.sleep(0.05)  # by now the kernel stamps what comes
        sent = time.monotonic()
        far.sendall(b"1\r\na\r\n0\r\n\r\n")
        time.sleep(0.03)  # decoding, or another process on our core

    exchange = over(talk)
    assert exchange.framed
    assert exchange.reads[0][0] - sent < 0.02


def test_what_follows_the_answer_is_none_of_it() -> None:
    framing, exchange = Framing(), Exchange()
    framing.expect(exchange)
    one = HEAD + b"1\r\na\r\n0\r\n\r\n"
    assert framing.feed(1.0, one + one.replace(b"\na", b"\nb")) == ""
    assert exchange.reads == [(1.0, b"a")]


def test_stamps_never_go_back() -> None:
    framing, exchange = Framing(), Exchange()
    framing.expect(exchange)
    assert framing.feed(2.0, HEAD + b"1\r\na\r\n") is None
    assert framing.feed(1.9, b"1\r\nb\r\n") is None
    assert exchange.reads == [(2.0, b"a"), (2.0, b"b")]
    assert (framing.feed(3.0, b"zz\r\n") or "").startswith("not HTTP/1.1")


def test_a_request_larger_than_the_socket_takes_at_once_is_sent_whole() -> None:
    async def main() -> tuple[int, Exchange]:
        got = 0
        with socket.create_server(("127.0.0.1", 0)) as listener:
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
        near.setblocking(False)
        far.setblocking(False)
        connection, exchange = Connection(near), Exchange()
        with far:
            sending = asyncio.create_task(connection.send(b"x" * 20_000_000, exchange, 10.0))
            loop = asyncio.get_running_loop()
            while got < 20_000_000:
                got += len(await loop.sock_recv(far, 1 << 20))
            await loop.sock_sendall(far, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await sending
        assert connection.usable
        connection.abort()
        return got, exchange

    got, exchange = asyncio.run(main())
    assert (got, exchange.framed, exchange.failure) == (20_000_000, True, None)
