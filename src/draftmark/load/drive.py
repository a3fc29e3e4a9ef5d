"""Carries out a plan, in whichever loop it is for."""

from __future__ import annotations

from draftmark.load.closed_loop import keep_slots_busy
from draftmark.load.endpoint import Endpoint
from draftmark.load.ledger import OnProgress, OnRecord
from draftmark.load.open_loop import keep_schedule
from draftmark.load.plan import LoadPlan, LoadRun, Stop
from draftmark.load.session import Gate, Session

__all__ = ["Gate", "OnProgress", "OnRecord", "drive"]


async def drive(
    endpoint: Endpoint,
    plan: LoadPlan,
    *,
    on_record: OnRecord | None = None,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
    gate: Gate | None = None,
) -> LoadRun:
    """Send what a plan says, and bring what came of it.

    Cancelling it leaves no task and no socket behind. An exception of a callback ends the run and comes through.

    Args:
        endpoint: The server.
        plan: What to send, and the limits.
        on_record: Called with each record once its answer is decoded, warm-up included.
        on_progress: Called with (measured requests ended, their total, output tokens per second so far, errors).
        stop: By which the caller ends it early and still gets what was measured.
        gate: Awaited when everything is ready to be sent; returns when the sending starts, on the monotonic clock,
            so that several processes can start together.
    """
    session = Session(endpoint, plan, on_record, on_progress, stop, gate)
    return await session.run(keep_schedule if plan.open else keep_slots_busy)
