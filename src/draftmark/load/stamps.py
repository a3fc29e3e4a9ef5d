"""When bytes arrived: the kernel's own time for them, where it tells it.

A program stamps what it reads when it gets to read it: later by the time that it waited for a core, for Python's
lock, or for work of its own. Linux notes for each packet when it came in, and hands that over with the bytes
(SO_TIMESTAMPNS; for TCP since 4.14: the time of the last byte handed over). So no stamp waits behind our own work.

The kernel counts on the wall clock. It is set over to the monotonic one at each read, so that a clock which is set
meanwhile does no harm.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import time
from typing import Any, TypeAlias

READ_BYTES = 65_536
"""Most bytes of one read."""
TRUSTED_S = 0.05
"""A kernel's stamp further back than that is not used.

What came behind a packet that was lost arrived before it could be read: its stamp is early by the time that the
lost one took to be sent again. Where that, or a pause of ours, is so long, the time of the read counts.
"""

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the note that comes with the bytes has the same number
_timespec = struct.Struct("@ll")
_ROOM = socket.CMSG_SPACE(_timespec.size)

Note: TypeAlias = tuple[int, int, bytes]
Receive: TypeAlias = Callable[[], tuple[int, Sequence[Note], int, Any]]


def receiver(sock: socket.socket, room: memoryview) -> tuple[Receive, bool]:
    """What puts into `room` that which a socket has: (bytes, notes on them, …). It raises what `recv` raises.

    And whether the kernel notes on what comes.
    """
    if isinstance(sock, ssl.SSLSocket):  # its packets are read by the library, which keeps no notes
        read = sock.recv_into
        return (lambda: (read(room), (), 0, None)), False
    stamped = False
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            stamped = True
    return partial(sock.recvmsg_into, (room,), _ROOM), stamped


def waited_s(notes: Sequence[Note]) -> float:
    """By these notes, how long ago the bytes just read had arrived; 0 where that is not known, or is in doubt."""
    _, kind, told = notes[0]
    if kind != _SO_TIMESTAMPNS or len(told) != _timespec.size:
        return 0.0
    seconds, nanoseconds = _timespec.unpack(told)
    waited: float = time() - seconds - nanoseconds * 1e-9
    return waited if 0.0 <= waited <= TRUSTED_S else 0.0
