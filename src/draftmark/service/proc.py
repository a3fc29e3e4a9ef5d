"""Processes as /proc shows them: parents, sessions, start times, CPU time."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What Draftmark uses of /proc/PID/stat.

    Attributes:
        pid: Process.
        state: `R`, `S`, `D`, `Z`, ….
        parent: Parent's pid.
        session: Session id.
        started_ticks: Start time, clock ticks since boot.
        own_s: CPU seconds, user and system.
        reaped_s: CPU seconds of the children that it has waited for.
    """

    pid: int
    state: str
    parent: int
    session: int
    started_ticks: int
    own_s: float
    reaped_s: float

    @property
    def alive(self) -> bool:
        """Whether it still runs: a zombie only waits to be counted."""
        return self.state not in "ZXx"


def read_stat(pid: int) -> ProcessStat | None:
    """One process; None when there is none, or /proc does not tell."""
    try:
        data = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = data.rpartition(b")")[2].split()  # the name before it may hold blanks and brackets
    if len(fields) < 20:
        return None
    user, system, child_user, child_system = (int(fields[index]) / _TICKS_PER_S for index in range(11, 15))
    return ProcessStat(
        pid=pid,
        state=fields[0].decode("ascii", "replace"),
        parent=int(fields[1]),
        session=int(fields[3]),
        started_ticks=int(fields[19]),
        own_s=user + system,
        reaped_s=child_user + child_system,
    )


def still_runs(stat: ProcessStat) -> bool:
    """Whether that process, and not a later one with its pid, runs now."""
    now = read_stat(stat.pid)
    return now is not None and now.alive and now.started_ticks == stat.started_ticks


def all_stats() -> Iterator[ProcessStat]:
    """Every process that can be seen."""
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only, thousands of them
        if name.isdigit() and (stat := read_stat(int(name))) is not None:
            yield stat


def descendants(root: int) -> dict[int, ProcessStat]:
    """Every process below `root`, zombies too, `root` itself not."""
    below: dict[int, list[ProcessStat]] = {}
    for stat in all_stats():
        below.setdefault(stat.parent, []).append(stat)
    found: dict[int, ProcessStat] = {}
    todo = [root]
    while todo:
        for stat in below.get(todo.pop(), ()):
            if stat.pid not in found:
                found[stat.pid] = stat
                todo.append(stat.pid)
    return found


def tree_cpu_s(root: int) -> float | None:
    """CPU seconds of everything that has run below `root`, live and reaped; `root`'s own are not in it.

    A process that is reaped between the reading of its figures and of its parent's would be counted twice or not at
    all, so the tree is read again until it held still for one reading.
    """
    total_s: float | None = None
    for _ in range(5):
        before = read_stat(root)
        tree = descendants(root)
        after = read_stat(root)
        if before is None or after is None:
            return None
        total_s = after.reaped_s + sum(stat.own_s + stat.reaped_s for stat in tree.values())
        if before.reaped_s == after.reaped_s and all(_reaped_nothing_since(stat) for stat in tree.values()):
            break
    return total_s


def _reaped_nothing_since(stat: ProcessStat) -> bool:
    now = read_stat(stat.pid)
    return now is not None and now.reaped_s == stat.reaped_s


def command_line(pid: int) -> tuple[str, ...]:
    """As the kernel has it; empty for one that is gone or has none."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in data.removesuffix(b"\0").split(b"\0")) if data else ()


def machine_cpu_s() -> tuple[float, int] | None:
    """Seconds that all CPUs were busy since boot, and the number of CPUs online.

    user, nice, system, irq, softirq and steal; guest time is counted inside user already.
    """
    try:
        lines = (_PROC / "stat").read_text("ascii").splitlines()
    except OSError:
        return None
    cpus = sum(line.startswith("cpu") for line in lines) - 1
    values = [int(word) for word in lines[0].split()[1:]]
    values += [0] * (8 - len(values))
    return sum(values[index] for index in (0, 1, 2, 5, 6, 7)) / _TICKS_PER_S, cpus


def carries(pid: int, variable: bytes) -> bool:
    """Whether a process was started with this `NAME=value`; False where its environment may not be read."""
    try:
        return variable in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def of_instance(session: int, marker: str) -> list[ProcessStat]:
    """Live processes of one instance: those in the guard's session, and those that carry the marker.

    Args:
        session: The guard's pid, which is its session's id.
        marker: `NAME=value` in the environment.
    """
    wanted = marker.encode()
    me = os.getpid()
    return [
        stat
        for stat in all_stats()
        if stat.alive and stat.pid not in (me, session) and (stat.session == session or carries(stat.pid, wanted))
    ]


def kill_exactly(stat: ProcessStat) -> None:
    """SIGKILL for that process and no other that has its pid by now."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(stat.pid)
        try:
            if still_runs(stat):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
