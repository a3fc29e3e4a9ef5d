"""Small blocking HTTP for asking a server about itself. Not the load path: that is `draftmark.load`."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

# Proxies are for the way out; a server under tuning is reached directly.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TOO_LONG = 16 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: HTTP status and body."""

    status: int
    body: bytes

    def json(self) -> object:
        """The body as JSON; None when it is not."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None


def call(
    url: str, *, body: object | None = None, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0
) -> Reply | None:
    """GET, or POST when there is a body.

    Returns:
        The reply whatever its status; None when the server could not be reached or did not answer in time.
    """
    data = None if body is None else msgspec.json.encode(body)
    head = {**(headers or {}), **({"Content-Type": "application/json"} if data is not None else {})}
    request = urllib.request.Request(url, data, head)  # noqa: S310 - the scheme was checked by the reference
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            return Reply(response.status, response.read(_TOO_LONG))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.read(_TOO_LONG))
    except (OSError, http.client.HTTPException):
        return None
