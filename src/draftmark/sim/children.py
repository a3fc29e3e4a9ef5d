"""The processes that stand in for SGLang's schedulers and its detokenizer: they do nothing, and can be killed.

As SGLang's they die with the main process (PR_SET_PDEATHSIG), have no handler for SIGTERM, and their death is
noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


@dataclass(slots=True)
class Child:
    """One process: `name` as the log has it (`scheduler_0`)."""

    name: str
    pid: int
    alive: bool = True


class Children:
    """All of a server's. Made before the event loop runs, for they are forked."""

    def __init__(self, ranks: int) -> None:
        parent = os.getpid()
        self.all: list[Child] = []
        for rank in range(ranks):
            title = f"sglang::scheduler_TP{rank}" if ranks > 1 else "sglang::scheduler"
            self.all.append(Child(f"scheduler_{rank}", _forked(parent, title)))
        self.all.append(Child("detokenizer", _forked(parent, "sglang::detokenizer")))
        self._watched: list[int] = []

    def watch(self, died: Callable[[Child, int], None]) -> None:
        """From now on tell of each that dies, with its exit code, negative for a signal."""
        loop = asyncio.get_running_loop()
        for child in self.all:
            try:
                handle = os.pidfd_open(child.pid)
            except OSError:
                continue
            self._watched.append(handle)
            loop.add_reader(handle, self._ended, child, handle, died)

    def _ended(self, child: Child, handle: int, died: Callable[[Child, int], None]) -> None:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
        code = 0
        with contextlib.suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        child.alive = False
        died(child, code)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """All that are alive."""
        for child in self.all:
            if child.alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, number)


def _forked(parent: int, title: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        libc.prctl(_PR_SET_NAME, title.encode()[:15])
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        if os.getppid() == parent:
            while True:
                signal.pause()
    finally:
        os._exit(0)
