"""What is done to a unit, until its end has come. Waits for states, never for a time: a lab may be slow."""

from __future__ import annotations

import sys
from pathlib import Path

from .cgroups import Version
from .machine import Machine, Mode

COREDUMP = (
    "for d in /lib/systemd /usr/lib/systemd; do [ -x $d/systemd-coredump ] &&"
    ' sysctl -q -w "kernel.core_pattern=|$d/systemd-coredump %P %u %g %s %t %c %h" && exit; done; exit 1'
)


def ended(machine: Machine, unit: str) -> None:
    machine.until(f"systemctl show -P ActiveState {unit} | grep -qxE 'failed|inactive'")


def logged(machine: Machine, unit: str, pattern: str) -> None:
    machine.until(f"journalctl -q -u {unit} -o cat | grep -qE '{pattern}'")


def start(machine: Machine, unit: str) -> None:
    """Start it; whether that succeeds is the unit's affair."""
    machine.run(["systemctl", "start", unit])


def starts(machine: Machine, unit: str) -> None:
    start(machine, unit)
    ended(machine, unit)


def stop(machine: Machine, unit: str) -> None:
    start(machine, unit)
    machine.run(["systemctl", "stop", unit])


def restart(machine: Machine, unit: str) -> None:
    start(machine, unit)
    machine.check(["systemctl", "restart", unit])


def kill_main(machine: Machine, unit: str) -> None:
    start(machine, unit)
    pid = machine.show(unit)["MainPID"]
    assert int(pid) > 1
    machine.check(["kill", "-9", pid])


def kill(machine: Machine, unit: str) -> None:
    kill_main(machine, unit)
    ended(machine, unit)


def kill_and_return(machine: Machine, unit: str) -> None:
    kill_main(machine, unit)
    machine.until(
        f'test "$(systemctl show -P NRestarts {unit}) $(systemctl show -P ActiveState {unit})" = "1 active"'
    )


def systemctl_kill(machine: Machine, unit: str) -> None:
    start(machine, unit)
    machine.check(["systemctl", "kill", "-s", "KILL", unit])
    ended(machine, unit)


def lose_worker(machine: Machine, unit: str) -> None:
    """On cgroup v1, and with OOMPolicy=continue, the unit stays; else it ends."""
    start(machine, unit)
    machine.until(
        f"systemctl show -P ActiveState {unit} | grep -qxE 'failed|inactive'"
        f" || journalctl -q -u {unit} -o cat | grep -q 'serving on without it'"
    )
    if machine.cgroups is Version.V2 and "continue" not in machine.show(unit)["OOMPolicy"]:
        ended(machine, unit)


def dump(machine: Machine, unit: str) -> None:
    if machine.mode is Mode.OWN:
        machine.check(["sh", "-c", COREDUMP])
    starts(machine, unit)
    if machine.mode is Mode.OWN:
        machine.until("journalctl -q -o cat SYSLOG_IDENTIFIER=systemd-coredump | grep -q 'dumped core'")


def stay(machine: Machine, unit: str) -> None:
    machine.check(["systemctl", "start", unit])


def nothing(machine: Machine, unit: str) -> None:
    """There is no such unit."""


def oomd(machine: Machine, unit: str) -> None:
    """What systemd-oomd does to a unit, by the same interface: it marks the group, then kills what is in it.

    The daemon itself cannot run here: it needs cgroup v2 together with pressure figures, which this kernel lacks.
    """
    start(machine, unit)
    shown = machine.show(unit)
    group = "/sys/fs/cgroup" + shown["ControlGroup"]
    for name in ("ooms", "kill"):  # how often it acted, and on how many processes
        machine.check(
            [
                Path(sys.executable).resolve(),
                "-S",
                "-c",
                f"import os; os.setxattr({group!r}, 'user.oomd_{name}', b'1')",
            ]
        )
    machine.check(["kill", "-9", shown["MainPID"]])
    ended(machine, unit)


def crash_loop(machine: Machine, unit: str) -> None:
    start(machine, unit)
    logged(machine, unit, "Start request repeated too quickly")
    ended(machine, unit)
