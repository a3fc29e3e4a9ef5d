"""The time of a simulated server: simulated seconds, waited for in real ones or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# What a log with simulated stamps begins with.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_LOOK_S = 0.001
_BEHIND_S = 0.25  # further behind than that, the schedule begins anew


class Clock:
    """Counts simulated seconds.

    Attributes:
        behind_s: Real seconds by which serving ran late, in all: the computer was too slow for this speed.

    Args:
        real: Wait for them; else time stands still but for what is simulated.
        moved: The real clock.
    """

    def __init__(self, *, real: bool, moved: Callable[[], float] = time.monotonic) -> None:
        self.real = real
        self.behind_s = 0.0
        self._moved = moved
        self._began = moved()
        self._simulated = 0.0
        self._due: float | None = None

    def seconds(self) -> float:
        """Simulated seconds of service so far: idle time counts only where it is real."""
        return self._simulated

    def now(self) -> datetime:
        """For stamps: local time, or simulated from a fixed day on."""
        if self.real:
            return datetime.now()
        return EPOCH + timedelta(seconds=self._simulated)

    async def wait(self, seconds: float, speed: float) -> None:
        """Let so many simulated seconds go by, outside of serving."""
        self._simulated += seconds
        await asyncio.sleep(seconds / speed if self.real else 0)

    async def pause(self, seconds: float, speed: float, busy: Callable[[], bool]) -> None:
        """Let so many seconds go by beside what is served; simulated, they go by with it, or at once when idle."""
        if self.real:
            await asyncio.sleep(seconds / speed)
            return
        until = self._simulated + seconds
        while busy() and self._simulated < until:
            await asyncio.sleep(_LOOK_S)
        self._simulated = max(self._simulated, until)

    def idle(self) -> None:
        """Nothing is served: the next round begins when it begins."""
        self._due = None

    async def serve(self, seconds: float, speed: float) -> None:
        """Let a round go by. Rounds follow one another without a gap, whatever the waits' granularity."""
        self._simulated += seconds
        if not self.real:
            await asyncio.sleep(0)
            return
        now = self._moved()
        due = (now if self._due is None else self._due) + seconds / speed
        if now - due > _BEHIND_S:
            self.behind_s += now - due
            due = now
        self._due = due
        await asyncio.sleep(max(0.0, due - now))
