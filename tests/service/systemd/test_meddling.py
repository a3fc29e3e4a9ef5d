"""What somebody else does to a unit, to its host or to Draftmark's own units while a trial runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmark.errors import DraftmarkError, FailedError, RefusedError, UnrestoredError
from draftmark.model import Hand, StopOutcome
from draftmark.service.host import SystemClock
from draftmark.service.systemd.agent import Code, call_in_place, script
from draftmark.service.systemd.discover import discover
from draftmark.service.systemd.lease import Lease
from draftmark.service.systemd.restore import restore
from draftmark.service.systemd.supervisor import SystemdSupervisor, Terms

from .lab_host import SERVER, LiveUnit

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
    assert report.added == (mine,)
    unit.await_depth(0)
    assert unit.host.read(mine).decode() == text
    assert "NEW=1" in unit.show("Environment")
    assert unit.machine.run(["test", "-e", unit.dropin]).status == 1
    shell(unit, f"rm {mine}; rmdir --ignore-fail-on-non-empty {mine.rpartition('/')[0]}; systemctl daemon-reload")


CHANGES = [
    ("echo '[Service]' >'{etc}.d/20 new.conf'", "{etc}.d/20 new.conf is new"),
    ("echo CPUWeight=7 >>'{etc}.d/20 new.conf'", "{etc}.d/20 new.conf is new"),
    ("rm '{etc}.d/20 new.conf'", ""),
    ("echo CPUWeight=7 >>'{etc}.d/10 mine.conf'", "{etc}.d/10 mine.conf was changed"),
    ("cp /tmp/mine.conf '{etc}.d/10 mine.conf'", ""),
    ("ln -sf /dev/null '{etc}.d/10 mine.conf'", "{etc}.d/10 mine.conf was changed"),
    ("rm '{etc}.d/10 mine.conf'; systemctl daemon-reload", "{etc}.d/10 mine.conf is gone"),
    ("cp /tmp/mine.conf '{etc}.d/10 mine.conf'; ln -s /dev/null '{run}/{unit}.d/10 mine.conf'", ""),
    ("sed -i s/^ExecStart=/ExecStart=-/ {etc}", "{etc} was changed"),
    ("sed -i s/^ExecStart=-/ExecStart=/ {etc}; systemctl daemon-reload; touch {etc} '{etc}.d/10 mine.conf'", ""),
    ("systemctl set-property --runtime {unit} CPUWeight=7", "{run}.control/{unit}.d/50-CPUWeight.conf is new"),
    ("rm -r {run}.control/{unit}.d; echo A=2 >/tmp/llm.env", "/tmp/llm.env was changed"),
    ("echo A=1 >/tmp/llm.env; echo A=2 >/tmp/none-yet.env", "/tmp/none-yet.env is new"),
    ("rm /tmp/none-yet.env; systemctl enable {unit}; systemctl disable {unit}", ""),
    ("echo 1 >/tmp/other.env; echo '[Unit]' >'{etc}.d/zz-draftmark-watch.conf'", ""),
]
"""What somebody does, one after the other, and what is told of it then."""


def test_what_changes_the_service_and_what_does_not(unit: LiveUnit) -> None:
    """Also what systemd has not been told to read: Draftmark's own edit does that."""
    names = {"unit": unit.name, "etc": f"/etc/systemd/system/{unit.name}", "run": "/run/systemd/system"}
    install = "[Install]\\nWantedBy=multi-user.target\\n# /tmp/other.env\\n"
    shell(unit, f"echo A=1 >/tmp/llm.env; cp '{names['etc']}.d/10 mine.conf' /tmp/mine.conf")
    shell(unit, f"printf '{install}' >>{names['etc']}; systemctl daemon-reload")
    lease = Lease.open(unit.host, unit.name, files=("/tmp/llm.env", "/tmp/none-yet.env"))
    for meddling, told in CHANGES:
        shell(unit, meddling.format(**names))
        lease.edit(unit.trial(4))
        assert lease.compare() == ((told.format(**names),) if told else ()), meddling
    shell(unit, f"echo B=1 >>'{names['etc']}.d/10 mine.conf'")
    report = lease.restore()
    assert report.changed == (f"{names['etc']}.d/10 mine.conf",)
    assert lease.altered == (f"{names['etc']}.d/10 mine.conf was changed",)
    shell(unit, "rm -f /tmp/*.env /tmp/mine.conf")


def supervised(unit: LiveUnit, settings: dict[str, str] | None = None) -> SystemdSupervisor:
    found = discover(unit.host, unit.name, is_server=lambda words: str(SERVER) in words, read_as=unit.host)
    terms = Terms(
        settings=settings or {},
        stop_timeout_s=20,
        port=None,
        header=("trial",),
        undo="draftmark restore",
        keep_header=lambda _: (),
    )
    return SystemdSupervisor(host=unit.host, unit=found, terms=terms, clock=SystemClock(), same_host=False)


def of_depth(service: SystemdSupervisor, depth: int) -> tuple[str, ...]:
    words = list(service.original)
    words[words.index("--depth") + 1] = str(depth)
    return tuple(words)


@pytest.mark.parametrize("on_trial", [False, True])
def test_a_service_that_somebody_stops_stays_stopped(unit: LiveUnit, tmp_path: Path, on_trial: bool) -> None:
    before = same(unit)
    service = supervised(unit)
    assert service.if_left == ""
    with service:
        assert f"{unit.name} is not put back" in service.if_left
        assert "draftmark restore" in service.if_left
        assert service.heed() is None
        if on_trial:
            service.stop()
            assert service.heed() is None  # that was us
            service.start(of_depth(service, 3), tmp_path / "server.log")
            unit.await_depth(3)
            assert service.heed() is None
        shell(unit, f"systemctl stop {unit.name}")
        seen = service.heed()
        assert seen is not None
        assert seen.hand is Hand.STOPPED
        assert f"Stopping {unit.name}" in seen.evidence
        assert service.heed() is seen
        assert not service.restore()
        assert service.if_left == ""
    assert service.restored is not None
    assert (service.restored.left, service.restored.active, service.restored.restarted) == (True, "inactive", False)
    assert same(unit) == (*before[:2], "inactive")


def test_a_slow_stop_by_somebody_is_waited_for_and_not_taken_for_ours(
    make_unit: Callable[..., LiveUnit],
) -> None:
    unit = make_unit(settings="ExecStop=/bin/sleep 2")
    with supervised(unit) as service:
        shell(unit, f"systemctl stop --no-block {unit.name}")
        assert service.stop().outcome is StopOutcome.ALREADY_DEAD
        seen = service.heed()
        assert seen is not None
        assert seen.hand is Hand.STOPPED
        assert not service.restore()
    assert unit.show("ActiveState") == "inactive"


def test_a_service_that_somebody_stopped_and_started_again_is_put_back_as_ever(
    unit: LiveUnit, tmp_path: Path
) -> None:
    before = same(unit)
    with supervised(unit) as service:
        service.stop()
        service.start(of_depth(service, 3), tmp_path / "server.log")
        unit.await_depth(3)
        shell(unit, f"systemctl stop {unit.name}")
        assert service.heed() is not None
        shell(unit, f"systemctl start {unit.name}")
        unit.await_depth(3)
        assert service.restore()
    unit.await_depth(0)
    assert same(unit) == before


def test_a_stop_by_somebody_outlives_draftmark(unit: LiveUnit) -> None:
    """The switch of the host puts the files back, and leaves it stopped too."""
    lease = on_trial(unit, lease_s=6)
    shell(unit, f"systemctl stop {unit.name}")
    lease.leave()
    lease.abandon()
    unit.await_restored()
    assert unit.show("ActiveState") == "inactive"
    assert unit.machine.run(["test", "-e", unit.dropin]).status == 1


def test_a_restart_by_somebody_is_told_from_a_death(unit: LiveUnit, tmp_path: Path) -> None:
    before = same(unit)
    name = unit.name
    with supervised(unit) as service:
        service.stop()
        for meddling, hand in (
            (f"systemctl restart {name}", Hand.RESTARTED),
            (f"systemctl stop {name}; systemctl start {name}", Hand.RESTARTED),
            ("systemctl daemon-reload; systemctl daemon-reexec", None),
            (f"systemctl kill -s KILL {name}; sleep .3; systemctl start {name}", None),
            (f"systemctl kill {name}; sleep .3", None),
        ):
            if unit.depth() is None:
                service.start(of_depth(service, 3), tmp_path / "server.log")
            unit.await_depth(3)
            shell(unit, meddling)
            seen = service.heed()
            assert (seen and seen.hand) is hand, meddling
            assert service.heed() is None
        assert service.restore()
    unit.await_depth(0)
    assert same(unit) == before


def test_a_service_that_somebody_starts_between_two_trials(unit: LiveUnit) -> None:
    with supervised(unit) as service:
        service.stop()
        shell(unit, f"systemctl start {unit.name}")
        seen = service.heed()
        assert seen is not None
        assert seen.hand is Hand.STARTED
        assert service.restore()
    unit.await_depth(0)


def test_no_trial_is_started_on_a_changed_unit(unit: LiveUnit, tmp_path: Path) -> None:
    mine = f"/etc/systemd/system/{unit.name}.d/20 new.conf"
    with supervised(unit) as service:
        service.stop()
        unit.machine.write(mine, "[Service]\nEnvironment=NEW=1\n")
        with pytest.raises(FailedError, match="somebody else has changed") as caught:
            service.start(of_depth(service, 3), tmp_path / "server.log")
        assert caught.value.evidence == (f"{mine} is new",)
        assert unit.depth() is None
        assert service.restore()
        assert service.altered == (f"{mine} is new",)
    unit.await_depth(0)
    assert "NEW=1" in unit.show("Environment")


def test_files_that_systemd_had_not_read_are_refused_before_anything_is_stopped(unit: LiveUnit) -> None:
    """Those that systemd knows to have changed, and those that it had not seen yet."""
    running, etc = unit.show("InvocationID"), f"/etc/systemd/system/{unit.name}"
    service = supervised(unit, {"Restart": "no"})
    unit.machine.write(f"{etc}.d/20 new.conf", "[Service]\nEnvironment=NEW=1\n")
    with pytest.raises(RefusedError, match=r"not those that were in force|cannot be held"):
        service.__enter__()
    shell(unit, f"rm '{etc}.d/20 new.conf'; echo >>{etc}")
    with pytest.raises(RefusedError, match="cannot be held") as caught:
        supervised(unit, {"Restart": "no"}).__enter__()
    assert "were changed and not loaded" in caught.value.evidence[0]
    assert unit.show("InvocationID") == running
    assert unit.machine.run(["test", "-e", unit.state]).status == 1


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
    with pytest.raises(UnrestoredError, match=r"not-found|cannot be started") as caught:
        lease.restore()
    assert "what runs was left alone" in caught.value.evidence[0]
    assert "bring the file" in caught.value.next_step
    assert unit.depth() == 3
    assert unit.show("InvocationID") == running
    assert unit.machine.run(["test", "-e", unit.state]).status == 1
    assert unit.machine.run(["test", "-e", unit.dropin]).status == 1
    shell(unit, f"mv /tmp/deleted {file}; systemctl daemon-reload")


@pytest.mark.parametrize("runs", [True, False])
def test_a_unit_that_is_masked_under_the_trial(unit: LiveUnit, runs: bool) -> None:
    """A restore or a restart would not help: what helps is told, and does."""
    file = f"/etc/systemd/system/{unit.name}"
    shell(unit, f"mv {file} /run/systemd/system/; systemctl daemon-reload; systemctl restart {unit.name}")
    unit.await_depth(0)
    lease = on_trial(unit)
    shell(unit, f"ln -s /dev/null {file}; systemctl daemon-reload")
    if not runs:
        shell(unit, f"systemctl kill -s KILL {unit.name}; sleep .3")
    with pytest.raises(UnrestoredError) as caught:
        lease.restore()
    assert "masked by now" in caught.value.evidence[0]
    assert ("nothing of it runs" in caught.value.evidence[0]) is not runs
    assert unit.machine.run(["test", "-e", unit.state]).status == 1
    steps = [each for each in caught.value.next_step.split("`") if each.startswith("systemctl")]
    assert steps == [f"systemctl unmask {unit.name}", f"systemctl restart {unit.name}"]
    shell(unit, "; ".join(steps))
    unit.await_depth(0)
    shell(unit, f"mv /run/systemd/system/{unit.name} {file}; systemctl daemon-reload")


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


def test_a_disk_that_is_full_at_the_first_change_leaves_nothing_behind(unit: LiveUnit) -> None:
    """Nor does the drop-in of a controller that was gone before it had sent all of it."""
    shell(unit, "mkdir -p /run/draftmark; mount -t tmpfs -o size=400k,mode=755 small /run/draftmark")
    try:
        before = same(unit)
        lease = Lease.open(unit.host, unit.name)
        unit.machine.run(["sh", "-c", "cat /dev/zero >/run/draftmark/full"])
        with pytest.raises(FailedError, match="could not edit") as caught:
            lease.edit(unit.trial(4))
        assert "No space left" in " ".join(caught.value.evidence)
        assert unit.machine.run(["test", "-e", unit.dropin.rpartition("/")[0]]).status == 1
        shell(unit, "rm /run/draftmark/full")
        token = unit.host.read(f"{unit.state}/token").decode().strip()
        answer = call_in_place(unit.host, unit.state, "edit", (token, "0" * 64), data=b"[Service]\n")
        assert answer.code is Code.FAILED
        assert unit.machine.run(["test", "-e", unit.dropin]).status == 1
        lease.edit(unit.trial(4))
        assert lease.restore().saved == ()
        unit.await_depth(0)
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
