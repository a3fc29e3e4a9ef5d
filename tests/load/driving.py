"""How the tests of both loops carry out a plan."""

from __future__ import annotations

import asyncio
from typing import Any

from draftmark.load.drive import drive
from draftmark.load.endpoint import Endpoint
from draftmark.load.plan import LoadPlan, LoadRun
from draftmark.model import Message, Prompt, RequestRecord, Workload


def prompts(count: int = 2, **more: Any) -> Workload:
    """A workload of prompts p0, p1, …"""
    return Workload("w", tuple(Prompt(f"p{i}", (Message("user", f"say {i}"),), 8, **more) for i in range(count)))


def plan(workload: Workload | None = None, **options: Any) -> LoadPlan:
    """A plan without warm-up and over one slot, unless told otherwise."""
    options.setdefault("warmup", 0)
    options.setdefault("concurrency", 0 if "send_at_s" in options else 1)
    options.setdefault("model", "m")
    return LoadPlan(workload=workload or prompts(), **options)


def carry_out(url: str, wanted: LoadPlan, **options: Any) -> LoadRun:
    """Drive it to its end, and see that every planned request is in the records or told."""
    run = asyncio.run(drive(Endpoint(url), wanted, **options))
    assert len(measured(run)) + sum(run.unsent.values()) == wanted.total
    assert len({r.tag for r in run.records}) == len(run.records)
    return run


def measured(run: LoadRun) -> list[RequestRecord]:
    """The records that count, in the order sent."""
    return sorted((r for r in run.records if not r.warmup), key=lambda r: r.sent_at_s)
