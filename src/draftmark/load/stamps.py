"""When bytes arrived: the kernel's own time for them, where it tells it.

A program stamps what it reads when it gets to read it: later by the time that it waited for a core, for Python's
lock, or for work of its own. Linux notes for each packet when it came in, and hands that over with the bytes
(SO_TIMESTAMPNS; for TCP since 4.14: the time of the last byte handed over). So no stamp waits behind our own work.

The kernel counts on the wall clock. It is set over to the monotonic one at each read, so that a clock which is set
meanwhile does no harm.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
from collections.abc import Callable
from time import monotonic, time

READ_BYTES = 65_536
"""Most bytes of one read. A buffer of this size comes from malloc's heap; one twice as large is mapped anew."""
TRUSTED_S = 0.05
"""A kernel's stamp further back than that is not used.

What came behind a packet that was lost arrived before it could be read: its stamp is early by the time that the
lost one took to be sent again. Where that, or a pause of ours, is so long, the time of the read counts.
"""

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; what comes with the bytes has the same number
_timespec = struct.Struct("@ll")
_ROOM = socket.CMSG_SPACE(_timespec.size) if hasattr(socket, "CMSG_SPACE") else 0

Receive = Callable[[], tuple[float, bytes]]


def receiver(sock: socket.socket) -> Receive:
    """A function that takes what a socket has.

    It gives (arrival on the monotonic clock, bytes), the bytes empty at their end, and raises what `recv` raises.
    """
    if isinstance(sock, ssl.SSLSocket) or not _asked_for_stamps(sock):  # TLS has its packets read by its library
        return _by_ourselves(sock)
    recvmsg, unpack = sock.recvmsg, _timespec.unpack

    def receive() -> tuple[float, bytes]:
        data, notes, _, _ = recvmsg(READ_BYTES, _ROOM)
        now = monotonic()
        if notes and notes[0][1] == _SO_TIMESTAMPNS and len(notes[0][2]) == _timespec.size:
            seconds, nanoseconds = unpack(notes[0][2])
            late = time() - seconds - nanoseconds * 1e-9
            if 0.0 <= late <= TRUSTED_S:
                now -= late
        return now, data

    return receive


def _by_ourselves(sock: socket.socket) -> Receive:
    recv = sock.recv

    def receive() -> tuple[float, bytes]:
        data = recv(READ_BYTES)
        return monotonic(), data

    return receive


def _asked_for_stamps(sock: socket.socket) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True
