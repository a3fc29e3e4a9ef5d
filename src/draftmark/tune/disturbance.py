"""What makes a measurement untrustworthy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from draftmark.load.client import LoadRun
from draftmark.model import Counters, Identity, RequestRecord
from draftmark.ports import CpuSample

FOREIGN = "foreign"
"""Key among a trial's disturbances for requests of others."""

OTHERS = "others"
"""The same for somebody who stopped or restarted the server."""

_PAUSE_MS = 1000.0  # Ctrl-Z, a suspended laptop, a paused virtual machine


def changed_identity(before: Identity, after: Identity | None, exit_code: int | None) -> str | None:
    """In words, whether the server that ended a measurement is another than began it."""
    if after == before:
        return None
    if after is None:
        how = f" with exit status {exit_code}" if exit_code is not None else ""
        return f"the server (pid {before.pid}) died{how}"
    return f"the server restarted (pid {before.pid} became {after.pid})"


def foreign_cores(before: CpuSample, after: CpuSample, wall_s: float) -> float | None:
    """CPU cores used by anything but the server and ourselves, steal included; None when the span is too short.

    The kernel counts in ticks of 10 ms, so that a span under half a second would be mostly rounding.
    """
    if wall_s < 0.5:
        return None
    ours = (after.group_s - before.group_s) + (after.own_s - before.own_s)
    return max(0.0, (after.busy_s - before.busy_s) - ours) / wall_s


def counters_astray(
    before: Counters, after: Counters, records: Sequence[RequestRecord], *, others_ignored: bool = False
) -> str | None:
    """In words, whether the server's own counters contradict what we asked of it; None when they do not.

    A counter that fell means another server behind the same process, such as a wrapper that restarts it. Tokens
    that we did not receive belong to somebody else's requests. Failed requests leave tokens uncounted on our side,
    so then only a fall says something.

    Args:
        before: When the measurement began.
        after: When it was over.
        records: What we asked meanwhile.
        others_ignored: The user knows of others' requests, and wants to measure beside them.
    """
    for name in ("output_tokens", "drafted_tokens", "accepted_tokens"):
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and new is not None and new < old:
            return f"the server's counters fell ({name} from {old} to {new}): it restarted"
    if before.output_tokens is None or after.output_tokens is None or any(r.error is not None for r in records):
        return None
    if any(r.output_tokens is None for r in records):
        return None
    ours = sum(r.output_tokens or 0 for r in records)
    theirs = after.output_tokens - before.output_tokens
    # A server may count the end token or the first of the prompt's pass differently, one or two a request.
    slack = 2 * len(records) + 0.02 * ours
    if theirs > ours + slack and not others_ignored:
        return f"others used the server: it put out {theirs} tokens, our requests got {ours}"
    if theirs < ours - slack:
        return f"the server counts {theirs} tokens and our requests got {ours}: it restarted"
    return None


def paused(records: Sequence[RequestRecord]) -> str | None:
    """In words, whether a single request's stream stood still: the server was stopped, swapped or starved.

    Only for one request at a time, where no other prompt can hold it up: a gap of over a second that is also more
    than twenty times the usual one.
    """
    gaps = [b - a for r in records if r.error is None for (a, _), (b, _) in pairwise(r.chunks)]
    if len(gaps) < 10:
        return None
    longest, usual = max(gaps), mean(gaps)
    if longest <= 1.0 or longest <= 20 * (sum(gaps) - longest) / (len(gaps) - 1):
        return None
    return f"the answers stood still for {longest:.1f} s (usual gap {usual * 1000:.0f} ms)"


def load_faults(run: LoadRun, max_error_rate: float, max_loop_lag_ms: float) -> tuple[str, ...]:
    """Reasons on the client's side: errors over the limit, a run cut short, a lagging loop, a schedule not kept."""
    faults: list[str] = []
    if run.stopped_because:
        faults.append(run.stopped_because)
    faults += run.disturbed
    counted = [record for record in run.records if not record.warmup]
    # `cut` is our own doing, told by `stopped_because`.
    failed = [record for record in counted if record.error not in (None, "cut")]
    if counted and len(failed) / len(counted) > max_error_rate:
        kinds = ", ".join(sorted({str(record.error) for record in failed}))
        faults.append(f"{len(failed)} of {len(counted)} requests failed ({kinds})")
    lag = run.client.loop_lag_ms_p99
    if lag is not None and lag > max_loop_lag_ms:
        faults.append(f"the load generator itself lagged by {lag:.0f} ms (limit {max_loop_lag_ms:.0f} ms)")
    pause = run.client.loop_lag_ms_max
    if pause is not None and pause > _PAUSE_MS:
        faults.append(f"the load generator itself stood still for {pause / 1000:.1f} s")
    still = paused(counted) if all(record.concurrency == 1 for record in counted) else None
    if still is not None:
        faults.append(still)
    return tuple(faults)
