"""What makes a measurement untrustworthy. Pure."""

from __future__ import annotations

from draftmark.load.client import LoadRun
from draftmark.model import Identity
from draftmark.ports import CpuSample


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


def load_faults(run: LoadRun, max_error_rate: float, max_loop_lag_ms: float) -> tuple[str, ...]:
    """Reasons on the client's side: errors over the limit, a run cut short, a lagging event loop."""
    faults: list[str] = []
    if run.stopped_because:
        faults.append(run.stopped_because)
    counted = [record for record in run.records if not record.warmup]
    # `cut` is our own doing, told by `stopped_because`.
    failed = [record for record in counted if record.error not in (None, "cut")]
    if counted and len(failed) / len(counted) > max_error_rate:
        kinds = ", ".join(sorted({str(record.error) for record in failed}))
        faults.append(f"{len(failed)} of {len(counted)} requests failed ({kinds})")
    lag = run.client.loop_lag_ms_p99
    if lag is not None and lag > max_loop_lag_ms:
        faults.append(f"the load generator itself lagged by {lag:.0f} ms (limit {max_loop_lag_ms:.0f} ms)")
    return tuple(faults)
