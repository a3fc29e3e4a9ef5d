"""The control groups of a lab that shares this machine's kernel: one of its own in every hierarchy."""

from __future__ import annotations

import contextlib
import os
import time
from enum import StrEnum
from pathlib import Path

from .kernel import NEWCGROUP, mount, unshare
from .packages import UnavailableError

TOP = Path("/sys/fs/cgroup")
FAMILY = "draftmark-lab"
PASSED_ON = ("cpu", "io", "memory", "pids")


class Version(StrEnum):
    """Of control groups. With `V1`, systemd does not notice the kernel's OOM kills."""

    V1 = "v1"
    V2 = "v2"


def version() -> Version:
    """This machine's; a hybrid is v1, since its controllers are."""
    return Version.V2 if (TOP / "cgroup.controllers").exists() else Version.V1


def plan(name: str) -> dict[Path, str]:
    """Folder of the lab in each hierarchy → the hierarchy's controllers (`` for cgroup v2).

    Below the caller's own groups, or beside them, so that no limit from further up is escaped.

    Raises:
        UnavailableError: The memory controller cannot be had.
    """
    if version() is Version.V2:
        return {_passes_memory_on() / FAMILY / name: ""}
    if not (TOP / "memory").is_dir():
        raise UnavailableError("this machine has no cgroup memory controller under /sys/fs/cgroup")
    found = {}
    for controllers, path in _own().items():
        mounted = TOP / _folder(controllers)
        if mounted.is_dir():
            own = mounted / path.lstrip("/")
            found[(own if own.is_dir() else mounted) / FAMILY / name] = controllers
    return found


def _own() -> dict[str, str]:
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return {controllers: path for _, controllers, path in lines}


def _passes_memory_on() -> Path:
    """The nearest group upwards whose children have the memory controller: with cgroup v2 one without processes."""
    own = TOP / _own()[""].lstrip("/")
    for group in (own, *own.parents):
        switches = group / "cgroup.subtree_control"
        if switches.exists() and "memory" in switches.read_text().split():
            return group
    raise UnavailableError("no control group here passes the memory controller on")


def _folder(controllers: str) -> str:
    return controllers.removeprefix("name=") if controllers else "unified"


def enter(groups: dict[Path, str]) -> None:
    """Move this process into the lab's groups and make them the only ones it sees."""
    for group, controllers in groups.items():
        for folder in (group.parent, group):
            folder.mkdir(exist_ok=True)
            if controllers == "cpuset":  # empty, and unusable, until it is set
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (folder / file).write_text((folder.parent / file).read_text())
        if version() is Version.V2:
            for controller in PASSED_ON:
                with contextlib.suppress(OSError):  # one that the family does not have
                    (group.parent / "cgroup.subtree_control").write_text(f"+{controller}")
        (group / "cgroup.procs").write_text("0")
    unshare(NEWCGROUP)


def show(groups: dict[Path, str], root: Path) -> None:
    """Mount the hierarchies in the lab's root."""
    top = root / "sys/fs/cgroup"
    if version() is Version.V2:
        mount("cgroup2", top, "cgroup2")
        return
    mount("tmpfs", top, "tmpfs", 0, "mode=755")
    for controllers in groups.values():
        target = top / _folder(controllers)
        target.mkdir()
        named = f"none,{controllers}" if "=" in controllers else controllers
        mount("cgroup", target, "cgroup" if controllers else "cgroup2", 0, named or None)


def remove(groups: dict[Path, str]) -> None:
    """Remove the lab's groups; a process that was killed leaves its group a moment later."""
    for group in groups:
        deadline = time.monotonic() + 2
        while group.is_dir() and time.monotonic() < deadline:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            time.sleep(0.01)
        with contextlib.suppress(OSError):
            group.parent.rmdir()


def remove_stale() -> None:
    """Remove what labs left whose holder was killed: their names begin with its process id."""
    for top, names, _ in os.walk(TOP):  # groups come and go meanwhile
        if FAMILY not in names:
            continue
        names.remove(FAMILY)
        for group in next(os.walk(Path(top, FAMILY)), ("", [], []))[1]:
            if not _lives(group.partition("-")[0]):
                remove({Path(top, FAMILY, group): ""})


def _lives(pid: str) -> bool:
    try:
        state = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
