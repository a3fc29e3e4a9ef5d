"""What a unit's processes really run, wrappers and shells resolved: the kernel's own word."""

from __future__ import annotations

import os

from draftmark.ports import Host

_END = b"\x01end\x00"
_SCRIPT = r"""
for root in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    [ -d "$root$1" ] || continue
    find "$root$1" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r pid; do
        cat "/proc/$pid/cmdline" 2>/dev/null && printf '\001end\000'
    done
    break
done
"""


def command_lines(host: Host, control_group: str) -> list[tuple[str, ...]]:
    """Of every process in a cgroup and below; empty where they cannot be read.

    Args:
        host: Where it is.
        control_group: ControlGroup= as systemd tells it.
    """
    if not control_group.startswith("/"):
        return []
    ended = host.run(("sh", "-c", _SCRIPT, "sh", control_group))
    lines = ended.stdout.split(_END)[:-1] if ended.ok else []
    return [tuple(os.fsdecode(word) for word in line.removesuffix(b"\0").split(b"\0")) for line in lines if line]
