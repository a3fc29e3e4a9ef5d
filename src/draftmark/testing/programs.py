"""Small servers with known manners, for the tests of whatever starts and stops servers.

One file on the standard library, run by path: `command("serve", tag)` is a command line that does it. Each prints
`ready` when its signal handlers are in place, so that a test need not guess. The tag is an argument that a test can
look for in the list of processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType


def command(manner: str, tag: str, *arguments: str) -> tuple[str, ...]:
    """The command line of a program with that manner; see `MANNERS`."""
    return (sys.executable, "-I", "-S", __file__, manner, tag, *arguments)


def processes(tag: str) -> list[int]:
    """Live processes, zombies left out, that have `tag` as an argument or as a variable's value."""
    wanted = tag.encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            folder = Path(entry.path)
            if (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                continue
            variables = [pair.partition(b"=")[2] for pair in (folder / "environ").read_bytes().split(b"\0")]
            if wanted in (folder / "cmdline").read_bytes().split(b"\0") or wanted in variables:
                found.append(int(entry.name))
    return found


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _on_term(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    signal.signal(signal.SIGTERM, handler)
    _say("ready")


def _leave(code: int) -> Callable[[int, FrameType | None], None]:
    def handler(_signum: int, _frame: FrameType | None) -> None:
        _say("leaving")
        sys.exit(code)

    return handler


def _wait() -> None:
    while True:
        signal.pause()


def serve() -> None:
    """End with status 0 at the first SIGTERM."""
    _on_term(_leave(0))
    _wait()


def stubborn() -> None:
    """Ignore SIGTERM."""
    _on_term(signal.SIG_IGN)
    _wait()


def twice() -> None:
    """Hang at the first SIGTERM, end with status 1 at the second, as a busy llama-server does."""

    def first(_signum: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, _leave(1))
        _say("draining")

    _on_term(first)
    _wait()


def leave() -> None:
    """End at once with the status given."""
    _say("ready")
    sys.exit(int(sys.argv[3]))


def die() -> None:
    """Die at once by the signal given."""
    _say("ready")
    os.kill(os.getpid(), int(sys.argv[3]))
    _wait()


def family() -> None:
    """Have a child in a session of its own that ignores SIGTERM and outlives this one, which ends at SIGTERM."""
    _family()
    serve()


def orphan() -> None:
    """Have that same child, and end at once with status 3."""
    _family()
    _say("ready")
    sys.exit(3)


def _family() -> None:
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.write(write, b".")
        _wait()
    os.read(read, 1)


def pair() -> None:
    """Have a child in the same process group, both ending at SIGTERM."""
    if os.fork() == 0:
        _wait()
    serve()


def burn() -> None:
    """Use one CPU for the seconds given in a child that is reaped, and as long in this process; then serve."""
    seconds = float(sys.argv[3])
    child = os.fork()
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    serve()


def show() -> None:
    """Print how it was started: directory, group, input, signals, open files, variables named; then serve."""
    _say(f"cwd {Path.cwd()}")
    _say(f"leads {os.getpgid(0) == os.getpid()}")
    _say(f"stdin {os.fstat(0).st_rdev == os.stat(os.devnull).st_rdev}")  # noqa: PTH116
    status = Path("/proc/self/status").read_text().splitlines()
    _say("blocked " + next(line.split()[1] for line in status if line.startswith("SigBlk")))
    ignored = int(next(line.split()[1] for line in status if line.startswith("SigIgn")), 16)
    not_ours = (
        signal.SIGPIPE,
        signal.SIGXFSZ,
        32,
        33,
    )  # Python ignores the first two; the C library owns the others
    _say(f"ignored {ignored & ~sum(1 << (number - 1) for number in not_ours):x}")
    files = [path.name for path in sorted(Path("/proc/self/fd").iterdir()) if path.exists()]
    _say("files " + " ".join(files))
    for name in sys.argv[3:]:
        _say(f"{name}={os.environ.get(name)}")
    serve()


MANNERS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (serve, stubborn, twice, leave, die, family, orphan, pair, burn, show)
}
"""What the programs can do, by name."""

if __name__ == "__main__":
    MANNERS[sys.argv[1]]()
