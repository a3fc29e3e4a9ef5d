"""What a lab needs and this machine lacks: fetched with apt, unpacked into the user's cache, never installed."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

WANTED = ("user-mode-linux", "systemd-coredump")
USUALLY_THERE = {"systemd": "/lib/systemd/systemd", "dbus": "/usr/bin/dbus-daemon"}
APT_SECONDS = 180


class UnavailableError(Exception):
    """A lab cannot be had here; the text is the reason for skipping."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Unpacked packages.

    Attributes:
        files: Laid over the lab's root.
        kernel: The kernel that runs as a process.
    """

    files: Path
    kernel: Path


def cache() -> Path:
    """Where packages are kept between sessions."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "draftmark-lab"


def layer() -> Layer:
    """The packages, fetched if this is the first time.

    Raises:
        UnavailableError: They cannot be had here.
    """
    if platform.machine() != "x86_64" or shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UnavailableError("the kernel that runs as a process is a Debian package for amd64")
    if os.geteuid() != 0:
        raise UnavailableError("apt fetches packages for root only")
    done = cache() / "layer"
    found = Layer(done / "root", done / "linux")
    if found.kernel.exists():
        return found
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.kernel.exists():
            _unpack(_download(cache() / "archives"), cache() / "layer.part")
            shutil.rmtree(done, ignore_errors=True)
            (cache() / "layer.part").rename(done)
            shutil.rmtree(cache() / "archives")
    return found


def _apt(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=60", "-o", "APT::Sandbox::User=root", *arguments]
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=APT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"apt-get {arguments[-1]} took more than {APT_SECONDS} s") from None


def _download(archives: Path) -> list[Path]:
    shutil.rmtree(archives, ignore_errors=True)
    (archives / "partial").mkdir(parents=True)
    wanted = [*WANTED, *(name for name, program in USUALLY_THERE.items() if not Path(program).exists())]
    options = [
        "-y",
        "--download-only",
        "--reinstall",
        "--no-install-recommends",
        "-o",
        f"Dir::Cache::archives={archives}",
    ]
    ended = _apt(*options, "install", *wanted)
    if ended.returncode != 0:  # no package lists yet, or old ones
        _apt("update", "-qq")
        ended = _apt(*options, "install", *wanted)
    if ended.returncode != 0:
        last = (ended.stdout.strip() or "no output").splitlines()[-1]
        raise UnavailableError(f"apt-get could not fetch {', '.join(wanted)}: {last}")
    return sorted(archives.glob("*.deb"))


def _unpack(packages: list[Path], target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    root = target / "root"
    root.mkdir(parents=True)
    for package in packages:
        subprocess.run(["dpkg", "-x", package, root], check=True)
    for name in ("bin", "sbin", "lib", "lib64"):  # links in a root of today; in older packages folders
        if (root / name).is_dir():
            shutil.copytree(root / name, root / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / name)
    for name in ("lib/uml", "share/doc", "share/man", "share/lintian"):
        shutil.rmtree(root / "usr" / name, ignore_errors=True)
    (root / "usr/bin/linux.uml").rename(target / "linux")
