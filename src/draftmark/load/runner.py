"""What a load runs on: the event loop, and a garbage collector that keeps out of its way."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from draftmark.load.gathering import LoadLoop

_SELDOM = (1_000_000, 10, 10)
"""The collector's thresholds. A load makes objects by the hundred thousand and hardly a cycle: to look through them
at every 700th, as is usual, finds nothing."""


@contextmanager
def load_runner() -> Iterator[asyncio.Runner]:
    """A runner on the event loop of loads where the system allows it, and else on asyncio's."""
    with _SELDOM_COLLECTED, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        yield runner


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    return LoadLoop if sys.platform.startswith("linux") else None


class _SeldomCollected:
    """Within it the collector runs seldom; it passes over all that was there before, and then over what was made.

    That is the records: very many objects, and no cycle. Loads may overlap.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loads = 0
        self._usual = gc.get_threshold()

    def __enter__(self) -> None:
        with self._lock:
            self._loads += 1
            if self._loads == 1:
                self._usual = gc.get_threshold()
                gc.freeze()
                gc.set_threshold(*_SELDOM)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._loads -= 1
            if self._loads == 0:
                gc.freeze()
                gc.set_threshold(*self._usual)


_SELDOM_COLLECTED = _SeldomCollected()
