"""The lab itself: it boots, runs commands as they are, and leaves nothing behind, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab import cgroups
from tests.lab.machine import Machine, Mode
from tests.lab.packages import UnavailableError
from tests.lab.root import CHECKOUT, USER, USER_ID

BOOT_AND_WAIT = """
import sys, time
from tests.lab.machine import Machine, Mode
machine = Machine.boot(Mode.SHARED)
machine.check(["systemd-run", "--unit=left", "sleep", "infinity"])
print(machine.first_process, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    try:
        booted = Machine.boot(Mode.SHARED)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    yield booted
    booted.close()


def test_systemd_is_its_first_process(machine: Machine) -> None:
    assert machine.check(["cat", "/proc/1/comm"]) == "systemd\n"
    assert machine.run(["systemctl", "is-system-running"]).out == "running\n"


def test_arguments_input_and_exit_status_are_kept(machine: Machine) -> None:
    ended = machine.run(["sh", "-c", 'cat; printf "%s|" "$@"; exit 7', "x", "a b", "$HOME", "'"], data="ä\n")
    assert (ended.status, ended.out) == (7, "ä\na b|$HOME|'|")


def test_the_ordinary_user_is_ordinary_and_reaches_draftmark(machine: Machine) -> None:
    assert machine.check(["id", "-u"], user=USER) == f"{USER_ID}\n"
    assert machine.run(["cat", "/dev/kmsg"], user=USER).status != 0
    assert machine.check([Path(sys.prefix) / "bin/draftmark", "--version"], user=USER).startswith("draftmark ")


def test_writes_stay_inside(machine: Machine) -> None:
    path = Path("/usr/local/written-in-the-lab")
    machine.write(str(path), "x")
    assert machine.check(["cat", path]) == "x"
    assert not path.exists()


def test_it_ends_when_closed(machine: Machine) -> None:
    other = Machine.boot(Mode.SHARED)
    assert _lives(other.first_process)
    other.close()
    other.close()
    assert not _lives(other.first_process)


@pytest.mark.parametrize("victim", ["tests", "holder"])
def test_it_ends_with_whoever_is_killed(machine: Machine, victim: str) -> None:
    tests = subprocess.Popen([sys.executable, "-c", BOOT_AND_WAIT], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    first = int(tests.stdout.readline())
    holder = int(Path(f"/proc/{first}/status").read_text().split("PPid:")[1].split()[0])
    inside = Path(f"/proc/{first}/ns/pid").readlink()
    os.kill(tests.pid if victim == "tests" else holder, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _of_namespace(inside) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _of_namespace(inside) == []
    tests.kill()
    tests.wait()
    tests.stdout.close()
    cgroups.remove_stale()  # as the next boot does
    while _groups(holder) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _groups(holder) == []


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _of_namespace(namespace: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "ns/pid").readlink() == namespace:
                found.append(entry.name)
        except OSError:
            continue
    return found


def _groups(holder: int) -> list[Path]:
    """Its groups; other labs' come and go meanwhile."""
    while True:
        try:
            return [g for family in cgroups.TOP.glob(f"**/{cgroups.FAMILY}") for g in family.glob(f"{holder}-*")]
        except FileNotFoundError:
            continue
