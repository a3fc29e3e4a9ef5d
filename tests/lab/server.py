"""A server with ways to die: what a model server does to its supervisor and its memory, and nothing else.

`server.py MANNER`. It says that it loads, says READY=1, and then does what its manner says. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

MIB = 1 << 20
CHUNK = 4 * MIB


def say(text: str) -> None:
    print(text, flush=True)


def notify(state: str) -> None:
    """Tell the supervisor, as sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


def ready() -> None:
    say("model loaded, accepting requests")
    notify("READY=1")


def wait_for_ever() -> NoReturn:
    while True:
        signal.pause()


def on_term(action: Callable[[], None]) -> None:
    def handle(_number: int, _frame: FrameType | None) -> None:
        action()

    signal.signal(signal.SIGTERM, handle)


def serve() -> None:
    """Stops when asked to."""

    def leave() -> None:
        say("SIGTERM: nothing in flight, leaving")
        sys.exit(0)

    on_term(leave)
    ready()
    wait_for_ever()


def drain() -> None:
    """Wants more time at the end than it is given."""
    on_term(lambda: say("SIGTERM: waiting for 16 requests in flight"))
    ready()
    wait_for_ever()


def deaf_worker() -> None:
    """Leaves when asked to, but its worker does not."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is ignored stays ignored in a new program
    subprocess.Popen(["sleep", "infinity"])
    serve()


def grow() -> None:
    """Takes memory until somebody minds."""
    ready()
    kept = []
    while True:
        kept.append(bytearray(b"\1") * CHUNK)


def growing_worker() -> None:
    """A worker takes memory; the parent goes on when it is gone."""
    ready()
    status = subprocess.run([sys.executable, "-S", __file__, "grow"], check=False).returncode
    say(f"worker ended with {status}, serving on without it")
    wait_for_ever()


def hang() -> None:
    """Stops telling its supervisor that it is alive."""
    ready()
    notify("WATCHDOG=1")
    wait_for_ever()


def segfault() -> None:
    """Reads address zero."""
    ready()
    ctypes.string_at(0)


def abort() -> None:
    """As a failed assertion of a C++ library."""
    ready()
    os.abort()


def broken_start() -> None:
    """Does not get as far as serving."""
    say("loading weights")
    raise RuntimeError("tensor 'blk.0.attn_q.weight' has wrong shape")


def never_ready() -> None:
    """Loads for longer than it is given."""
    say("loading weights")
    wait_for_ever()


MANNERS = {
    manner.__name__.replace("_", "-"): manner
    for manner in (
        serve,
        drain,
        deaf_worker,
        grow,
        growing_worker,
        hang,
        segfault,
        abort,
        broken_start,
        never_ready,
    )
}

if __name__ == "__main__":
    say("starting")
    MANNERS[sys.argv[1]]()
