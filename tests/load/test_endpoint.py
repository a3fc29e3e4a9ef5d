"""URLs that no request could be sent to are refused in words, not by an error of a codec."""

from __future__ import annotations

import asyncio

import pytest

from draftmark.errors import UsageError
from draftmark.load.endpoint import ConnectError, Endpoint


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://a..b:80",
        f"http://{'a' * 64}.example:80",
        "http://a\ud800b:80",
        "http://a b:80",
        "http://a\0b:80",
        "http://host:0",
        "http://host:99999",
        "http://host:²",
        "http://host/\ud800",
        "http://:80",
        "host:80",
        "",
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint(url)
    assert caught.value.next_step


def test_what_http_cannot_carry_is_encoded_and_the_rest_left_alone() -> None:
    request = Endpoint("http://bücher.example/größe/a%20b c").request("GET", "/v1/models")
    assert request.startswith(b"GET /gr%C3%B6%C3%9Fe/a%20b%20c/v1/models HTTP/1.1\r\n")
    assert b"Host: xn--bcher-kva.example:80\r\n" in request


@pytest.mark.parametrize("headers", [{"A": "x\r\ny"}, {"A b": "x"}, {"A": "→"}, {"A": "\ud800"}])
def test_headers_that_cannot_be_sent(headers: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        Endpoint("http://host", headers=headers)


def test_a_name_that_the_resolver_chokes_on_is_a_failure_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def lookup(*_: object, **__: object) -> list[object]:
            raise UnicodeError("label empty or too long")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
        await Endpoint("http://host").connect()

    with pytest.raises(ConnectError, match="dns: host: label empty or too long"):
        asyncio.run(main())
