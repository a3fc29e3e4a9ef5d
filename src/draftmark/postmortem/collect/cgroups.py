"""What the kernel counted in the unit's control group and in those above it. They vanish when a unit stops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from draftmark.postmortem.collect.gathering import Gathering
from draftmark.postmortem.collect.units import Unit

_ROOT = "/sys/fs/cgroup"
_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class _Version:
    """Names of one version of control groups.

    Attributes:
        mount: Where the memory hierarchy hangs below the root.
        own: Files of events that concern the unit.
        local: Of those, what a group above counts for itself: `memory.events` there counts other services too.
        limits: Limits among `figures`.
        figures: Files that hold one number.
    """

    mount: str
    own: tuple[str, ...]
    local: tuple[str, ...]
    limits: tuple[str, ...]
    figures: tuple[str, ...]


_V2 = _Version(
    "",
    ("memory.events", "memory.events.local", "pids.events"),
    ("memory.events.local",),
    ("memory.max", "memory.high", "memory.swap.max"),
    (
        "memory.max",
        "memory.high",
        "memory.current",
        "memory.peak",
        "memory.swap.max",
        "memory.swap.current",
        "pids.max",
    ),
)
_V1 = _Version(
    "/memory",
    ("memory.oom_control",),
    ("memory.oom_control",),
    ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    (
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.usage_in_bytes",
        "memory.max_usage_in_bytes",
        "memory.failcnt",
    ),
)


def collect_cgroups(gathering: Gathering, unit: Unit) -> None:
    """Keep events and limits of the unit's group and of its slices."""
    path = unit.properties.get("ControlGroup", "")
    if path:
        collect_group(gathering, path, unit.name)
    else:
        above = slice_path(unit.properties.get("Slice", ""))
        gathering.miss(
            "cgroup memory events",
            f"{unit.name} does not run, and its control group went with it; the journal and kernel log are left",
            f"cat {_ROOT}{above}/{unit.name}/memory.events   # while it runs",
        )
        collect_group(gathering, above, "")


def collect_group(gathering: Gathering, path: str, name: str) -> None:
    """Keep events and limits of a control group, and of those above it what is theirs and tells something.

    Args:
        gathering: What comes together.
        path: Below the root of the hierarchy; `` for none.
        name: What to call the group itself; `` when it is only what is above that matters.
    """
    for group in _upwards(path):
        own = bool(name) and group == path
        called = name if own else group
        for version in (_V2, _V1):
            limits = _values(gathering, f"{_ROOT}{version.mount}{group}", version.figures)
            events = _events(gathering, f"{_ROOT}{version.mount}{group}", version.own if own else version.local)
            limited = any(file in version.limits and _is_limit(value) for file, value in limits.items())
            for file, text in events.items():
                if own or limited or _counted(text):
                    gathering.add(f"cgroup {file} of {called}", text.encode())
            if limits and (own or limited):
                lines = "".join(f"{file} {value}\n" for file, value in limits.items())
                gathering.add(f"cgroup limits of {called}", lines.encode())
            if limits or events:
                break


def slice_path(name: str) -> str:
    """Where a slice lies: `a-b.slice` is below `a.slice`."""
    stem = name.removesuffix(".slice")
    if not name or stem in ("", "-"):
        return ""
    parts = stem.split("-")
    return "".join("/" + "-".join(parts[: count + 1]) + ".slice" for count in range(len(parts)))


def _upwards(path: str) -> Iterator[str]:
    while path.strip("/"):
        yield path
        path = path.rpartition("/")[0]


def _events(gathering: Gathering, folder: str, files: Sequence[str]) -> dict[str, str]:
    return {file: text for file, text in _values(gathering, folder, files).items() if text}


def _values(gathering: Gathering, folder: str, files: Sequence[str]) -> dict[str, str]:
    """Contents of those files that this version and this group have."""
    values = {}
    for file in files:
        with suppress(OSError):
            values[file] = gathering.host.read(f"{folder}/{file}", _LIMIT).decode("utf-8", "replace").strip()
    return values


def _is_limit(value: str) -> bool:
    """Whether it is less than all: version 1 says 2^63 in pages for no limit."""
    return value.isdecimal() and int(value) < 1 << 62


def _counted(text: str) -> bool:
    """Whether a counter of kills is above zero."""
    return re.search(r"^(?:oom|oom_kill|oom_group_kill) [1-9]", text, re.MULTILINE) is not None
