"""One run of a unit: who it is, how it ended, what CPU it used."""

from __future__ import annotations

from dataclasses import dataclass

from draftmark.model import Identity
from draftmark.ports import CpuSample, Host
from draftmark.service.systemd.manager import Manager, Properties

_STATE = (
    "ActiveState",
    "SubState",
    "MainPID",
    "InvocationID",
    "ExecMainStartTimestampMonotonic",
    "ExecMainCode",
    "ExecMainStatus",
    "Result",
    "Job",
)
_RUNNING = ("active", "activating", "reloading", "deactivating", "refreshing")
_EXITED = 1
_TICKS_PER_S = 100


@dataclass(frozen=True, slots=True)
class State:
    """A unit at one moment."""

    properties: Properties

    @classmethod
    def of(cls, manager: Manager) -> State:
        """Now."""
        return cls(manager.show(*_STATE))

    @property
    def running(self) -> bool:
        """Its main process is there."""
        return self.properties.get("ActiveState") in _RUNNING and bool(self.properties.number("MainPID"))

    @property
    def over(self) -> bool:
        """Nothing of it runs, and nothing is about to."""
        return self.properties.get("ActiveState") in ("inactive", "failed")

    @property
    def changing(self) -> bool:
        """It is being stopped, or is stopped and about to be started."""
        return self.properties.get("ActiveState") == "deactivating" or (
            self.over and self.properties.get("Job", "0") not in ("", "0")
        )

    @property
    def waits_for_restart(self) -> bool:
        """It died, and systemd is about to start it again."""
        return self.properties.get("SubState", "").startswith("auto-restart")

    @property
    def identity(self) -> Identity | None:
        """Who runs now; None when nothing does."""
        pid = self.properties.number("MainPID")
        if not self.running or not pid:
            return None
        return Identity(
            pid=pid,
            started_ticks=self.properties.number("ExecMainStartTimestampMonotonic") or 0,
            invocation=self.properties.get("InvocationID") or None,
        )

    @property
    def exit_code(self) -> int | None:
        """Of the last main process, negative for a signal; None while it runs or if unknown."""
        if self.running:
            return None
        code, status = self.properties.number("ExecMainCode"), self.properties.number("ExecMainStatus")
        if not code or status is None:
            return None
        return status if code == _EXITED else -status


def cpu(host: Host, manager: Manager, own_s: float) -> CpuSample | None:
    """CPU seconds of the machine and of the unit; None where the unit's are not accounted.

    Args:
        host: Where it runs.
        manager: Of the unit.
        own_s: Of ourselves, where that is the same machine; 0 elsewhere.
    """
    used = manager.show("CPUUsageNSec").number("CPUUsageNSec")
    if used is None or used >= 2**63:
        return None
    try:
        lines = host.read("/proc/stat").decode("ascii", "replace").splitlines()
    except OSError:
        return None
    fields = next((line.split()[1:9] for line in lines if line.startswith("cpu ")), [])
    if len(fields) < 8:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
    return CpuSample(
        busy_s=(user + nice + system + irq + softirq + steal) / _TICKS_PER_S,
        group_s=used / 1e9,
        own_s=own_s,
        cpus=sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines),
    )
