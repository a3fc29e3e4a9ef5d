"""What a load runs on: the event loop, and a garbage collector that keeps out of its way."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

_SELDOM = (100_000, 10, 10)
"""The collector's thresholds. A load makes objects by the hundred thousand and hardly a cycle: to look through them
at every 700th, as is usual, finds nothing."""


@contextmanager
def load_runner() -> Iterator[asyncio.Runner]:
    """A runner on uvloop's event loop where that is installed, and else on asyncio's."""
    with _SELDOM_COLLECTED, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        yield runner


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        made: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return made


class _SeldomCollected:
    """Within it the collector runs seldom, and passes over all that was there before. Loads may overlap."""

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
                gc.set_threshold(*self._usual)
                gc.unfreeze()


_SELDOM_COLLECTED = _SeldomCollected()
