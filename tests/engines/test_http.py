"""The small HTTP client: it answers in time with a reply or None, and a key goes to one server only."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from draftmark.engines.http import Reply, call

Scripted = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    """A server on a socket that does, for each connection, what it is given; returns its URL."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(answer: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                try:
                    with peer:
                        answer(peer)
                except OSError:
                    continue

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def replying(data: bytes, seen: list[bytes] | None = None) -> Callable[[socket.socket], None]:
    def answer(peer: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += peer.recv(65536) or b"\r\n\r\n"
        if seen is not None:
            seen.append(request)
        peer.sendall(data)

    return answer


def test_get_and_post(scripted: Scripted) -> None:
    seen: list[bytes] = []
    url = scripted(replying(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}', seen))
    reply = call(f"{url}/x?q=1", headers={"Authorization": "Bearer k"})
    assert reply == Reply(200, b'{"a": 1}')
    assert reply.json() == {"a": 1}
    assert call(url, body={"b": 2}) == reply
    assert seen[0].startswith(b"GET /x?q=1 HTTP/1.1\r\n")
    assert f"Host: {url.removeprefix('http://')}\r\n".encode() in seen[0]
    assert b"Authorization: Bearer k\r\n" in seen[0]
    assert b"Connection: close\r\n" in seen[0]
    assert seen[1].startswith(b"POST / HTTP/1.1\r\n")
    assert b"Content-Type: application/json" in seen[1]
    assert b"Authorization" not in seen[1]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("body", [None, {"a": 1}])
def test_a_redirect_is_a_reply_and_the_key_goes_no_further(
    scripted: Scripted, status: int, body: object | None
) -> None:
    elsewhere: list[bytes] = []
    other = scripted(replying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", elsewhere))
    moved = f"HTTP/1.1 {status} Moved\r\nLocation: {other}/\r\nContent-Length: 2\r\n\r\nno"
    url = scripted(replying(moved.encode()))
    assert call(url, body=body, headers={"Authorization": "Bearer k"}) == Reply(status, b"no")
    assert elsewhere == []


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        (b"", b""),  # silent
        (b"", b"H"),  # a status line that never ends
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_a_server_that_drips_does_not_stretch_the_call(scripted: Scripted, head: bytes, unit: bytes) -> None:
    done = threading.Event()

    def answer(peer: socket.socket) -> None:
        peer.sendall(head)
        while not done.wait(0.02):
            peer.sendall(unit)

    url = scripted(answer)
    began = time.monotonic()
    try:
        assert call(url, timeout_s=0.3) is None
        assert 0.25 < time.monotonic() - began < 1.5
    finally:
        done.set()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff\n\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_what_is_no_http_is_none(scripted: Scripted, data: bytes) -> None:
    assert call(scripted(replying(data)), timeout_s=1.0) is None


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "x",
            "http://",
            "ftp://127.0.0.1/",
            "file:///etc/hostname",
            "http://127.0.0.1:0x/",
            "http://127.0.0.1:99999/",
        ),
        *("http://[::1", "http://a..b/", "http://" + "a" * 64 + ".b/", "http://\u2603\u0378/", "http://\ud800/"),
        *("http://127.0.0.1:1/", "http://h\x00st/", "http://no-such-host.invalid/", "http://127.0.0.1:1/\ud800"),
    ],
)
def test_a_url_that_cannot_be_reached_is_none(url: str) -> None:
    assert call(url, timeout_s=0.5) is None


@pytest.mark.parametrize(
    "headers", [{"A": "\u20ac"}, {"A": "a\r\nB: c"}, {"\u00e4": "b"}, {"A b\n": "c"}, {"A": "\ud800"}]
)
def test_a_header_that_cannot_be_sent_is_none(scripted: Scripted, headers: dict[str, str]) -> None:
    seen: list[bytes] = []
    assert call(scripted(replying(b"", seen)), headers=headers, timeout_s=0.5) is None
    assert all(b"B: c" not in request for request in seen)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_no_time_is_none(scripted: Scripted, timeout_s: float) -> None:
    assert call(scripted(replying(b"HTTP/1.1 200 OK\r\n\r\n")), timeout_s=timeout_s) is None


def test_unlimited_time(scripted: Scripted) -> None:
    assert call(scripted(replying(b"HTTP/1.1 204 No\r\n\r\n")), timeout_s=float("inf")) == Reply(204, b"")


def test_a_path_that_is_not_ascii_is_encoded(scripted: Scripted) -> None:
    seen: list[bytes] = []
    url = scripted(replying(b"HTTP/1.1 200 OK\r\n\r\nok", seen))
    assert call(f"{url}/\u00e4 b/%20?q=\u00df&a=%41") == Reply(200, b"ok")
    assert seen[0].startswith(b"GET /%C3%A4%20b/%20?q=%C3%9F&a=%41 HTTP/1.1\r\n")


def test_a_body_that_cannot_be_encoded_is_none() -> None:
    assert call("http://127.0.0.1:1", body={"a": "\ud800"}) is None


def test_a_name_lookup_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def hangs(host: str, port: int, *, type: int, flags: int) -> list[object]:  # noqa: A002
        if flags:
            raise socket.gaierror
        done.wait(5)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    began = time.monotonic()
    assert call("http://slow.example/", timeout_s=0.2) is None
    assert time.monotonic() - began < 1.5
    done.set()


@pytest.mark.parametrize("body", [b"", b"x", b"\xff", b'"\xff"', b"[" * 100_000, b'{"a":' * 100_000, b"[1] 2"])
def test_what_is_no_json_is_none(body: bytes) -> None:
    assert Reply(200, body).json() is None
