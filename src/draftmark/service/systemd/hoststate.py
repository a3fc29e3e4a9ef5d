"""Reads what `hazards` wants to know of a host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from draftmark.ports import Host
from draftmark.service.systemd.hazard import GpuProcess, HostState
from draftmark.service.systemd.unitfile import UnitFile

_GPU = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")
_GPU_S = 10.0
_CONFIG = ("systemd-analyze", "cat-config", "--no-pager", "systemd/journald.conf")
_FILE = re.compile(r"^# (/\S.*)$", re.MULTILINE)


def host_state(host: Host, properties: Mapping[str, str]) -> HostState:
    """What this user may know of the host; what he may not is None.

    Args:
        host: The unit's.
        properties: Of the unit: its control group tells which processes are its own.
    """
    return HostState(
        swap_total=_swap(host),
        journald=_journald(host),
        journal_folder=_folder(host),
        gpu=_gpu(host),
        unit_pids=_pids(host, properties),
    )


def _swap(host: Host) -> str | None:
    try:
        lines = host.read("/proc/meminfo").decode("ascii", "replace").splitlines()
    except OSError:
        return None
    return next((line for line in lines if line.startswith("SwapTotal:")), None)


def _journald(host: Host) -> tuple[UnitFile, ...] | None:
    """The files that systemd-analyze prints, each below a comment with its path."""
    ended = host.run(_CONFIG)
    if not ended.ok:
        return None
    text = ended.stdout.decode("utf-8", "surrogateescape")
    heads = [match for match in _FILE.finditer(text) if match[1].endswith(".conf")]
    ends = [head.start() for head in heads[1:]] + [len(text)]
    files = [UnitFile(head[1], text[head.end() + 1 : end]) for head, end in zip(heads, ends, strict=True)]
    return tuple(replace(file, text=_as_read(host, file)) for file in files)


def _as_read(host: Host, file: UnitFile) -> str:
    """The file itself where it can be read: its lines then have the numbers that an editor shows."""
    try:
        return host.read(file.path).decode("utf-8", "surrogateescape")
    except OSError:
        return file.text


def _folder(host: Host) -> bool | None:
    ended = host.run(("test", "-d", "/var/log/journal"))
    return {0: True, 1: False}.get(-1 if ended.status is None else ended.status)


def _gpu(host: Host) -> tuple[GpuProcess, ...]:
    found = []
    for line in host.run(_GPU, timeout_s=_GPU_S).stdout.decode("utf-8", "replace").splitlines():
        pid, _, rest = line.partition(",")
        if pid.strip().isdecimal():
            found.append(GpuProcess(int(pid), rest.rpartition(",")[0].strip() or "?", line.strip()))
    return tuple(found)


def _pids(host: Host, properties: Mapping[str, str]) -> frozenset[int]:
    """Processes of the unit's control group, those of groups below it included."""
    group = properties.get("ControlGroup", "")
    pids = {properties.get("MainPID", ""), *_members(host, group)}
    return frozenset(int(pid) for pid in pids if pid.isdecimal() and pid != "0")


def _members(host: Host, group: str) -> list[str]:
    if not group.startswith("/") or group == "/":
        return []
    tops = [f"/sys/fs/cgroup{group}", f"/sys/fs/cgroup/systemd{group}", f"/sys/fs/cgroup/unified{group}"]
    script = 'for d; do [ -d "$d" ] && find "$d" -name cgroup.procs -exec cat {} + 2>/dev/null; done; :'
    return host.run(("sh", "-c", script, "sh", *tops)).stdout.decode("ascii", "replace").split()
