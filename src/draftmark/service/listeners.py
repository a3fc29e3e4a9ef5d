"""Who listens on a port of any host, asked of that host."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from draftmark.ports import Host

_USERS = re.compile(r'users:\(\("([^"]*)",pid=(\d+)')


def listener_on(host: Host, base_url: str) -> str | None:
    """Who has the port of a URL there; None when nobody has, or it cannot be told.

    Returns:
        `pid 123 (llama-server)`, or as much as may be known of it.
    """
    port = urlsplit(base_url).port or 80
    ended = host.run(("ss", "-Hltnp", "sport", "=", f":{port}"))
    line = next(iter(ended.stdout.decode("utf-8", "replace").splitlines()), "") if ended.ok else ""
    if not line:
        return None
    match = _USERS.search(line)
    return f"pid {match[2]} ({match[1]})" if match else "a process that this user may not see"
