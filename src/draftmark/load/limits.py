"""What this computer lets one client have: open files and local ports. Looked at before the first request."""

from __future__ import annotations

import resource
from pathlib import Path

from draftmark.errors import UsageError

_BESIDE = 64
"""Files that are open besides the connections: libraries, pipes, logs."""
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def make_room(connections: int | None, processes: int = 1, *, ports: Path = _PORTS) -> None:
    """Raise the limit of open files as far as it goes, and see whether so many connections fit.

    Args:
        connections: The most that may be open at once; None where nobody knows.
        processes: That share them.
        ports: Where the kernel says which local ports it gives away.

    Raises:
        UsageError: They do not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # some systems say "unlimited" and mean less
            pass
    if connections is None:
        return
    need = -(-connections // processes) + _BESIDE
    if soft != resource.RLIM_INFINITY and soft < need:
        raise UsageError(
            f"{connections} requests at once need {need} open files a process, and it may have {soft} here",
            evidence=(f"RLIMIT_NOFILE: {soft}; processes: {processes}",),
            next_step=f"ulimit -n {need}, if need be after, as root: prlimit --pid $$ --nofile={need}:{need}",
        )
    _see_ports(connections, ports)


def _see_ports(connections: int, ports: Path) -> None:
    """Each connection to the one server needs a local port of its own."""
    try:
        low, high = map(int, ports.read_text().split())
    except (OSError, ValueError):
        return
    if connections > high - low + 1:
        raise UsageError(
            f"{connections} requests at once need as many local ports, and this computer gives {high - low + 1}",
            evidence=(f"net.ipv4.ip_local_port_range: {low} {high}",),
            next_step='sysctl -w net.ipv4.ip_local_port_range="1024 65535"',
        )
