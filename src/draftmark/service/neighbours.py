"""What else works on this computer while nothing of ours does."""

from __future__ import annotations

import os
from pathlib import Path

from draftmark.ports import Clock, ForeignLoad
from draftmark.service.proc import all_stats, machine_cpu_s


class LocalLoad:
    """ports.HostLoad of the local computer, from /proc."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def foreign(self, seconds: float) -> ForeignLoad | None:
        """Sample for so long; None where /proc does not tell."""
        before = _sample()
        began = self._clock.monotonic()
        self._clock.sleep(seconds)
        after = _sample()
        wall_s = self._clock.monotonic() - began
        if before is None or after is None or wall_s <= 0:
            return None
        busy_s = (after[0] - before[0]) - (after[1] - before[1])
        used = {pid: cpu_s - before[2].get(pid, 0.0) for pid, cpu_s in after[2].items()}
        pid = max(used, key=lambda key: used[key], default=None)
        # A process of under a tenth of a core explains nothing.
        named = _named(pid, used[pid] / wall_s) if pid is not None and used[pid] > 0.1 * wall_s else None
        return ForeignLoad(cores=max(0.0, busy_s) / wall_s, busiest=named)


def _sample() -> tuple[float, float, dict[int, float]] | None:
    machine = machine_cpu_s()
    if machine is None:
        return None
    own = os.times()
    me = os.getpid()
    processes = {stat.pid: stat.own_s for stat in all_stats() if stat.pid != me}
    return machine[0], own.user + own.system, processes


def _named(pid: int, cores: float) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        shown = " ".join(b" ".join(words[:3]).decode("utf-8", "replace").split())
    except OSError:
        shown = ""
    return f"pid {pid} ({shown[:60] or 'unknown'}) used {cores:.2f} cores"
