"""Makes the root of a lab: an overlay of this machine's `/`, with a systemd that starts next to nothing.

The same interpreter, checkout and libraries are inside; what is written there is gone with the lab.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .kernel import bind, mount

CHECKOUT = Path(__file__).resolve().parents[2]
USER = "lab"
USER_ID = 4242
TARGET = "lab.target"
SERIAL = "/dev/ttyS0"
UNITS = Path("etc/systemd/system")
# What systemd, as delivered, would pull in at boot. Only these stay; hardware, network and logins are not there.
STARTED = {
    "sysinit.target.wants": ("systemd-journald.service", "systemd-tmpfiles-setup.service"),
    "sockets.target.wants": (
        "dbus.socket",
        "systemd-journald.socket",
        "systemd-journald-dev-log.socket",
        "systemd-coredump.socket",
    ),
    "multi-user.target.wants": (),
    "timers.target.wants": (),
    "local-fs.target.wants": (),
}
TMPFILES = ("systemd.conf", "dbus.conf")
JOURNAL = "[Journal]\nStorage=volatile\nRuntimeMaxUse=64M\nReadKMsg=yes\nAudit=no\n"
LAB_TARGET = """\
[Unit]
Description=The lab is up
Requires=basic.target
Wants=dbus.socket
After=basic.target dbus.socket
AllowIsolate=yes
"""
AGENT = f"""\
[Unit]
Description=Runs what the tests ask for
After=basic.target dbus.socket

[Service]
ExecStart={Path(sys.executable).resolve()} -S -B {Path(__file__).with_name("agent.py")} {SERIAL}
OOMScoreAdjust=-1000
OOMPolicy=continue
MemoryMin=96M
"""
# Users that the fetched packages would have made.
SYSTEM_USERS = ("messagebus", "systemd-coredump", "systemd-journal")


@dataclass(frozen=True, slots=True)
class Plan:
    """What kind of root.

    Attributes:
        own_kernel: Whether commands come over a serial line.
        layer: Unpacked packages to lay over it.
    """

    own_kernel: bool
    layer: Path | None


def overlay(base: Path, plan: Plan) -> Path:
    """Mount the lab's root on a memory disk at `base`, in this mount namespace."""
    mount("tmpfs", base, "tmpfs", 0, "mode=755,size=4g")
    root, upper, work = base / "root", base / "upper", base / "work"
    for folder in (root, upper, work):
        folder.mkdir()
    mount("overlay", root, "overlay", 0, f"lowerdir=/,upperdir={upper},workdir={work}")
    for path in needed():
        if _on_another_disk(path):
            (root / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
            bind(path, root / path.relative_to("/"), read_only=True)
    if plan.layer is not None:
        shutil.copytree(plan.layer, root, symlinks=True, dirs_exist_ok=True)
    _systemd(root, plan)
    _files(root)
    _users(root)
    mount("tmpfs", root / "tmp", "tmpfs", 0, "mode=1777,size=256m")
    for path in needed():
        if path.is_relative_to("/tmp"):  # a checkout there would be hidden by the disk just mounted
            (root / path.relative_to("/")).mkdir(parents=True, exist_ok=True)
            bind(path, root / path.relative_to("/"), read_only=True)
    return root


def needed() -> tuple[Path, ...]:
    """Folders without which Draftmark does not run inside."""
    return (CHECKOUT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())


def _on_another_disk(path: Path) -> bool:
    return path.stat().st_dev != Path("/").stat().st_dev


def _systemd(root: Path, plan: Plan) -> None:
    delivered = next(d for d in (root / "usr/lib/systemd", root / "lib/systemd") if (d / "system").is_dir())
    for folder in (root / UNITS, root / "etc/systemd/system-generators", delivered / "system-generators"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for wants, units in STARTED.items():
        folder = delivered / "system" / wants
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for unit in units:
            if (delivered / "system" / unit).exists():
                (folder / unit).symlink_to(f"../{unit}")
    for unit in ("tmp.mount", "systemd-remount-fs.service", "proc-sys-fs-binfmt_misc.automount"):
        (root / UNITS / unit).symlink_to("/dev/null")
    (root / UNITS / TARGET).write_text(LAB_TARGET)
    (root / UNITS / "default.target").symlink_to(TARGET)
    if plan.own_kernel:
        (root / UNITS / "lab-agent.service").write_text(AGENT)
        (root / UNITS / f"{TARGET}.wants").mkdir()
        (root / UNITS / f"{TARGET}.wants/lab-agent.service").symlink_to("../lab-agent.service")


def _files(root: Path) -> None:
    etc = root / "etc"
    for folder in (root / "usr/lib/tmpfiles.d", etc / "tmpfiles.d"):
        for file in folder.glob("*"):
            if file.name not in TMPFILES:
                file.unlink()
    _write(etc / "systemd/journald.conf.d/lab.conf", JOURNAL)
    _write(etc / "machine-id", uuid.uuid4().hex + "\n")
    _write(etc / "hostname", "lab\n")
    _write(etc / "hosts", "127.0.0.1 localhost lab\n")
    _write(etc / "fstab", "")
    for path in needed():  # an ordinary user must reach the interpreter, even below a closed home
        for folder in (path, *path.parents):
            inside = root / folder.relative_to("/")
            if not inside.stat().st_mode & 0o001:
                inside.chmod(inside.stat().st_mode | 0o011)


def _users(root: Path) -> None:
    known = {line.split(":")[0] for line in (root / "etc/passwd").read_text().splitlines()}
    groups = {line.split(":")[0] for line in (root / "etc/group").read_text().splitlines()}
    for number, name in enumerate(SYSTEM_USERS, start=USER_ID + 1):
        _append(root / "etc/group", f"{name}:x:{number}:\n", unless=name in groups)
        _append(root / "etc/passwd", f"{name}:x:{number}:{number}::/:/usr/sbin/nologin\n", unless=name in known)
    _append(root / "etc/group", f"{USER}:x:{USER_ID}:\n", unless=USER in groups)
    _append(root / "etc/passwd", f"{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/sh\n", unless=USER in known)
    home = root / "home" / USER
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, USER_ID, USER_ID)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # it may be a link out of the overlay's sight
    path.write_text(text)


def _append(path: Path, line: str, *, unless: bool) -> None:
    if not unless:
        with path.open("a") as file:
            file.write(line)


def folders(root: Path, names: Iterable[str]) -> None:
    """Make them, below `root`."""
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)
