"""Being on time: an alarm finer than the event loop's own, and a note of how late each send was all the same."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import math
import os
from array import array
from collections.abc import Sequence
from time import CLOCK_MONOTONIC, monotonic
from types import TracebackType
from typing import Self

from draftmark.load.gathering import arrivals_in
from draftmark.load.spreads import percentile
from draftmark.model import ClientHealth

LATE_S = 0.025
"""A client that begins one send in a hundred later than that does not keep its schedule."""

_PAST_AT_ONCE = 16  # sends that were due, between two turns of the loop: under a millisecond
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME


class Alarm:
    """Wakes a coroutine at a moment of the monotonic clock.

    The timers of an event loop are rounded up to the next millisecond of epoll. The kernel's timerfd, where there
    is one, wakes it within some ten microseconds. To be used within `with`, by one coroutine.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pace = arrivals_in(self._loop).pace
        self._wake: asyncio.Future[None] | None = None
        self._file: int | None = None
        self._past = 0

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError, AttributeError, NotImplementedError):
            self._libc = ctypes.CDLL(None, use_errno=True)
            made = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
            if made >= 0:
                self._file = made
                self._loop.add_reader(made, self._rang)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None

    async def until(self, at: float) -> None:
        """Wait until `at`. When it is past, others get their turn now and then.

        Not each time: with much to read a turn of the loop is long, and one send a turn would fall ever further
        behind.
        """
        if monotonic() >= at:
            self._past += 1
            if self._past % _PAST_AT_ONCE == 0:
                await asyncio.sleep(0)
            return
        while (left := at - monotonic()) > 0:
            if self._file is None or not self._set(at):
                await asyncio.sleep(left)
            else:
                self._wake = self._loop.create_future()
                self._pace.due_at = at
                try:
                    await self._wake
                finally:
                    self._pace.due_at = math.inf

    def _set(self, at: float) -> bool:
        seconds = int(at)
        spec = (ctypes.c_long * 4)(0, 0, seconds, max(1, int((at - seconds) * 1e9)))
        return bool(self._libc.timerfd_settime(self._file, _ABSOLUTE, spec, None) == 0)

    def _rang(self) -> None:
        if self._file is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self._file, 8)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Punctuality:
    """How late the client itself was: from when a request was due and free to go, to when its sending began."""

    def __init__(self) -> None:
        self._late = array("d")

    def note(self, late_s: float) -> None:
        """One send."""
        self._late.append(late_s)

    def noted_in(self, health: ClientHealth) -> ClientHealth:
        """The client's health with this in it."""
        late = sorted(self._late)
        if not late:
            return health
        return dataclasses.replace(
            health, send_late_ms_p99=_p99(late) * 1e3, send_late_ms_max=max(0.0, late[-1]) * 1e3
        )

    def faults(self) -> tuple[str, ...]:
        """In words, that the schedule was not kept; nothing when it was."""
        p99 = _p99(sorted(self._late))
        if p99 <= LATE_S:
            return ()
        count = sum(late > LATE_S for late in self._late)
        return (
            f"the load generator did not keep its schedule: it sent {count} of {len(self._late)} requests more "
            f"than {LATE_S * 1e3:.0f} ms late by its own fault (99th percentile {p99 * 1e3:.0f} ms)",
        )


def _p99(ranked: Sequence[float]) -> float:
    return max(0.0, percentile(ranked, 99) or 0.0)
