"""The open loop: each request goes out at its time, whatever became of the others.

The times are fixed before the first is sent, and each is waited for by itself, so that being late once makes no
other late. With a limit to what may be under way, a request that finds no slot waits in the order of its time; it
keeps the time at which it was to go out, and the waiting is in the latency that is counted from there.

A conversation holds its slot until its last turn is answered.
"""

from __future__ import annotations

from asyncio import TaskGroup
from collections import deque
from time import monotonic

from draftmark.load.plan import Job
from draftmark.load.punctuality import Alarm
from draftmark.load.session import Session

HELD_BACK = "its time had come, but no slot was free before the run ended"
"""Why a request was never sent."""


async def keep_schedule(session: Session) -> None:
    """Send all that is planned at its time, and wait for the answers."""
    departures = _Departures(session)
    try:
        with Alarm() as alarm:
            async with TaskGroup() as flights:
                for job in session.plan.jobs():
                    due = session.begin + (job.at_s or 0.0)
                    await alarm.until(due)
                    departures.take(flights, job, due)
    finally:
        departures.tell_held_back()


class _Departures:
    """Starts what is due, as far as there are slots."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._capped = session.plan.concurrency > 0
        self._free = session.plan.slots
        self._waiting: deque[tuple[Job, float]] = deque()

    def take(self, flights: TaskGroup, job: Job, due: float) -> None:
        """Start it now, or when it is its turn."""
        if self._capped and self._free == 0:
            self._waiting.append((job, due))
            return
        self._free -= 1
        flights.create_task(self._fly(flights, job, due, due))

    def tell_held_back(self) -> None:
        """Count those that found no slot until the end."""
        held = sum(job.turns for job, _ in self._waiting if not job.warmup)
        if held:
            self._session.unsent[HELD_BACK] += held

    async def _fly(self, flights: TaskGroup, job: Job, due: float, could_go: float) -> None:
        if not job.warmup:
            self._session.punctuality.note(monotonic() - could_go)
        await self._session.converse(job, due)
        if self._waiting:
            flights.create_task(self._fly(flights, *self._waiting.popleft(), monotonic()))
        else:
            self._free += 1
