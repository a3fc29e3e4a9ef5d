"""The script on the host is killed at its Nth command, for commands spread over all that it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import pytest
from tests.lab.machine import Ended

from draftmark.service.systemd.agent import script
from draftmark.service.systemd.lease import Lease
from draftmark.service.systemd.restore import restore

from .lab_host import LiveUnit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN = "0123456789abcdef0123456789abcdef"
# As bash, which can be told to count. What the script was when `open` came is what is run, from a file of ours.
COUNTED = r"""
n=0
trap 'n=$((n + 1)); [ "$n" -ne "$LAST" ] || kill -s KILL $$' DEBUG
SCRIPT=$(cat /tmp/script)
[ "$LAST" -gt 0 ] || SCRIPT=${SCRIPT%'main "$@"'}'main "$@"; printf "%s" "$n" >/tmp/count'
eval "$SCRIPT"
"""
PARTS = (0.1, 0.4, 0.7, 0.95)


@dataclass(frozen=True)
class Killed:
    """The script, run up to one of its commands."""

    unit: LiveUnit

    def run(self, last: int, name: str, *words: str, data: str = "") -> Ended:
        self.unit.machine.write("/tmp/script", script().decode())
        command = ["env", f"LAST={last}", "bash", "--posix", "-T", "-c", COUNTED, name, *words]
        return self.unit.machine.run(command, data=data)

    def here(self, last: int, command: str, *words: str, data: str = "") -> Ended:
        if data:
            words = (sha256(data.encode()).hexdigest(), *words)
        return self.run(last, f"{self.unit.state}/agent", command, TOKEN, *words, data=data)

    def open(self, last: int = -1) -> Ended:
        return self.run(last, "draftmark", "open", self.unit.name, "--system", "60", TOKEN, "{}")

    def count(self) -> int:
        """Commands of the last run that was not cut short."""
        return int(self.unit.machine.check(["cat", "/tmp/count"]))


def on_trial(unit: LiveUnit) -> None:
    killed = Killed(unit)
    assert killed.open().status == 0
    assert killed.here(-1, "edit", data=unit.trial(3)).status == 0
    assert killed.here(-1, "stop", "0", "plain", "20").status == 0
    assert killed.here(-1, "start").status == 0
    unit.await_depth(3)


def nothing(_: LiveUnit) -> None:
    pass


def opened(unit: LiveUnit) -> None:
    assert Killed(unit).open().status == 0


@pytest.mark.parametrize(
    ("prepared", "command"),
    [
        (nothing, "open"),
        (opened, "edit"),
        (on_trial, "edit"),
        (on_trial, "stop 0 plain 20"),
        (on_trial, "keep"),
        (on_trial, "restore 0"),
    ],
)
def test_it_is_put_back_whenever_it_was_killed(
    unit: LiveUnit, prepared: Callable[[LiveUnit], None], command: str
) -> None:
    before = unit.snapshot()
    killed = Killed(unit)

    def act(last: int) -> Ended:
        if command == "open":
            return killed.open(last)
        name, *words = command.split()
        return killed.here(last, name, *words, data=unit.trial(3) if name in ("edit", "keep") else "")

    prepared(unit)
    assert act(0).status == 0
    restore(unit.host, unit.name, force=True)
    total = killed.count()
    assert total > 20
    for part in PARTS:
        unit.await_depth(0)
        prepared(unit)
        last = round(total * part)
        assert act(last).status in (-9, 0), last  # how often it looks whether the unit is up differs
        restore(unit.host, unit.name, force=True)
        after = unit.snapshot()
        assert (after.files, after.command, after.active) == (before.files, before.command, before.active), last


def test_a_lease_finds_what_was_left(unit: LiveUnit) -> None:
    """By a run whose script was killed while it took hold: the next one needs no restore first."""
    before = unit.snapshot()
    assert Killed(unit).open(60).status == -9
    Lease.open(unit.host, unit.name).close()
    assert unit.snapshot() == before


def test_what_was_kept_before_survives_the_restore_of_a_run_that_had_changed_nothing(unit: LiveUnit) -> None:
    unit.machine.write(unit.kept, unit.trial(0))
    unit.machine.check(["systemctl", "daemon-reload"])
    before = unit.snapshot()
    killed = Killed(unit)
    killed.open(0)
    restore(unit.host, unit.name, force=True)
    assert killed.open(round(killed.count() * 0.6)).status == -9
    assert unit.machine.run(["sh", "-c", f"test -e /run/draftmark/.new.*.{unit.name}"]).status == 0
    assert not restore(unit.host, unit.name).undone_keep
    assert unit.snapshot() == before
