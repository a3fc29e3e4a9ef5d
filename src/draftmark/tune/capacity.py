"""How much each arm takes at once: a server that takes less than it is sent is measured with its queue. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.model import Arm, ServerLimits, Trial
from draftmark.run.records import RunInfo
from draftmark.tune.verdicts import listed


def limits_of(trial: Trial) -> ServerLimits:
    """By the server's own word, else by its log."""
    said, logged = trial.limits or ServerLimits(), trial.figures
    if logged is None:
        return said
    return ServerLimits(
        max_running_requests=logged.max_running_requests
        if said.max_running_requests is None
        else said.max_running_requests,
        kv_tokens=logged.kv_tokens if said.kv_tokens is None else said.kv_tokens,
    )


def limits_of_arm(arm: Arm, trials: Sequence[Trial]) -> ServerLimits:
    """The least of its starts: a pool is sized by the memory that is free just then."""
    own = [limits_of(trial) for trial in trials if trial.arm == arm]
    return ServerLimits(
        max_running_requests=_least([each.max_running_requests for each in own]),
        kv_tokens=_least([each.kv_tokens for each in own]),
    )


def limits_document(limits: ServerLimits) -> dict[str, int | None] | None:
    """As a result holds it; None where nothing is known."""
    if limits == ServerLimits():
        return None
    return {"max_running_requests": limits.max_running_requests, "kv_tokens": limits.kv_tokens}


def capacity_warnings(info: RunInfo, trials: Sequence[Trial]) -> list[str]:
    """Arms that take fewer requests at once than the baseline does, or than were sent."""
    most = max(info.concurrency)
    base = limits_of_arm(info.baseline, trials).max_running_requests
    found: dict[str, list[str]] = {}
    for arm in info.arms:
        takes = limits_of_arm(arm, trials).max_running_requests
        if takes is None:
            continue
        less = f", the baseline {base}" if base is not None and takes < base else ""
        queued = f"; with {most} at once the queue is measured, too" if takes < most else ""
        if less or queued:
            found.setdefault(f"at most {takes} requests at once{less}{queued}", []).append(arm.label)
    return [f"{listed(arms)} {'runs' if len(arms) == 1 else 'run'} {words}" for words, arms in found.items()]


def _least(counts: Sequence[int | None]) -> int | None:
    return min((count for count in counts if count is not None), default=None)
