"""The closed loop: so many slots, each sending its next request when the last one has ended and was thought of.

The slots only send and keep what arrives; what that says is read elsewhere (`draftmark.load.ledger`).
"""

from __future__ import annotations

from asyncio import TaskGroup, sleep
from collections.abc import Iterator

from draftmark.load.plan import Job
from draftmark.load.session import Session

_AT_ONCE = 64  # slots that begin between two looks at what has arrived: a few milliseconds


async def keep_slots_busy(session: Session) -> None:
    """Send all that is planned over the plan's slots."""
    jobs = session.plan.jobs()
    async with TaskGroup() as slots:
        for i in range(session.plan.slots):
            slots.create_task(_slot(session, jobs))
            if i % _AT_ONCE == _AT_ONCE - 1:
                await sleep(0)


async def _slot(session: Session, jobs: Iterator[Job]) -> None:
    for job in jobs:
        await session.converse(job)
        if session.stop.because is not None:
            return
