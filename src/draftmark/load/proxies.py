"""Proxy variables, which a load is not sent by: a proxy would be measured along with the server."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_passed_by(base_url: str, environment: Mapping[str, str]) -> str | None:
    """What to say where other programs would reach this URL by a proxy; None where they would not.

    Args:
        base_url: Where the load goes.
        environment: The variables `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in either case.
    """
    url = urlsplit(base_url)
    host = (url.hostname or "").lower()

    def value(name: str) -> str:
        return environment.get(name) or environment.get(name.upper()) or ""

    name = next((name for name in (f"{url.scheme}_proxy", "all_proxy") if value(name)), None)
    if name is None or _excepted(host, value("no_proxy")):
        return None
    shown = name if environment.get(name) else name.upper()
    return f"{shown} is set and was not used: a proxy delays and merges chunks, so {host} was asked directly."


def _excepted(host: str, no_proxy: str) -> bool:
    """By the common reading: names and their subdomains, addresses, networks, `*`; loopback never by a proxy."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in (part.strip().lower().lstrip(".").partition(":")[0] for part in no_proxy.split(",")):
        if entry == "*" or (entry and (host == entry or host.endswith(f".{entry}"))):
            return True
        if address is not None and "/" in entry:
            try:
                if address in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                continue
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
