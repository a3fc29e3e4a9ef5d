"""The event loop of a load: it lets arrivals gather for a moment, and hands them straight to whoever reads them.

To wake up for a chunk costs far more than to read it. The kernel notes when each came in (`draftmark.load.stamps`),
so it need not be fetched at once: chunks of several streams that came within a moment are fetched in one turn, and
their times are as exact. Patience ends where it could be seen in a figure: two chunks of one stream that are read
together share one time, and a slot whose answer has ended waits for its next request. So it is a small part of the
gaps within the streams, and of the time of a whole answer.

A stream whose chunks follow one another faster than any model decodes (a proxy that held them back, a server that
catches up) is read every few milliseconds instead (`Arrivals.sweep`): its times come in lumps as it is.
"""

from __future__ import annotations

import asyncio
import math
import select
import selectors
from collections.abc import Callable, Mapping
from time import monotonic, sleep
from typing import Any
from weakref import WeakKeyDictionary

from draftmark.load.stamps import READ_BYTES

MOST_S = 0.005
"""The longest patience."""
SWEEP_S = 0.020
"""How often the streams of which nobody can tell the chunks apart are read, at most."""
_OF_GAP, _OF_ANSWER, _OF_SWEPT = 1 / 4, 1 / 400, 1 / 25
_FALL, _RISE = 0.5, 0.05
_HURRIED = 3
"""Turns of the loop from an alarm that rang to the request being sent: it wakes who waits, who starts a task."""


class Pace:
    """How long arrivals may gather, by what was seen of late.

    Attributes:
        patience_s: So long.
        sweep_s: From one sweep to the next.
        due_at: When somebody must be woken in any case, on the monotonic clock; infinite for nobody.
        stamped: The kernel notes the arrivals, on each connection.
    """

    __slots__ = ("_answer_s", "_gap_s", "due_at", "patience_s", "stamped", "sweep_s")

    def __init__(self) -> None:
        self._gap_s = 0.0
        self._answer_s = 0.0
        self.due_at = math.inf
        self.patience_s = 0.0
        self.sweep_s = SWEEP_S
        self.stamped = True

    def gap(self, least_s: float) -> None:
        """The shortest of some gaps between arrivals of one stream."""
        self._gap_s = known = _towards(self._gap_s, least_s)
        patience = min(MOST_S, known * _OF_GAP)
        if self._answer_s:
            patience = min(patience, self._answer_s * _OF_ANSWER)
        self.patience_s = patience if self.stamped else 0.0

    def answer(self, answer_s: float) -> None:
        """An answer took so long, from its request to its end."""
        self._answer_s = known = _towards(self._answer_s or max(0.0, answer_s), answer_s)
        self.patience_s = min(self.patience_s, known * _OF_ANSWER)
        self.sweep_s = min(SWEEP_S, known * _OF_SWEPT)


def _towards(known: float, seen: float) -> float:
    """Quickly down, slowly up: it stays near the lowest.

    Two ways of stamping may be off by some microseconds, so that an arrival seems to lie before what it follows.
    """
    seen = max(0.0, seen)
    return known + (seen - known) * (_RISE if seen > known else _FALL)


class GatheringSelector(selectors.BaseSelector):
    """What a `LoadLoop` waits with: an epoll for the connections, and in it another for all else."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._others = selectors.EpollSelector()
        self._epoll = select.epoll()
        self._others_fd = self._others.fileno()
        self._epoll.register(self._others_fd, select.EPOLLIN)
        self._readers: dict[int, Callable[[], None]] = {}
        self._hurried = 0  # turns to go
        self._held_up = False  # arrivals, by the last turns

    def watch(self, fd: int, readable: Callable[[], None]) -> None:
        """Call this, within `select`, whenever there is something to read."""
        self._readers[fd] = readable
        self._epoll.register(fd, select.EPOLLIN)

    def leave(self, fd: int) -> None:
        """No more. Idempotent."""
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let arrivals gather, wait, and hand them over; what else there is to do is returned.

        What else there is may be a request that is due, and arrivals have their stamps: it goes first, in this turn
        and those that follow from it. Then it is the arrivals' turn, whatever came.
        """
        if self._hurried:
            self._hurried -= 1
            if timeout == 0:
                return self._others.select(0)
            self._hurried = 0
        patience = self.pace.patience_s
        if patience:
            if self.pace.due_at != math.inf:
                patience = max(0.0, min(patience, self.pace.due_at - monotonic()))
            if timeout is not None:
                patience = min(patience, timeout)
                timeout -= patience
            if patience:
                sleep(patience)
        found = self._epoll.poll(timeout)
        ready = self._others.select(0) if any(fd == self._others_fd for fd, _ in found) else []
        if ready and not self._held_up:
            self._hurried, self._held_up = _HURRIED, True
            return ready
        self._held_up = False
        for fd, _ in found:
            if (readable := self._readers.get(fd)) is not None:  # or one before it has closed this one
                readable()
        return ready

    # --- all else -----------------------------------------------------------------------------------------------

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As of an `EpollSelector`."""
        return self._others.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """As of an `EpollSelector`."""
        return self._others.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """As of an `EpollSelector`."""
        return self._others.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """As of an `EpollSelector`."""
        return self._others.get_map()

    def close(self) -> None:
        """Close both."""
        self._epoll.close()
        self._others.close()


class LoadLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop over a `GatheringSelector`. Linux only."""

    def __init__(self) -> None:
        self.gathering = GatheringSelector()
        super().__init__(self.gathering)


class Arrivals:
    """Tells those who read, in one event loop, of what has come.

    Attributes:
        pace: Of this loop.
        room: Where each read is put, one after another: it stays in the caches.
        watch: `(fd, readable)`: call it whenever there is something to read.
        leave: `(fd)`: no more.
    """

    __slots__ = ("_loop", "_sweeping", "_swept", "leave", "pace", "room", "watch")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        gathering = loop.gathering if isinstance(loop, LoadLoop) else None
        self._loop = loop
        self.room = memoryview(bytearray(READ_BYTES))
        self._swept: dict[int, Callable[[], None]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self.pace = Pace() if gathering is None else gathering.pace
        self.watch: Callable[[int, Callable[[], None]], object] = gathering.watch if gathering else loop.add_reader
        self.leave: Callable[[int], object] = gathering.leave if gathering else loop.remove_reader

    def sweep(self, fd: int, readable: Callable[[], None]) -> None:
        """Call this every few milliseconds instead, whether there is something to read or not."""
        self.leave(fd)
        self._swept[fd] = readable
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(self.pace.sweep_s, self._sweep)

    def spare(self, fd: int) -> None:
        """It is swept no more."""
        self._swept.pop(fd, None)

    def _sweep(self) -> None:
        for readable in list(self._swept.values()):
            readable()
        self._sweeping = self._loop.call_later(self.pace.sweep_s, self._sweep) if self._swept else None


_known: WeakKeyDictionary[asyncio.AbstractEventLoop, Arrivals] = WeakKeyDictionary()


def arrivals_in(loop: asyncio.AbstractEventLoop) -> Arrivals:
    """The one of this loop."""
    found = _known.get(loop)
    if found is None:
        found = _known[loop] = Arrivals(loop)
    return found
