"""What somebody else does to a unit, to its host or to Draftmark's own units while a trial runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from draftmark.errors import DraftmarkError, FailedError, RefusedError, UnrestoredError
from draftmark.service.systemd.agent import script
from draftmark.service.systemd.lease import Lease
from draftmark.service.systemd.restore import restore

from .lab_host import LiveUnit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def on_trial(unit: LiveUnit, lease_s: int = 60) -> Lease:
    """Depth 3 runs instead of depth 0."""
    lease = Lease.open(unit.host, unit.name, lease_s=lease_s)
    lease.edit(unit.trial(3))
    assert lease.stop(None, timeout_s=20).ended
    lease.start()
    unit.await_depth(3)
    return lease


def same(unit: LiveUnit) -> tuple[str, str, str]:
    """What must be as it was."""
    found = unit.snapshot()
    return found.files, found.command, found.active


def shell(unit: LiveUnit, text: str) -> None:
    unit.machine.check(["sh", "-ec", text])


def test_of_many_at_the_same_moment_one_holds_it(unit: LiveUnit) -> None:
    before = unit.snapshot()
    leases: list[Lease] = []
    refusals: list[DraftmarkError] = []

    def hold() -> None:
        try:
            leases.append(Lease.open(unit.host, unit.name))
        except DraftmarkError as error:
            refusals.append(error)

    threads = [threading.Thread(target=hold) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(leases) == 1
    assert all(isinstance(each, RefusedError) and f"pid {os.getpid()}" in str(each) for each in refusals)
    leases[0].close()
    assert unit.snapshot() == before


@pytest.mark.parametrize(
    "meddling",
    [
        "systemctl restart {unit}",
        "systemctl daemon-reload",
        "systemctl daemon-reexec",
        "systemctl kill -s KILL {unit}",
        "systemctl stop 'draftmark-*.timer'",
        "systemctl stop 'draftmark-*.timer'; rm /run/systemd/system/draftmark-*; systemctl daemon-reload",
        "rm {dropin}; systemctl daemon-reload",
        "rm -r {dropin_folder}; systemctl daemon-reload; systemctl restart {unit}",
    ],
)
def test_it_is_put_back_all_the_same(unit: LiveUnit, meddling: str) -> None:
    before = same(unit)
    lease = on_trial(unit)
    folder = unit.dropin.rpartition("/")[0]
    shell(unit, meddling.format(unit=unit.name, dropin=unit.dropin, dropin_folder=folder))
    report = lease.restore()
    assert (report.same_command, report.changed, report.missing) == (True, (), ())
    unit.await_depth(0)
    assert same(unit) == before


def test_what_somebody_restarts_before_the_trial_is_not_restarted_again(unit: LiveUnit) -> None:
    lease = Lease.open(unit.host, unit.name)
    shell(unit, f"systemctl restart {unit.name}")
    after = unit.show("InvocationID")
    assert not lease.restore().restarted
    assert unit.show("InvocationID") == after


@pytest.mark.parametrize("where", ["/etc/systemd/system", "/run/systemd/system"])
def test_a_drop_in_of_the_users_from_the_middle_of_a_trial_stays(unit: LiveUnit, where: str) -> None:
    """As `systemctl edit` writes it, for good or with --runtime into the very folder that is ours to remove."""
    lease = on_trial(unit)
    mine = f"{where}/{unit.name}.d/override.conf"
    text = "[Service]\nEnvironment=NEW=1\n"
    unit.machine.write(mine, text)
    shell(unit, "systemctl daemon-reload")
    lease.edit(unit.trial(4))
    report = lease.restore()
    assert "the list of drop-ins" in report.changed
    unit.await_depth(0)
    assert unit.host.read(mine).decode() == text
    assert "NEW=1" in unit.show("Environment")
    assert unit.machine.run(["test", "-e", unit.dropin]).status == 1
    shell(unit, f"rm {mine}; rmdir --ignore-fail-on-non-empty {mine.rpartition('/')[0]}; systemctl daemon-reload")


def test_what_the_user_writes_into_the_trials_own_drop_in_is_put_aside(unit: LiveUnit) -> None:
    lease = on_trial(unit)
    text = unit.trial(3, "# mine\n")
    unit.machine.write(unit.dropin, text)
    report = lease.restore()
    assert [unit.host.read(path).decode() for path in report.saved] == [text]
    unit.await_depth(0)
    shell(unit, f"rm -r {' '.join(report.saved)}; rmdir --ignore-fail-on-non-empty /var/lib/draftmark")


def test_a_unit_that_is_deleted_under_the_trial(unit: LiveUnit) -> None:
    """What runs is left alone, since nothing could start it again; nothing of ours stays."""
    lease = on_trial(unit)
    running = unit.show("InvocationID")
    file = f"/etc/systemd/system/{unit.name}"
    shell(unit, f"mv {file} /tmp/deleted; systemctl daemon-reload")
    with pytest.raises(UnrestoredError, match=r"not-found|cannot be started"):
        lease.restore()
    assert unit.depth() == 3
    assert unit.show("InvocationID") == running
    assert unit.machine.run(["test", "-e", unit.state]).status == 1
    assert unit.machine.run(["test", "-e", unit.dropin]).status == 1
    shell(unit, f"mv /tmp/deleted {file}; systemctl daemon-reload")


def test_a_switch_that_somebody_stopped_is_armed_again_and_works(unit: LiveUnit) -> None:
    before = same(unit)
    lease = on_trial(unit, lease_s=6)
    timer = f"draftmark-{unit.name}.timer"
    shell(unit, f"systemctl stop {timer}")
    unit.machine.until(f"systemctl is-active --quiet {timer}", seconds=30)
    shell(unit, f"systemctl stop {timer}")
    lease.edit(unit.trial(4))
    assert unit.machine.run(["systemctl", "is-active", "--quiet", timer]).status == 0
    lease.abandon()
    unit.await_restored()
    unit.await_depth(0)
    assert same(unit) == before


def test_nothing_is_changed_where_the_switch_cannot_be_armed_again(unit: LiveUnit) -> None:
    lease = on_trial(unit)
    timer = f"/run/systemd/system/draftmark-{unit.name}.timer"
    shell(unit, f"systemctl stop {timer.rpartition('/')[2]}; rm {timer}; mkdir {timer}")
    calls: list[Callable[[], object]] = [
        lambda: lease.edit(unit.trial(4)),
        lambda: lease.stop(None, timeout_s=20),
        lease.start,
    ]
    for call in calls:
        with pytest.raises(FailedError, match="dead man's switch"):
            call()
    assert unit.depth() == 3
    shell(unit, f"rm -r {timer}")
    lease.restore()
    unit.await_depth(0)


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_disk_that_fills_up_under_a_trial_keeps_nothing_from_being_put_back(
    unit: LiveUnit, by_hand: bool
) -> None:
    shell(unit, "mkdir -p /run/draftmark; mount -t tmpfs -o size=400k,mode=755 small /run/draftmark")
    try:
        before = same(unit)
        lease = on_trial(unit, lease_s=6)
        unit.machine.run(["sh", "-c", "cat /dev/zero >/run/draftmark/full"])
        with lease.measuring(), pytest.raises(RefusedError, match="measurement runs"):
            restore(unit.host, unit.name, force=True)
        lease.beat()
        lease.abandon()
        if by_hand:
            assert restore(unit.host, unit.name, force=True).restarted
        unit.await_restored()
        unit.await_depth(0)
        shell(unit, "rm /run/draftmark/full")
        assert same(unit) == before
    finally:
        shell(unit, "umount /run/draftmark; rmdir /run/draftmark")


def test_no_clock_that_can_be_set_is_read() -> None:
    """Leases are of /proc/uptime; the timer's settings are monotonic ones."""
    text = script().decode()
    assert "/proc/uptime" in text
    assert "OnActiveSec=" in text
    for word in ("$(date", "`date", "OnCalendar", "stat -c", "-newer", "find "):
        assert word not in text
