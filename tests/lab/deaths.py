"""The deaths, one entry each: the unit, what is done to it, what must be found afterwards, and what `why` must say.

Causes are the names of the taxonomy. On a machine with cgroup v1 systemd does not notice the kernel's kills; there
the kernel log alone tells, and the cause is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .cgroups import Version
from .kills import (
    crash_loop,
    dump,
    kill,
    kill_and_return,
    lose_worker,
    nothing,
    oomd,
    restart,
    starts,
    stay,
    stop,
    systemctl_kill,
)
from .machine import Machine, Mode

SERVER = Path(__file__).with_name("server.py")
PYTHON = Path(sys.executable).resolve()
BOTH = (Mode.SHARED, Mode.OWN)
LIMIT = "MemoryMax=32M\nMemorySwapMax=0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One way to die.

    Attributes:
        name: Also the stem of the unit's name.
        service: Lines of `[Service]` beside ExecStart and Type=notify (which `service` may override).
        manner: What the server does; None when there is no server.
        kill: What is done to the unit once it is started, until the end has come.
        modes: Where it can be played.
        quick: The modes in which it is played by default.
        journal: A regular expression for each line that must be in the unit's journal, in order.
        kernel: The same for the kernel log.
        properties: What systemd must say of the unit at the end, by cgroup version: regular expressions.
        cause: What `draftmark why` must say, as root.
        cited: A regular expression that a cited line must match.
        consequence: A regular expression that a consequence must match.
        certain: Whether root's answer must be certain; else `likely` will do.
        seems: What one who sees properties alone may be told instead, though not as certain.
        died: What `died` must be; None is not asserted.
    """

    name: str
    kill: Callable[[Machine, str], None]
    cause: str
    service: str = ""
    unit: str = ""
    slice_limit: bool = False
    manner: str | None = "serve"
    modes: tuple[Mode, ...] = BOTH
    quick: tuple[Mode, ...] = (Mode.SHARED,)
    journal: tuple[str, ...] = ()
    kernel: tuple[str, ...] = ()
    properties: Mapping[Version, Mapping[str, str]] = field(default_factory=dict)
    cited: str | None = None
    consequence: str | None = None
    certain: bool = True
    seems: str | None = None
    died: bool | None = None

    def files(self, unit: str) -> dict[str, str]:
        """Unit files by name."""
        if self.manner is None and not self.service:
            return {}
        start = "" if self.manner is None else f"ExecStart={PYTHON} -S -B {SERVER} {self.manner}\n"
        limits = f"Slice={unit.removesuffix('.service')}.slice\n" if self.slice_limit else ""
        service = f"[Service]\nType=notify\n{start}{limits}{self.service}\n"
        found = {unit: f"[Unit]\nDescription=model server\n{self.unit}\n\n{service}"}
        if self.slice_limit:
            found[unit.removesuffix(".service") + ".slice"] = f"[Slice]\n{LIMIT}\n"
        return found


def same(**properties: str) -> dict[Version, dict[str, str]]:
    """Properties that do not depend on the version of control groups."""
    return dict.fromkeys(Version, properties)


KILLED = r"Main process exited, code=killed, status=9/KILL"
PATIENCE = r"State 'stop-sigterm' timed out\. Killing\."
UNIT_OOM = r"A process of this unit has been killed by the OOM killer"
GROUP_OOM = (
    r"invoked oom-killer",
    r"oom-kill:constraint=CONSTRAINT_MEMCG",
    r"Memory cgroup out of memory: Killed process",
)
SIGNAL = "signal|core-dump"  # a kernel that pipes its dumps to a program dumps in spite of LimitCORE=0
OOM_RESULT = {Version.V2: {"Result": "oom-kill"}, Version.V1: {"Result": "signal"}}
OOM_CITED = r"CONSTRAINT_MEMCG|Memory cgroup out of memory"

DEATHS = (
    Death(
        name="stop-timeout",
        manner="drain",
        service="TimeoutStopSec=1",
        kill=stop,
        journal=(r"Stopping ", PATIENCE, r"Killing process \d+ .* with signal SIGKILL", KILLED),
        properties=same(Result="timeout"),
        cause="stop-timeout-sigkill",
        cited=PATIENCE,
        died=True,
    ),
    Death(
        name="stop-timeout-abort",
        manner="drain",
        service="TimeoutStopSec=1\nTimeoutStopFailureMode=abort\nLimitCORE=0",
        kill=stop,
        journal=(r"State 'stop-sigterm' timed out\. Aborting\.", r"status=6/ABRT"),
        properties=same(Result="timeout"),
        cause="stop-timeout-sigkill",
        cited=r"timed out\. Aborting\.",
        died=True,
    ),
    Death(
        name="stop-timeout-final",
        manner="deaf-worker",
        service="TimeoutStopSec=1",
        kill=stop,
        journal=(r"State 'final-sigterm' timed out\. Killing\.", r"Killing process \d+ .* with signal SIGKILL"),
        properties=same(Result="timeout"),
        cause="stop-timeout-sigkill",
        cited=r"State 'final-sigterm' timed out",
        died=True,
    ),
    Death(
        name="oom-main",
        manner="grow",
        service=LIMIT,
        kill=starts,
        quick=BOTH,
        kernel=GROUP_OOM,
        properties=OOM_RESULT,
        cause="cgroup-oom",
        cited=OOM_CITED,
        died=True,
    ),
    Death(
        name="oom-child-stop",
        manner="growing-worker",
        service=f"{LIMIT}\nOOMPolicy=stop",
        kill=lose_worker,
        quick=BOTH,
        kernel=GROUP_OOM,
        properties={Version.V2: {"Result": "oom-kill"}, Version.V1: {"Result": "success", "ActiveState": "active"}},
        seems="healthy-running",
        cause="cgroup-oom",
        cited=OOM_CITED,
    ),
    Death(
        name="oom-child-kill",
        manner="growing-worker",
        service=f"{LIMIT}\nOOMPolicy=kill",
        kill=lose_worker,
        quick=(Mode.OWN,),
        kernel=GROUP_OOM,
        properties={Version.V2: {"Result": "oom-kill"}, Version.V1: {"Result": "success", "ActiveState": "active"}},
        seems="healthy-running",
        cause="cgroup-oom",
        cited=OOM_CITED,
    ),
    Death(
        name="oom-child-continue",
        manner="growing-worker",
        service=f"{LIMIT}\nOOMPolicy=continue",
        kill=lose_worker,
        quick=(Mode.OWN,),
        kernel=GROUP_OOM,
        properties=same(Result="success", ActiveState="active"),
        seems="healthy-running",
        cause="cgroup-oom",
        cited=OOM_CITED,
        died=False,
    ),
    Death(
        name="oom-slice",
        manner="grow",
        slice_limit=True,
        kill=starts,
        quick=(Mode.OWN,),
        kernel=GROUP_OOM,
        properties=OOM_RESULT,
        cause="cgroup-oom",
        cited=OOM_CITED,
        died=True,
    ),
    Death(
        name="oomd",
        kill=oomd,
        modes=(Mode.OWN,),
        quick=(Mode.OWN,),
        journal=(r"systemd-oomd killed 1 process\(es\) in this unit", KILLED),
        properties=same(Result="oom-kill"),
        cause="systemd-oomd",
        cited=r"systemd-oomd killed",
        died=True,
    ),
    Death(
        name="kill-9",
        kill=kill,
        journal=(KILLED,),
        properties=same(Result="signal"),
        cause="user-or-supervisor-sigkill",
        cited=KILLED,
        certain=False,
        died=True,
    ),
    Death(
        name="systemctl-kill",
        kill=systemctl_kill,
        journal=(r"Sent signal SIGKILL to main process \d+ .* on client request", KILLED),
        properties=same(Result="signal"),
        cause="user-or-supervisor-sigkill",
        cited=r"on client request",
        died=True,
    ),
    Death(
        name="watchdog",
        manner="hang",
        service="WatchdogSec=1\nLimitCORE=0",
        kill=starts,
        journal=(r"Watchdog timeout \(limit 1s\)!", r"with signal SIGABRT"),
        properties=same(Result="watchdog"),
        cause="watchdog-timeout",
        cited=r"Watchdog timeout",
        died=True,
    ),
    Death(
        name="segfault",
        manner="segfault",
        service="LimitCORE=infinity\nWorkingDirectory=/tmp",
        kill=dump,
        quick=BOTH,
        journal=(r"Main process exited, code=dumped, status=11/SEGV",),
        properties=same(Result="core-dump"),
        cause="segfault-or-abort",
        cited=r"status=11/SEGV|dumped core|segfault at",
        died=True,
    ),
    Death(
        name="segfault-no-core",
        manner="segfault",
        service="LimitCORE=0",
        kill=starts,
        journal=(r"Main process exited, code=(killed|dumped), status=11/SEGV",),
        properties=same(Result=SIGNAL),
        cause="segfault-or-abort",
        cited=r"status=11/SEGV|segfault at",
        died=True,
    ),
    Death(
        name="abort",
        manner="abort",
        service="LimitCORE=0",
        kill=starts,
        quick=(),
        journal=(r"Main process exited, code=(killed|dumped), status=6/ABRT",),
        properties=same(Result=SIGNAL),
        cause="segfault-or-abort",
        cited=r"status=6/ABRT",
        certain=False,
        died=True,
    ),
    Death(
        name="start-limit",
        manner="broken-start",
        service="Type=simple\nRestart=always\nRestartSec=100ms",
        unit="StartLimitIntervalSec=60\nStartLimitBurst=3",
        kill=crash_loop,
        journal=(r"RuntimeError: tensor", r"status=1/FAILURE", r"Start request repeated too quickly"),
        properties=same(Result="exit-code"),
        cause="python-exception-startup",
        cited=r"RuntimeError: tensor",
        consequence=r"Start request repeated too quickly",
        died=True,
    ),
    Death(
        name="missing-binary",
        manner=None,
        service="Type=simple\nExecStart=/opt/models/bin/model-server --port 30000",
        kill=starts,
        journal=(r"Failed at step EXEC spawning /opt/models/bin/model-server", r"status=203/EXEC"),
        properties=same(Result="exit-code"),
        cause="config-invalid",
        cited=r"203/EXEC|Failed at step EXEC",
        died=True,
    ),
    Death(
        name="missing-folder",
        service="WorkingDirectory=/opt/models/none",
        kill=starts,
        quick=(),
        journal=(r"Failed at step CHDIR", r"status=200/CHDIR"),
        properties=same(Result="exit-code"),
        cause="config-invalid",
        cited=r"200/CHDIR|Failed at step CHDIR",
        died=True,
    ),
    Death(
        name="start-timeout",
        manner="never-ready",
        service="TimeoutStartSec=1",
        kill=starts,
        quick=(),
        journal=(r"start operation timed out\. Terminating\.",),
        properties=same(Result="timeout"),
        cause="model-load-timeout",
        cited=r"start operation timed out",
        died=True,
    ),
    Death(
        name="runtime-limit",
        service="RuntimeMaxSec=1",
        kill=starts,
        journal=(r"Service reached runtime time limit\. Stopping\.",),
        properties=same(Result="timeout"),
        cause="user-or-supervisor-sigterm",
        cited=r"reached runtime time limit",
        died=True,
    ),
    Death(
        name="restart-hid-timeout",
        manner="drain",
        service="TimeoutStopSec=1",
        kill=restart,
        journal=(PATIENCE, KILLED, r"Started "),
        properties=same(Result="success", ActiveState="active"),
        seems="healthy-running",
        cause="stop-timeout-sigkill",
        cited=PATIENCE,
    ),
    Death(
        name="restart-hid-kill",
        service="Restart=always\nRestartSec=100ms",
        kill=kill_and_return,
        journal=(KILLED, r"Scheduled restart job", r"Started "),
        properties=same(Result="success", ActiveState="active", NRestarts="1"),
        seems="healthy-running",
        cause="user-or-supervisor-sigkill",
        cited=KILLED,
        certain=False,
    ),
    Death(
        name="healthy",
        kill=stay,
        properties=same(ActiveState="active", Result="success"),
        cause="healthy-running",
        died=False,
    ),
    Death(
        name="clean-stop",
        kill=stop,
        journal=(r"Stopping ", r"Deactivated successfully", r"Stopped "),
        properties=same(ActiveState="inactive", Result="success"),
        cause="healthy-exit",
        died=True,
    ),
    Death(
        name="never-existed",
        manner=None,
        kill=nothing,
        properties=same(LoadState="not-found"),
        cause="",
    ),
    Death(
        name="oom-global",  # last: memory that was touched once makes this kernel slow
        manner="grow",
        kill=starts,
        modes=(Mode.OWN,),
        quick=(Mode.OWN,),
        journal=(UNIT_OOM,),
        kernel=(r"oom-kill:constraint=CONSTRAINT_NONE.*global_oom", r"Out of memory: Killed process"),
        properties=same(Result="oom-kill"),
        cause="host-ram-oom-kernel",
        cited=r"CONSTRAINT_NONE|Out of memory: Killed process",
        died=True,
    ),
)
