"""How the load generator itself fares: a client that is late stamps late, and voids what it measured."""

from __future__ import annotations

import asyncio
import time

from draftmark.load.spreads import percentile
from draftmark.model import ClientHealth

_EVERY_S = 0.02
_PAUSE_S = 0.1  # a lag above it is no scheduling delay: the process stood still or was busy elsewhere


class LagProbe:
    """How late the event loop runs what is due, and the CPU seconds of this process.

    Its 50 wake-ups a second are few enough not to be felt by a server on the same machine.
    """

    def __init__(self) -> None:
        self._late: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._cpu = time.process_time()
        self._next = self._loop.time() + _EVERY_S
        self._timer = self._loop.call_at(self._next, self._wake)

    def _wake(self) -> None:
        now = self._loop.time()
        self._late.append(now - self._next)
        self._next = now + _EVERY_S
        self._timer = self._loop.call_at(self._next, self._wake)

    def stop(self) -> ClientHealth:
        """End it and say what was seen."""
        self._timer.cancel()
        overdue = self._loop.time() - self._next
        if overdue > 0:  # a pause that has just ended, before the wake-up could note it
            self._late.append(overdue)
        late = sorted(self._late)
        lag = percentile(late, 99)
        return ClientHealth(
            loop_lag_ms_p99=None if lag is None else lag * 1e3,
            cpu_s=time.process_time() - self._cpu,
            loop_lag_ms_max=late[-1] * 1e3 if late else None,
            loop_pauses_ms=sum(s for s in late if s > _PAUSE_S) * 1e3 if late else None,
        )
