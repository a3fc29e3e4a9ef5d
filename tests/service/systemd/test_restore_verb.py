"""`draftmark restore` as it is typed, on the host of a real unit."""

from __future__ import annotations

import json
import os
import sys

import pytest
from tests.lab.machine import Ended

from draftmark.service.systemd.lease import Lease

from .lab_host import LiveUnit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def typed(unit: LiveUnit, *words: str) -> Ended:
    command = [sys.executable, "-m", "draftmark", "restore", f"unit:{unit.name}", *words]
    return unit.machine.run(["env", "COLUMNS=200", *command])


def test_with_nothing_to_undo_it_says_how_the_unit_is(unit: LiveUnit) -> None:
    ended = typed(unit)
    assert (ended.status, ended.out) == (0, f"{unit.name}: nothing of draftmark's is there; it is active\n")
    unit.machine.check(["systemctl", "stop", unit.name])
    found = json.loads(typed(unit, "--json").out)
    assert (found["nothing"], found["active"]) == (True, "inactive")


@pytest.mark.parametrize("words", [(), ("--force",)])
def test_under_a_measurement_it_refuses_and_says_what_to_type(unit: LiveUnit, words: tuple[str, ...]) -> None:
    lease = Lease.open(unit.host, unit.name)
    with lease.measuring():
        ended = typed(unit, *words)
        assert ended.status == 30
        assert f"a measurement runs on {unit.name}" in ended.err
        assert f"`kill {os.getpid()}`" in " ".join(ended.err.split())
    assert typed(unit, "--force").status == 0


def test_a_unit_that_was_deleted_is_freed_of_what_is_ours(unit: LiveUnit) -> None:
    lease = Lease.open(unit.host, unit.name)
    lease.edit(unit.trial(3))
    file = f"/etc/systemd/system/{unit.name}"
    unit.machine.check(
        ["sh", "-ec", f"mv {file} /tmp/deleted; mv {file}.d /tmp/deleted.d; systemctl daemon-reload"]
    )
    ended = typed(unit, "--force")
    unit.machine.check(
        ["sh", "-ec", f"mv /tmp/deleted {file}; mv /tmp/deleted.d {file}.d; systemctl daemon-reload"]
    )
    assert (ended.status, "not restarted" in ended.out) == (0, True)
    for left in (unit.dropin, unit.state):
        assert unit.machine.run(["test", "-e", left]).status == 1
    assert typed(unit).status == 0
