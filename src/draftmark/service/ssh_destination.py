"""Where an SSH connection is to go, as `[user@]host[:port]`. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from draftmark.errors import UsageError

FORM = "[USER@]HOST[:PORT], an IPv6 address in brackets"
"""The form of a destination, for people."""

_FORM = re.compile(
    r"(?:(?P<user>[^\s@]+(?:@[^\s@]+)*)@)?"  # a user name may hold an @
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s@:\[\]/]+))(?::(?P<port>\d{1,5}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Destination:
    """A host as the user named it: what their SSH configuration makes of it is not known here.

    Attributes:
        host: Name, alias of the configuration, or address without brackets.
        user: None when the configuration decides.
        port: None when the configuration decides.
    """

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")

    @property
    def ssh_command(self) -> str:
        """The command that connects there as we do, and asks what we may not ask."""
        port = ("-p", str(self.port)) if self.port else ()
        target = f"{self.user}@{self.host}" if self.user else self.host
        return shlex.join(("ssh", *port, target, "true"))


def parse_destination(text: str) -> Destination:
    """Read `[user@]host[:port]`.

    Raises:
        UsageError: It is of another form.
    """
    match = _FORM.fullmatch(text)
    host = (match["v6"] or match["host"]) if match else ""
    if match is None or text.startswith("-") or host.startswith("-"):  # `ssh` would read an option
        step = f"write {FORM}"
        if text.count(":") > 1 and "[" not in text and "://" not in text:
            step = f"put an IPv6 address in brackets: [{text}]"
        raise UsageError(f'"{text}" is no host for SSH', evidence=(text,), next_step=step)
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"{port} is no TCP port", evidence=(text,), next_step="use a port from 1 to 65535")
    return Destination(host, match["user"], port)


def parse_jumps(text: str) -> tuple[Destination, ...]:
    """Read the value of ProxyJump: destinations, or `ssh://` URIs, separated by commas.

    Raises:
        UsageError: One of them is neither.
    """
    return tuple(parse_destination(word.strip().removeprefix("ssh://").rstrip("/")) for word in text.split(","))
