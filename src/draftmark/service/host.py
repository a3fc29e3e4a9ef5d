"""The local computer: its clock, what it is, and who listens where."""

from __future__ import annotations

import errno
import ipaddress
import os
import platform
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

_PROC = Path("/proc")
_LISTEN = "0A"
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_CONNECT_S = 0.5


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The real clock."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        return time.monotonic()

    def now_iso(self) -> str:
        """Wall clock, ISO 8601, UTC, milliseconds."""
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def local_facts() -> dict[str, object]:
    """What a run records about the computer that it ran on; None where it cannot be told.

    `cpus` are those that this process may use, which in a container are fewer than the machine has.
    """
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": _field("cpuinfo", "model name") or platform.machine() or None,
        "memory_gib": _memory_gib(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "loadavg": _loadavg(),
    }


def _field(file: str, name: str) -> str | None:
    try:
        with (_PROC / file).open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    return value.strip()
    except OSError:
        pass
    return None


def _memory_gib() -> float | None:
    words = (_field("meminfo", "MemTotal") or "").split()
    return round(int(words[0]) / 1024**2, 2) if words else None


def _loadavg() -> list[float] | None:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except OSError:
        return None


def has_gpu() -> bool:
    """Whether a GPU driver of NVIDIA or AMD is loaded."""
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))


def free_port() -> int:
    """A TCP port of the loopback that was free a moment ago. Another process can take it before you do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_listener(host: str, port: int) -> str | None:
    """Who has this TCP port; None when a server could listen there.

    Returns:
        `pid 123 (llama-server)`, or as much as may be known of it. A host or port that cannot be listened on has
        no listener.
    """
    if not 0 < port < 65536:
        return None
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError):  # ValueError: an empty or over-long label, a zero byte
        return None  # a name that does not resolve: the server will say so itself
    for family, kind, protocol, _, address in infos:
        if _taken(family, kind, protocol, address):
            return _owner(str(address[0]), port) or "a process that this user may not see"
    return None


def listener_at(base_url: str) -> str | None:
    """Who listens where a server of this computer is about to be started; None when nobody does."""
    parts = urlsplit(base_url)
    return port_listener(parts.hostname or "127.0.0.1", parts.port or 80)


def _taken(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> bool:
    """Bind, which is the test that the server itself will make; where that says nothing, see who answers."""
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections in TIME_WAIT do not matter
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return True
        if error.errno not in (errno.EACCES, errno.EPERM):
            return False  # an address that is not this host's, or no such family here
    else:
        return False
    with socket.socket(family, kind, protocol) as probe:
        probe.settimeout(_CONNECT_S)
        return probe.connect_ex(address) == 0


def _owner(host: str, port: int) -> str | None:
    sockets = dict(_listening(ipaddress.ip_address(host.partition("%")[0]), port))
    if not sockets:
        return None
    wanted = {f"socket:[{inode}]" for inode in sockets}
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only
        if name.isdigit() and _holds(name, wanted):
            return f"pid {name} ({_command_name(name)})"
    return f"a process of uid {min(sockets.values())}"


def _listening(address: _Address, port: int) -> Iterator[tuple[int, int]]:
    """Inode and uid of each listening socket that stands in the way of `address` and `port`."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            where, _, number = words[1].rpartition(":")
            if words[3] == _LISTEN and int(number, 16) == port:
                bound = _decoded(where)
                if address.is_unspecified or bound.is_unspecified or bound == address:
                    yield int(words[9]), int(words[7])


def _decoded(text: str) -> _Address:
    """An address as /proc/net/tcp prints it: 32-bit words in the machine's byte order."""
    data = bytes.fromhex(text)
    words = struct.unpack(f">{len(data) // 4}I", data)
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    return getattr(address, "ipv4_mapped", None) or address


def _holds(pid: str, wanted: set[str]) -> bool:
    try:
        with os.scandir(_PROC / pid / "fd") as entries:
            return any(_link(entry.path) in wanted for entry in entries)
    except OSError:  # another user's, or gone
        return False


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - hot
    except OSError:
        return ""


def _command_name(pid: str) -> str:
    """The program's name as its command line gives it: the kernel's own is cut at 15 characters."""
    try:
        words = (_PROC / pid / "cmdline").read_bytes().split(b"\0")
        return os.fsdecode(words[0]).rpartition("/")[2] or "?"
    except OSError:
        return "?"
