"""A unit held, changed, stopped, started, kept and put back, in a real systemd."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from hashlib import sha256

import pytest
from tests.lab.machine import Machine
from tests.lab.root import USER, USER_ID

from draftmark.errors import FailedError, MeasuringError, RefusedError, UnrestoredError
from draftmark.service.host import free_port
from draftmark.service.systemd import restore as restoring
from draftmark.service.systemd.lease import Lease
from draftmark.service.systemd.restore import restore

from .lab_host import SERVER, FaultyHost, LabHost, LiveUnit

MakeUnit = Callable[..., LiveUnit]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NAMES = ["llm@0.service", r"a\x2db-c.service", "with:colon_and.dot.service"]


def held(unit: LiveUnit) -> Lease:
    return Lease.open(unit.host, unit.name, lease_s=60)


def switched(unit: LiveUnit, lease: Lease, depth: int = 3) -> None:
    """To a trial."""
    lease.edit(unit.trial(depth))
    lease.look(unit.port)
    assert lease.stop(unit.port, timeout_s=20).ended
    lease.start()
    unit.await_depth(depth)


def test_holding_changes_nothing_and_leaves_nothing(unit: LiveUnit) -> None:
    before = unit.snapshot()
    lease = held(unit)
    assert "timer" in unit.snapshot().files
    lease.close()
    assert unit.snapshot() == before
    with pytest.raises(FailedError, match="no longer held"):
        lease.look(1)


def test_the_second_is_refused_and_told_who_holds_it(unit: LiveUnit) -> None:
    lease = held(unit)
    with pytest.raises(RefusedError) as refused:
        held(unit)
    assert "held by root@" in str(refused.value)
    with pytest.raises(RefusedError, match="at work"):
        restore(unit.host, unit.name)
    lease.edit(unit.trial(2))
    lease.restore()


@pytest.mark.parametrize("name", ["", *NAMES])
def test_a_trial_and_back(make_unit: MakeUnit, name: str) -> None:
    unit = make_unit(name)
    before = unit.snapshot()
    lease = held(unit)
    assert "--depth 3" in lease.edit(unit.trial(3))[0]
    assert unit.snapshot().invocation == before.invocation
    lease.look(unit.port)
    stopped = lease.stop(unit.port, timeout_s=20)
    assert (stopped.ended, stopped.gate, stopped.result) == (True, "strong", "success")
    assert (stopped.code, stopped.status, stopped.killed_by_timeout) == (2, 15, False)
    assert stopped.invocation == before.invocation
    lease.start()
    unit.await_depth(3)
    report = lease.restore()
    assert (report.restarted, report.same_command, report.changed, report.active) == (True, True, (), "active")
    unit.await_depth(0)
    after = unit.snapshot()
    assert (after.files, after.command, after.active) == (before.files, before.command, before.active)


def test_what_was_not_stopped_is_not_restarted(unit: LiveUnit) -> None:
    before = unit.snapshot()
    lease = held(unit)
    lease.edit(unit.trial(3))
    assert not lease.restore().restarted
    assert unit.snapshot() == before


def test_what_was_inactive_is_inactive_again(make_unit: MakeUnit) -> None:
    unit = make_unit(active=False)
    before = unit.snapshot()
    lease = held(unit)
    lease.edit(unit.trial(3))
    lease.start()
    unit.await_depth(3)
    assert lease.restore().active == "inactive"
    after = unit.snapshot()
    assert (after.files, after.command, after.active) == (before.files, before.command, before.active)


def test_a_drop_in_that_systemd_does_not_take_is_taken_back(unit: LiveUnit) -> None:
    before = unit.snapshot()
    lease = held(unit)
    with pytest.raises(FailedError, match="LoadState=bad-setting"):
        lease.edit(unit.trial(3, "ExecStart=/bin/false\n"))
    assert unit.snapshot().command == before.command
    lease.edit(unit.trial(4))
    with pytest.raises(FailedError, match="bad-setting"):
        lease.edit(unit.trial(3, "ExecStart=/bin/false\n"))
    assert "--depth 4" in unit.snapshot().command
    lease.clear()
    lease.close()
    assert unit.snapshot() == before


@pytest.mark.parametrize("where", ["trial", "state", "lasting"])
def test_a_full_disk_leaves_nothing_half_edited(unit: LiveUnit, where: str) -> None:
    small = {"trial": unit.dropin, "state": "/run/draftmark/x", "lasting": unit.kept}[where].rpartition("/")[0]
    size = "20k" if where == "state" else "4k"
    unit.machine.check(["mkdir", "-p", small])
    files = unit.machine.check(["sh", "-c", 'cd "$0" && cat ./* 2>/dev/null; true', small])
    before = unit.snapshot()
    unit.machine.check(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "small", small])
    unit.machine.check(["systemctl", "daemon-reload"])  # what is mounted over has files of the unit
    try:
        if where == "state":
            with pytest.raises(RefusedError, match="No space left"):
                held(unit)
        else:
            lease = held(unit)
            lease.edit(unit.trial(3)) if where == "lasting" else None
            text = unit.trial(3, f"# {'x' * 9000}\n")
            with pytest.raises(FailedError, match="No space left"):
                lease.edit(text) if where == "trial" else lease.keep(text)
            assert ("--depth 3" in unit.snapshot().command) == (where == "lasting")
            lease.restore()
    finally:
        unit.machine.check(["umount", small])
        unit.machine.check(["systemctl", "daemon-reload"])
    assert unit.machine.check(["sh", "-c", 'cd "$0" && cat ./* 2>/dev/null; true', small]) == files
    after = unit.snapshot()
    unit.machine.run(["rmdir", small])
    assert after == before


def test_keep_is_one_file_and_restore_undoes_it(unit: LiveUnit) -> None:
    before = unit.snapshot()
    lease = held(unit)
    switched(unit, lease)
    running = unit.show("InvocationID")
    assert lease.keep(unit.trial(3)) == unit.kept
    assert unit.host.read(unit.kept).decode() == unit.trial(3)
    assert unit.show("InvocationID") == running
    assert unit.machine.run(["test", "-e", unit.dropin]).status == 1
    new = set(unit.snapshot().files.splitlines()) - set(before.files.splitlines())
    assert {line.split()[-1] for line in new if line.startswith("f")} == {
        unit.kept,
        f"/var/lib/draftmark/{unit.name}.kept",
        f"/var/lib/draftmark/{unit.name}.made",
    }
    report = restore(unit.host, unit.name)
    assert (report.undone_keep, report.removed, report.restarted) == (True, (unit.kept,), True)
    unit.await_depth(0)
    after = unit.snapshot()
    assert (after.files, after.command) == (before.files, before.command)
    report = restore(unit.host, unit.name)
    assert (report.nothing, report.active) == (True, "active")


def test_a_keep_that_was_cut_off_after_its_last_step(unit: LiveUnit) -> None:
    """Another run leaves it; `draftmark restore` undoes it."""
    before = unit.snapshot()
    for leave_kept in (True, False):
        lease = held(unit)
        lease.edit(unit.trial(3))
        lease.abandon()
        token = unit.machine.check(["cat", f"{unit.state}/token"]).strip()
        stopped_short = f"sed -i 's/^    dismantle$/    exit 1/' {unit.state}/agent"
        keep = f"sh {unit.state}/agent keep {token} {sha256(unit.trial(3).encode()).hexdigest()}"
        unit.machine.run(["sh", "-c", f"{stopped_short}; {keep}"], data=unit.trial(3))
        assert unit.machine.run(["test", "-e", f"{unit.state}/kept"]).status == 0
        report = restore(unit.host, unit.name, force=True, leave_kept=leave_kept)
        assert report.undone_keep is not leave_kept
        assert unit.machine.run(["test", "-e", unit.kept]).status == (0 if leave_kept else 1)
        if leave_kept:
            restore(unit.host, unit.name)
        unit.await_depth(0)
    after = unit.snapshot()
    assert (after.files, after.command) == (before.files, before.command)


def test_a_drop_in_that_was_cut_on_its_way_is_not_put_in_force(unit: LiveUnit) -> None:
    """The pipe of a controller that dies ends, and that looks like the end of what it sends."""
    lease = held(unit)
    lease.edit(unit.trial(3))
    before = unit.snapshot().without_state()
    token = unit.machine.check(["cat", f"{unit.state}/token"]).strip()
    whole = unit.trial(4)
    for command, arrived in (("edit", 0), ("edit", 40), ("keep", 0)):
        words = ["sh", f"{unit.state}/agent", command, token, sha256(whole.encode()).hexdigest()]
        ended = unit.machine.run(words, data=whole[:arrived])
        assert (ended.status, ended.err.strip()) == (1, "the drop-in did not arrive whole; nothing was changed")
        assert unit.snapshot().without_state() == before
    lease.restore()


def test_on_a_full_disk_an_edit_fails_and_leaves_nothing(unit: LiveUnit) -> None:
    """What is ours is known by lists in the state: what could not be noted there is not made."""
    before, machine = unit.snapshot(), unit.machine
    machine.check(["mkdir", "-p", "/run/draftmark"])
    machine.check(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/run/draftmark"])
    try:
        lease = held(unit)
        held_now = unit.snapshot().without_state()
        machine.run(["sh", "-c", "cat /dev/zero >/run/draftmark/full"])
        for free_pages in range(3):  # for nothing; for the drop-in; for the list of folders, not that of checksums
            with pytest.raises(FailedError) as raised:
                lease.edit(unit.trial(3))
            assert any("I/O error" in line or "No space left" in line for line in raised.value.evidence), free_pages
            lease.clear()
            machine.check(["truncate", "-s", "-4096", "/run/draftmark/full"])
        assert unit.snapshot().without_state().command == held_now.command
        lease.restore()
    finally:
        machine.check(["umount", "-l", "/run/draftmark"])
        machine.run(["rmdir", "/run/draftmark"])
    assert unit.snapshot() == before


def test_the_keep_before_comes_back_and_what_was_edited_is_saved(unit: LiveUnit) -> None:
    for depth in (3, 4):
        lease = held(unit)
        switched(unit, lease, depth)
        lease.keep(unit.trial(depth))
    unit.machine.write(unit.kept, unit.trial(4, "# mine\n"))
    report = restore(unit.host, unit.name)
    assert report.put_back == (unit.kept,)
    assert [unit.host.read(path).decode() for path in report.saved] == [unit.trial(4, "# mine\n")]
    unit.await_depth(3)
    unit.machine.check(["rm", *report.saved])
    restore(unit.host, unit.name)
    unit.await_depth(0)
    assert unit.machine.run(["test", "-e", "/var/lib/draftmark"]).status == 1


def test_a_kept_drop_in_of_which_nothing_is_known_comes_back_and_leaves_nothing(unit: LiveUnit) -> None:
    unit.machine.write(unit.kept, unit.trial(2))
    unit.machine.check(["systemctl", "daemon-reload"])
    before = unit.snapshot()
    lease = held(unit)
    switched(unit, lease)
    lease.keep(unit.trial(3))
    restore(unit.host, unit.name)
    assert (unit.snapshot().files, unit.snapshot().command) == (before.files, before.command)
    unit.await_depth(2)


def test_a_restore_waits_for_a_hold_that_is_being_taken(unit: LiveUnit) -> None:
    """Whoever asked for it may be dead; its command on the host goes on, and there is a hold soon."""
    unit.machine.write("/tmp/slow/sha256sum", '#!/bin/sh\nsleep 0.5\nexec /usr/bin/sha256sum "$@"\n')
    unit.machine.check(["chmod", "755", "/tmp/slow/sha256sum"])
    slow = LabHost(unit.machine, environment=("PATH=/tmp/slow:/usr/bin:/bin",))
    leases: list[Lease] = []
    thread = threading.Thread(target=lambda: leases.append(Lease.open(slow, unit.name)))
    thread.start()
    unit.machine.until(f"test -e /run/draftmark/.new.*.{unit.name}/lock", seconds=20)
    with pytest.raises(RefusedError, match="at work"):
        restore(unit.host, unit.name)
    thread.join()
    leases[0].close()


def test_what_was_kept_is_there_after_a_restore(unit: LiveUnit) -> None:
    unit.machine.write(unit.kept, "[Service]\nEnvironment=EARLIER=1\n")
    unit.machine.check(["systemctl", "daemon-reload"])
    before = unit.snapshot()
    lease = held(unit)
    switched(unit, lease)
    lease.restore()
    after = unit.snapshot()
    assert (after.files, after.command, after.active) == (before.files, before.command, before.active)


def test_a_keep_of_something_else_is_taken_back(unit: LiveUnit) -> None:
    lease = held(unit)
    lease.edit(unit.trial(3))
    before = unit.snapshot().without_state()
    with pytest.raises(FailedError, match="not the effect"):
        lease.keep(unit.trial(4))
    assert unit.snapshot().without_state() == before
    lease.restore()


def test_nothing_is_kept_where_etc_is_read_only(unit: LiveUnit) -> None:
    lease = held(unit)
    lease.edit(unit.trial(3))
    before = unit.snapshot().without_state()
    unit.machine.check(["mount", "--bind", "/etc/systemd/system", "/etc/systemd/system"])
    unit.machine.check(["mount", "-o", "remount,bind,ro", "/etc/systemd/system"])
    try:
        with pytest.raises(FailedError, match="Read-only file system"):
            lease.keep(unit.trial(3))
        assert unit.snapshot().without_state() == before
        assert lease.restore().same_command
    finally:
        unit.machine.check(["umount", "/etc/systemd/system"])


def test_a_stop_that_ends_by_timeout_is_told(make_unit: MakeUnit) -> None:
    unit = make_unit(flags="--deaf", settings="TimeoutStopSec=1")
    lease = held(unit)
    lease.look(unit.port)
    stopped = lease.stop(unit.port, timeout_s=20)
    assert (stopped.ended, stopped.killed_by_timeout, stopped.result) == (True, True, "timeout")
    assert (stopped.code, stopped.status) == (2, 9)
    assert any("timed out. Killing" in line for line in stopped.kills)
    assert lease.restore().active == "active"


def test_a_stop_that_takes_longer_than_is_waited_is_told(make_unit: MakeUnit) -> None:
    unit = make_unit(flags="--deaf", settings="TimeoutStopSec=2")
    lease = held(unit)
    stopped = lease.stop(None, timeout_s=1)
    assert (stopped.ended, stopped.active) == (False, "deactivating")
    lease.restore()


def test_a_restore_that_waits_says_so(make_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = make_unit(settings="TimeoutStopSec=3")
    monkeypatch.setattr(restoring, "SLICE_S", 1)
    lease = held(unit)
    assert lease.stop(None, timeout_s=20).ended
    lease.edit(unit.trial(3).replace("--depth 3", "--depth 3 --deaf"))
    lease.start()
    unit.await_depth(3)
    said: list[str] = []
    restore(unit.host, unit.name, force=True, progress=said.append)
    assert any("deactivating" in line for line in said)
    unit.await_depth(0)
    with pytest.raises(FailedError, match="put back"):
        lease.beat()


def test_processes_that_the_stop_does_not_reach_are_thawed(make_unit: MakeUnit) -> None:
    """With KillMode=mixed systemd wakes the main process alone; its worker must be able to end by itself."""
    unit = make_unit(settings="KillMode=mixed\nTimeoutStopSec=20\nExecStartPost=/bin/true")
    worker = "sh -c 'trap \"exit 0\" TERM; while :; do sleep 0.1; done'"
    work = f"trap 'kill $w; wait $w; exit 0' TERM; {worker} & w=$!; wait"
    word = work.replace("$", "$$").replace('"', '\\"')
    lease = held(unit)
    lease.edit(f'[Service]\nExecStart=\nExecStart=/bin/sh -c "{word}"\n')
    assert lease.stop(None, timeout_s=20).ended
    lease.start()
    unit.machine.until(f"test $(cat /sys/fs/cgroup/systemd/system.slice/{unit.name}/cgroup.procs | wc -l) -ge 3")
    lease.look(unit.port)
    stopped = lease.stop(unit.port, timeout_s=20)
    assert (stopped.ended, stopped.killed_by_timeout, stopped.gate) == (True, False, "none")
    lease.restore()


def test_units_that_were_stopped_with_it_are_started_again(make_unit: MakeUnit) -> None:
    unit = make_unit()
    other = "front-of-llm.service"
    unit.machine.write(
        f"/etc/systemd/system/{other}", f"[Unit]\nRequires={unit.name}\n[Service]\nExecStart=sleep infinity\n"
    )
    unit.machine.check(["systemctl", "daemon-reload"])
    unit.machine.check(["systemctl", "start", other])
    lease = held(unit)
    switched(unit, lease)
    assert unit.machine.run(["systemctl", "is-active", other]).out == "inactive\n"
    lease.restore()
    unit.machine.until(f"systemctl is-active --quiet {other}", seconds=20)
    unit.machine.check(
        ["sh", "-c", f"systemctl stop {other}; rm /etc/systemd/system/{other}; systemctl daemon-reload"]
    )


def test_nobody_stops_what_is_measured(unit: LiveUnit) -> None:
    lease = held(unit)
    switched(unit, lease)
    running = unit.snapshot().without_state()
    ways: dict[str, Callable[[], object]] = {
        "stop": lambda: lease.stop(None, timeout_s=20),
        "gated stop": lambda: lease.stop(unit.port, timeout_s=20),
        "restore": lease.restore,
        "start": lease.start,
        "edit": lambda: lease.edit(unit.trial(4)),
        "clear": lease.clear,
        "keep": lambda: lease.keep(unit.trial(3)),
        "close": lease.close,
        "anybody's restore": lambda: restore(unit.host, unit.name),
        "anybody's restore by force": lambda: restore(unit.host, unit.name, force=True),
    }
    with lease.measuring():
        with lease.measuring():
            pass
        lease.look(unit.port)
        for way, call in ways.items():
            with pytest.raises(MeasuringError) as refused:
                call()
            assert f"pid {os.getpid()}" in str(refused.value), way
            assert f"kill {os.getpid()}" in refused.value.next_step, way
        with pytest.raises(RefusedError, match="at work"):
            held(unit)
        assert unit.snapshot().without_state() == running
    assert restore(unit.host, unit.name, force=True).restarted
    unit.await_depth(0)
    with pytest.raises(FailedError, match="put back"), lease.measuring():
        pytest.fail("it is no longer held")


def test_the_end_of_a_measurement_is_told_again_where_it_did_not_arrive(unit: LiveUnit) -> None:
    host = FaultyHost(unit.machine)
    lease = Lease.open(host, unit.name, lease_s=60)
    with lease.measuring():
        host.faulty = True
    host.faulty = False
    with pytest.raises(MeasuringError):
        restore(unit.host, unit.name, force=True)
    assert lease.stop(None, timeout_s=20).ended
    lease.restore()


def test_the_measurement_of_a_dead_controller_keeps_nobody_away(unit: LiveUnit) -> None:
    """Neither the switch, nor whoever has seen on the same computer that it is dead."""
    for by_hand in (False, True):
        lease = Lease.open(unit.host, unit.name, lease_s=6)
        switched(unit, lease)
        with lease.measuring():
            lease.abandon()
            if by_hand:
                ended = subprocess.Popen(["true"])
                ended.wait()
                holder = f"{unit.state}/holder"
                line = unit.machine.check(["cat", holder]).replace(f'"pid": {os.getpid()}', f'"pid": {ended.pid}')
                unit.machine.write(holder, line)
                assert restore(unit.host, unit.name).restarted
            else:
                unit.await_restored()
        unit.await_depth(0)


def test_what_somebody_else_changes_stays_and_is_told(unit: LiveUnit) -> None:
    mine = f"/etc/systemd/system/{unit.name}.d/10 mine.conf"
    lease = held(unit)
    switched(unit, lease)
    unit.machine.write(mine, "[Service]\nEnvironment=MINE=new\n")
    report = lease.restore()
    assert report.changed == (mine,)
    assert unit.host.read(mine) == b"[Service]\nEnvironment=MINE=new\n"


def test_a_unit_that_is_masked_meanwhile_cannot_be_restored(unit: LiveUnit) -> None:
    lease = held(unit)
    switched(unit, lease)
    unit.machine.check(["systemctl", "mask", "--runtime", unit.name])
    unit.machine.check(["sh", "-c", f"mv /etc/systemd/system/{unit.name} /tmp/saved; systemctl daemon-reload"])
    with pytest.raises(UnrestoredError, match="masked"):
        lease.restore()
    assert unit.machine.run(["test", "-e", unit.state]).status == 1
    unit.machine.check(["systemctl", "unmask", "--runtime", unit.name])


@pytest.mark.parametrize("unit_name", ["none.service", "masked.service", "alias.service"])
def test_what_cannot_be_changed_is_refused(unit: LiveUnit, unit_name: str) -> None:
    unit.machine.check(["ln", "-sf", "/dev/null", "/etc/systemd/system/masked.service"])
    unit.machine.check(["ln", "-sf", unit.name, "/etc/systemd/system/alias.service"])
    unit.machine.check(["systemctl", "daemon-reload"])
    with pytest.raises(RefusedError, match=r"not-found|masked|another name of"):
        Lease.open(unit.host, unit_name)
    unit.machine.check(["rm", "/etc/systemd/system/masked.service", "/etc/systemd/system/alias.service"])
    assert unit.machine.run(["test", "-e", "/run/draftmark"]).status == 1


def test_a_drop_in_whose_state_is_gone_is_removed(unit: LiveUnit) -> None:
    before = unit.snapshot()
    lease = held(unit)
    switched(unit, lease)
    lease.abandon()
    unit.machine.check(
        ["sh", "-c", "systemctl stop 'draftmark*.timer'; rm -rf /run/draftmark /run/systemd/system/draftmark*"]
    )
    report = restore(unit.host, unit.name)
    assert (report.removed, report.restarted, report.undone_keep) == ((unit.dropin,), True, False)
    unit.await_depth(0)
    after = unit.snapshot()
    assert (after.files, after.command) == (before.files, before.command)


def test_a_users_own_unit(lab: Machine) -> None:
    runtime = f"/run/user/{USER_ID}"
    lab.check(["sh", "-c", f"mkdir -p {runtime} && chown {USER}: {runtime} && chmod 700 {runtime}"])
    lab.check(
        [
            *("systemd-run", "--unit=manager", "-p", f"User={USER}", "-p", "Delegate=yes", "-p", "Type=notify"),
            *(f"--setenv=XDG_RUNTIME_DIR={runtime}", "/lib/systemd/systemd", "--user"),
        ]
    )
    host = LabHost(lab, USER, (f"XDG_RUNTIME_DIR={runtime}",))
    port = free_port()
    command = f"/usr/bin/env python3 {SERVER} --port {port} --depth"
    folder = f"/home/{USER}/.config/systemd/user"
    write = f"mkdir -p {folder} && cat >{folder}/own.service"
    lab.check(["sh", "-c", write], user=USER, data=f"[Service]\nExecStart={command} 0\n")

    def ctl(*words: str) -> str:
        return host.run(["systemctl", "--user", *words]).stdout.decode()

    def found() -> str:
        return lab.check(["find", f"/home/{USER}", f"{runtime}/systemd/user", "-not", "-name", "dconf"], user=USER)

    lab.run(["mkdir", "-p", f"{runtime}/systemd/user"], user=USER)
    ctl("daemon-reload")
    ctl("start", "own.service")
    before = found()
    text = f"[Service]\nExecStart=\nExecStart={command} 3\n"
    lease = Lease.open(host, "own.service", user_scope=True)
    lease.edit(text)
    assert lease.stop(None, timeout_s=20).ended
    lease.start()
    lab.until(f"pgrep -f 'port {port} --depth 3'", seconds=20)
    assert lease.keep(text) == f"{folder}/own.service.d/zz-draftmark.conf"
    assert "--depth 3" in ctl("show", "-p", "ExecStart", "own.service")
    assert restore(host, "own.service", user_scope=True).undone_keep
    assert found() == before
    lab.until(f"pgrep -f 'port {port} --depth 0'", seconds=20)
    ctl("stop", "own.service")
    lab.check(["systemctl", "stop", "manager.service"])
