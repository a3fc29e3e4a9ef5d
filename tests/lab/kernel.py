"""System calls that Python 3.11 has no names for."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID = 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x20000000
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
DETACH = 2
PARENT_DEATH_SIGNAL = 1
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _text(value: str | Path | None) -> bytes | None:
    return None if value is None else os.fsencode(value)


def unshare(flags: int) -> None:
    """New namespaces for this process; with NEWPID, for its next child."""
    _checked(_libc.unshare(flags), "unshare")


def mount(
    source: str | Path, target: Path, kind: str | None = None, flags: int = 0, data: str | None = None
) -> None:
    """As mount(2)."""
    status = _libc.mount(_text(source), _text(target), _text(kind), ctypes.c_ulong(flags), _text(data))
    _checked(status, f"mount of {source} on {target}")


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Show `source` at `target` as well."""
    mount(source, target, None, BIND | RECURSIVE)
    if read_only:
        mount("none", target, None, BIND | REMOUNT | READ_ONLY)


def pivot(root: Path) -> None:
    """Make the mount point `root` this process's `/`, and let go of the old one."""
    os.chdir(root)
    _checked(_libc.syscall(PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", DETACH), "umount of the old root")
    os.chdir("/")


def enter_mounts(namespace: int) -> None:
    """Move this process into the mount namespace of an open /proc/PID/ns/mnt; its `/` and its folder are there."""
    _checked(_libc.setns(namespace, NEWNS), "setns")


def unmount(target: Path) -> None:
    """Let go of it and of all that is mounted below, also where it is in use."""
    _checked(_libc.umount2(_text(target), DETACH), f"umount of {target}")


def die_with_parent(signal: int) -> None:
    """The kernel sends `signal` to this process when its parent ends, however it ends."""
    _checked(_libc.prctl(PARENT_DEATH_SIGNAL, signal, 0, 0, 0), "prctl")


def host_name(name: str) -> None:
    """Of this process's UTS namespace."""
    _checked(_libc.sethostname(name.encode(), len(name)), "sethostname")
