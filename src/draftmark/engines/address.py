"""Where a command line says that its server listens, and the key that it wants. Pure; shared by the engines."""

from __future__ import annotations

import ipaddress
import re

from draftmark.errors import UsageError


def port_number(text: str, source: str) -> int:
    """A TCP port; `source` are the words that gave it.

    Raises:
        UsageError: It is none.
    """
    # not isdigit: that takes digits of any script, and int() any length
    if re.fullmatch("[0-9]{1,5}", text) is None or not 0 < int(text) < 65536:
        raise UsageError(
            f"the port {text[:20]!r} is not a port number",
            evidence=(source[:100],),
            next_step="give a number from 1 to 65535",
        )
    return int(text)


def host_in_url(text: str, source: str) -> str:
    """The host as a URL writes it: IPv6 in brackets, names in ASCII, every interface as loopback.

    Raises:
        UsageError: It is neither a name nor an address.
    """
    text = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(text, text)  # noqa: S104 - read, not bound
    try:
        if ":" in text or "[" in text:
            inner = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
            ipaddress.IPv6Address(inner)
            return f"[{inner}]"
        name = text.encode("idna").decode("ascii")  # refuses empty and over-long labels
        if len(name) > 253 or re.fullmatch(r"[A-Za-z0-9._-]*[A-Za-z0-9]\.?", name) is None:
            raise ValueError("neither a host name nor an address")
    except ValueError as error:
        raise UsageError(
            f"the host {text[:80]!r} cannot be reached over TCP",
            evidence=(source[:300], str(error)[:300]),
            next_step="give a host name or an IP address, such as 127.0.0.1",
        ) from None
    return name


def sendable_key(key: str, flag: str) -> str:
    """The key, if HTTP can carry it. The message does not repeat it, for it is a secret.

    Raises:
        UsageError: It cannot.
    """
    for index, char in enumerate(key):
        inner_blank = char == " " and 0 < index < len(key) - 1
        if not ("!" <= char <= "~" or inner_blank):
            raise UsageError(
                "the API key cannot be sent in an HTTP header",
                evidence=(f"{flag}: character {index + 1} of the first key is U+{ord(char):04X}",),
                next_step="start the server with a key of printable ASCII characters",
            )
    return key
