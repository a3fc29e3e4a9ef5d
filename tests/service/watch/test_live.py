"""A watch in a real systemd: each kind of death is reported, once, and `remove` leaves nothing.

Deaths with `Restart=always` are those that `OnFailure=` alone would not see.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.lab.deaths import PYTHON, SERVER
from tests.lab.kills import kill_main
from tests.lab.llm_unit import LlmLab
from tests.lab.machine import Machine, Mode
from tests.lab.packages import UnavailableError
from tests.lab.root import USER, USER_ID
from tests.service.watch.test_notify import Hook

from draftmark.service.host import free_port

DRAFTMARK = Path(sys.prefix) / "bin/draftmark"
STATE = "/var/lib/draftmark/watch"
PLACES = "/etc/systemd /run/systemd/system /run/draftmark-watch /var/lib/draftmark"
LIST = f"find {PLACES} -printf '%p %y %m %s\\n' 2>/dev/null | sort"
LOADED = "systemctl list-units --all --plain --no-legend '*draftmark*'"
# Whatever a test has left, so that the next one does not suffer for it.
SWEEP = """
umount /etc/systemd/system /var/lib/draftmark 2>/dev/null
cd /etc/systemd/system && rm -f -- *.d/zz-draftmark-watch.conf && systemctl daemon-reload
new=$(ls | grep -vxFf /run/lab-units)
systemctl stop 'draftmark-watch*' $(echo "$new" | grep 'service$' | sed 's/@/@*/') 2>/dev/null
rm -rf -- $new /run/draftmark* /var/lib/draftmark /var/reports && systemctl daemon-reload; systemctl reset-failed
"""
PATIENCE_S = 30.0
PROMISED_S = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Case:
    """A way to die: lines of [Service], and what must be said of it."""

    service: str
    causes: tuple[str, ...]
    results: tuple[str, ...]
    needs: str = ""


def served(manner: str, more: str = "") -> str:
    return f"Type=notify\nExecStart={PYTHON} -S -B {SERVER} {manner}\n{more}"


CASES = {
    "exit-1": Case(served("broken-start", "Type=simple"), ("python-exception-startup",), ("exit-code",)),
    "kill-9": Case(served("serve"), ("user-or-supervisor-sigkill",), ("signal",), needs="kill"),
    "oom": Case(served("grow", "MemoryMax=32M\nMemorySwapMax=0"), ("cgroup-oom",), ("signal", "oom-kill")),
    "stop-timeout": Case(
        served("drain", "TimeoutStopSec=1"), ("stop-timeout-sigkill",), ("timeout",), needs="stop"
    ),
    "no-folder": Case(served("serve", "WorkingDirectory=/opt/none"), ("config-invalid",), ("exit-code",)),
    "no-environment": Case(
        served("serve", "EnvironmentFile=/opt/none"), ("config-invalid", "unsettled"), ("resources",)
    ),
    "other-user": Case(
        served("abort", f"User={USER}\nProtectSystem=strict\nNoNewPrivileges=yes\nLimitCORE=0"),
        ("segfault-or-abort",),
        ("signal", "core-dump"),
    ),
}


DEATHS = [
    *((kind, "always") for kind in ("exit-1", "oom", "no-folder", "no-environment", "other-user")),
    *((kind, "no") for kind in ("kill-9", "stop-timeout", "no-environment")),
]


@pytest.fixture(scope="module")
def booted() -> Iterator[Machine]:
    try:
        machine = Machine.boot(Mode.SHARED)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    machine.check(["sh", "-c", "ls /etc/systemd/system >/run/lab-units"])
    yield machine
    machine.close()


@pytest.fixture
def machine(booted: Machine) -> Iterator[Machine]:
    yield booted
    booted.run(["sh", "-c", SWEEP])


@pytest.fixture(scope="module", autouse=True)
def kernels_kill(request: pytest.FixtureRequest) -> Iterator[Future[None] | None]:
    """A death under a kernel of its own takes a minute: it is played while the other tests run."""
    wanted = any(item.name == "test_the_kernels_kill_is_named" for item in request.session.items)
    with ThreadPoolExecutor(1) as worker:
        yield worker.submit(_kernels_kill) if wanted else None


def draftmark(machine: Machine, *words: str, **options: Any) -> str:
    return machine.check([DRAFTMARK, "watch", *words], **options)


def unit(machine: Machine, name: str, service: str, restart: str = "no", more: str = "") -> None:
    text = f"[Unit]\nDescription=model server\n{more}\n[Service]\nRestart={restart}\nRestartSec=1\n{service}\n"
    machine.write(f"/etc/systemd/system/{name}", text)
    machine.check(["systemctl", "daemon-reload"])


def reports(machine: Machine, name: str, folder: str = STATE) -> list[str]:
    found = machine.run(["ls", f"{folder}/{name}"]).out.split()
    return sorted(each.removesuffix(".html") for each in found if each.endswith(".html"))


def documents(machine: Machine, name: str, folder: str = STATE) -> list[dict[str, Any]]:
    return [
        json.loads(machine.check(["cat", f"{folder}/{name}/{each}.json"]))
        for each in reports(machine, name, folder)
    ]


def await_reports(machine: Machine, name: str, number: int = 1, folder: str = STATE) -> list[str]:
    deadline = time.monotonic() + PATIENCE_S
    while len(found := reports(machine, name, folder)) < number:
        assert time.monotonic() < deadline, machine.run(["journalctl", "-n", "50", "--no-pager"]).out
        time.sleep(0.05)
    return found


def await_rest(machine: Machine, name: str) -> None:
    """Until the watcher has ended."""
    machine.until(f"! systemctl show -P ActiveState 'draftmark-watch@{name}.service' | grep -q activating")


def die(machine: Machine, name: str, needs: str) -> None:
    if needs == "kill":
        kill_main(machine, name)
        return
    machine.run(["systemctl", "start", name])
    if needs == "stop":
        machine.run(["systemctl", "stop", name])


@pytest.mark.parametrize(("kind", "restart"), DEATHS)
def test_each_death_is_reported_and_nothing_is_left(machine: Machine, kind: str, restart: str) -> None:
    case, name = CASES[kind], f"w-{kind}-{restart}.service"
    unit(machine, name, case.service, restart)
    before = machine.check(["sh", "-c", LIST])
    draftmark(machine, "install", f"unit:{name}")
    die(machine, name, case.needs)
    await_reports(machine, name)
    written_s = _written(machine, name)
    machine.run(["systemctl", "stop", name])
    await_rest(machine, name)
    first, document = reports(machine, name)[0], documents(machine, name)[0]
    assert document["cause"] in case.causes, document["summary"]
    assert document["death"]["result"] in case.results
    assert (document["unit"], document["host"]) == (name, "lab")
    assert document["report"] == f"{STATE}/{name}/{first}.md"
    assert set(machine.check(["ls", f"{STATE}/{name}"]).split()) >= {
        f"{first}.{form}" for form in ("json", "md", "html")
    }
    delay_s = written_s - _failed(machine, name, document)
    print(f"{name}: {document['cause']} in {delay_s:.2f} s")
    if os.getloadavg()[0] < 2 * (os.cpu_count() or 1):  # else it is the machine that is judged
        assert delay_s < PROMISED_S
    draftmark(machine, "remove", f"unit:{name}")
    assert machine.check(["sh", "-c", LIST]) == before
    shown = machine.show(name)
    assert "draftmark" not in shown.get("OnFailure", "") + shown.get("ExecStopPost", "") + shown.get("Wants", "")


def _written(machine: Machine, name: str) -> float:
    """When the first report was whole, seconds since the epoch; a second look may write it anew."""
    return float(machine.check(["sh", "-c", f"stat -c %.Y {STATE}/{name}/*.html | sort | head -1"]))


def _failed(machine: Machine, name: str, document: dict[str, Any]) -> float:
    """When systemd said that the unit had failed, seconds since the epoch."""
    failed = machine.journal("MESSAGE_ID=d9b373ed55a64feb8242e02dbe79a49c", f"UNIT={name}")
    mine = [e for e in failed if e.get("INVOCATION_ID") == document["death"]["invocation"]]
    return int(mine[0]["__REALTIME_TIMESTAMP"]) / 1e6


def test_a_death_is_reported_once(machine: Machine) -> None:
    """Both the hook and OnFailure= call."""
    name = "once.service"
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 7'")
    draftmark(machine, "install", f"unit:{name}")
    machine.run(["systemctl", "start", name])
    await_reports(machine, name)
    await_rest(machine, name)
    machine.run(["systemctl", "start", f"draftmark-watch@{name}.service"])
    await_rest(machine, name)
    assert len(reports(machine, name)) == 1
    machine.run(["systemctl", "start", name])
    await_reports(machine, name, 2)
    await_rest(machine, name)
    assert [document["death"]["status"] for document in documents(machine, name)] == ["7", "7"]
    draftmark(machine, "remove", f"unit:{name}")


def test_what_is_no_failure_is_not_reported(machine: Machine) -> None:
    name = "fine.service"
    unit(machine, name, served("serve"), "always")
    draftmark(machine, "install", f"unit:{name}")
    for verb in ("start", "restart", "stop"):
        machine.check(["systemctl", verb, name])
    await_rest(machine, name)
    assert reports(machine, name) == []
    assert "is watched\n" in draftmark(machine, "status", f"unit:{name}")
    draftmark(machine, "remove", f"unit:{name}")


def test_a_failure_before_the_watch_is_not_its_business(machine: Machine) -> None:
    name = "earlier.service"
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'")
    machine.run(["systemctl", "start", name])
    machine.until(f"systemctl is-failed -q {name}")
    draftmark(machine, "install", f"unit:{name}")
    machine.run(["systemctl", "start", f"draftmark-watch@{name}.service"])
    assert reports(machine, name) == []
    draftmark(machine, "remove", f"unit:{name}")


def test_a_loop_is_reported_seldom_and_old_reports_go(machine: Machine) -> None:
    name = "loop.service"
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'\nRestartSec=100ms", "always", "StartLimitIntervalSec=0")
    draftmark(machine, "install", f"unit:{name}", "--keep", "2")
    machine.run(["systemctl", "start", name])
    machine.until(f"journalctl -q -u 'draftmark-watch@{name}.service' -o cat | grep -q 'over and over'")
    assert int(machine.show(name)["NRestarts"]) > 3
    machine.check(["systemctl", "stop", name])
    said = machine.check(["journalctl", "-q", "-o", "cat", "-u", f"draftmark-watch@{name}.service"])
    assert said.count(".md\n") == 3, said
    assert len(reports(machine, name)) == 2
    draftmark(machine, "install", f"unit:{name}", "--keep", "1")  # while the watcher waits
    draftmark(machine, "remove", f"unit:{name}")
    assert machine.run(["systemctl", "is-active", f"draftmark-watch@{name}.service"]).out == "inactive\n"


@pytest.mark.parametrize("name", [r"my\x2dllm.service", "many@0.service"])
def test_names_that_need_care(machine: Machine, name: str) -> None:
    file = name.replace("@0", "@")
    unit(machine, file, "ExecStart=/bin/sh -c 'sleep 0.2; exit 3'", "always")
    before = machine.check(["sh", "-c", LIST])
    draftmark(machine, "install", f"unit:{name}")
    machine.run(["systemctl", "start", name])
    await_reports(machine, name)
    machine.run(["systemctl", "stop", name])
    await_rest(machine, name)
    assert documents(machine, name)[0]["unit"] == name
    draftmark(machine, "remove", f"unit:{name}")
    assert machine.check(["sh", "-c", LIST]) == before


def test_two_units_share_the_unit_files(machine: Machine) -> None:
    names = ["one.service", "two.service"]
    for name in names:
        unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'")
    before = machine.check(["sh", "-c", LIST])
    for name in names:
        draftmark(machine, "install", f"unit:{name}")
    draftmark(machine, "remove", f"unit:{names[0]}")
    machine.run(["systemctl", "start", names[1]])
    await_reports(machine, names[1])
    await_rest(machine, names[1])
    assert machine.check(["sh", "-c", LOADED]).count(".slice") == 2
    draftmark(machine, "remove", f"unit:{names[1]}")
    assert machine.check(["sh", "-c", LIST]) == before
    assert machine.check(["sh", "-c", LOADED]) == ""


def test_a_webhook_is_told_and_a_dead_one_costs_no_report(machine: Machine) -> None:
    name, hook = "hooked.service", Hook(200)
    unit(machine, name, "ExecStart=/bin/sh -c 'echo token=hf_abcdefgh12345678; exit 1'")
    said = draftmark(
        machine, "install", f"unit:{name}", "--webhook", "-", "--dir", "/var/reports", data=hook.url() + "\n"
    )
    assert "s3cr3t" not in said
    assert machine.check(["stat", "-c", "%a", f"{STATE}/{name}/settings.json"]) == "600\n"
    machine.run(["systemctl", "start", name])
    await_reports(machine, name, folder="/var/reports")
    await_rest(machine, name)
    hook.shutdown()
    hook.server_close()
    [(_, _, data)] = hook.got
    posted = json.loads(data)
    assert posted == documents(machine, name, "/var/reports")[0]
    assert b"hf_abcdefgh12345678" not in data
    machine.run(["systemctl", "start", name])
    await_reports(machine, name, 2, folder="/var/reports")
    await_rest(machine, name)
    said = machine.check(["journalctl", "-q", "-o", "cat", "-u", f"draftmark-watch@{name}.service"])
    assert "did not take the post-mortem" in said
    assert "s3cr3t" not in said
    assert "s3cr3t" not in draftmark(machine, "status", f"unit:{name}", "--json")
    draftmark(machine, "remove", f"unit:{name}")
    assert machine.run(["ls", "/var/reports"]).status != 0
    assert machine.run(["systemctl", "cat", f"draftmark-watch@{name}.service"]).status != 0


def test_a_tuning_keeps_its_own_post_mortems(machine: Machine) -> None:
    name = "tuned.service"
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'")
    draftmark(machine, "install", f"unit:{name}")
    machine.check(["mkdir", "-p", f"/run/draftmark/{name}"])
    machine.run(["systemctl", "start", name])
    machine.until(f"journalctl -q -u 'draftmark-watch@{name}.service' -o cat | grep -q 'being tuned'")
    await_rest(machine, name)
    machine.check(["rm", "-r", "/run/draftmark"])
    machine.run(["systemctl", "start", f"draftmark-watch@{name}.service"])
    await_rest(machine, name)
    assert reports(machine, name) == []
    draftmark(machine, "remove", f"unit:{name}")


def test_reports_can_be_kept(machine: Machine) -> None:
    name = "kept.service"
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'")
    draftmark(machine, "install", f"unit:{name}")
    machine.run(["systemctl", "start", name])
    kept = await_reports(machine, name)
    await_rest(machine, name)
    draftmark(machine, "remove", f"unit:{name}", "--keep-reports")
    assert reports(machine, name) == kept
    assert "settings.json" not in machine.check(["ls", f"{STATE}/{name}"])
    machine.check(["rm", "-r", "/var/lib/draftmark"])


@pytest.mark.parametrize(
    "trouble",
    [
        "mkdir -p /var/lib/draftmark && mount -t tmpfs -o size=4k,nr_inodes=3 none /var/lib/draftmark",
        "mount --bind /etc/systemd/system /etc/systemd/system && mount -o remount,ro,bind /etc/systemd/system",
    ],
    ids=["disk-full", "read-only"],
)
def test_what_cannot_be_written_leaves_nothing(machine: Machine, trouble: str) -> None:
    name = "unlucky.service"
    unit(machine, name, served("serve"))
    before = machine.check(["sh", "-c", LIST])
    machine.check(["sh", "-c", trouble])
    during = machine.check(["sh", "-c", LIST])
    ended = machine.run([DRAFTMARK, "watch", "install", f"unit:{name}"])
    assert ended.status == 50
    assert ended.err.count("error: ") == 1
    assert "could not be written" in ended.err
    assert "Traceback" not in ended.err
    assert machine.check(["sh", "-c", LIST]) == during
    mounted = "/var/lib/draftmark" if "tmpfs" in trouble else "/etc/systemd/system"
    machine.check(["umount", mounted])
    machine.run(["rmdir", "/var/lib/draftmark"])
    assert machine.check(["sh", "-c", LIST]) == before


def test_an_ordinary_user_is_told_to_be_root(machine: Machine) -> None:
    name = "roots.service"
    unit(machine, name, served("serve"))
    for verb in ("install", "remove"):
        if verb == "remove":
            draftmark(machine, "install", f"unit:{name}")
        ended = machine.run([DRAFTMARK, "watch", verb, f"unit:{name}"], user=USER)
        assert ended.status == 30
        assert "needs root" in ended.err
    assert f"{name} is watched\n" in draftmark(machine, "status", f"unit:{name}", user=USER)
    draftmark(machine, "remove", f"unit:{name}")
    assert f"{name} is not watched" in draftmark(machine, "status", f"unit:{name}", user=USER)


def test_a_users_own_unit(machine: Machine) -> None:
    runtime = f"/run/user/{USER_ID}"
    machine.write(
        "/etc/systemd/system/user@.service.d/lab.conf",
        f"[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR={runtime}\n",
    )
    machine.check(["sh", "-c", f"systemctl daemon-reload; install -d -o {USER} -m 700 {runtime}"])
    machine.check(["systemctl", "start", f"user@{USER_ID}.service"])

    def mine(*words: str | Path) -> str:
        return machine.check(["env", f"XDG_RUNTIME_DIR={runtime}", *words], user=USER)

    units = f"/home/{USER}/.config/systemd/user"
    service = "[Service]\nExecStart=/bin/sh -c 'exit 3'\nRestart=always\nRestartSec=60\n"
    mine("sh", "-c", f"mkdir -p {units} && printf '%s' \"$0\" >{units}/mine.service", service)
    mine("systemctl", "--user", "daemon-reload")
    listing = f"find /home/{USER} {runtime} -printf '%p %y %m\\n' | sort"
    before = mine("sh", "-c", listing)
    assert units in mine(DRAFTMARK, "watch", "install", "unit:mine")
    mine("systemctl", "--user", "start", "mine.service")
    folder = f"/home/{USER}/.local/state/draftmark/watch"
    await_reports(machine, "mine.service", folder=folder)
    assert documents(machine, "mine.service", folder)[0]["death"]["status"] == "3"
    mine("systemctl", "--user", "stop", "mine.service")
    mine(DRAFTMARK, "watch", "remove", "unit:mine")
    assert mine("sh", "-c", listing) == before
    assert mine("sh", "-c", LOADED.replace("systemctl", "systemctl --user")) == ""
    machine.check(["systemctl", "stop", f"user@{USER_ID}.service"])


@pytest.mark.parametrize(
    "seen",
    [
        "/var/lib/draftmark",
        "/etc/systemd/system/torn.service.d",
        "/etc/systemd/system/torn.service.d/zz-draftmark-watch.conf",
    ],
)
def test_an_interrupted_install_leaves_nothing(machine: Machine, seen: str) -> None:
    name = "torn.service"
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'")
    before = machine.check(["sh", "-c", LIST])
    script = '"$0" watch install "$1" & while kill -0 $!; do [ -e "$2" ] && kill $! && break; done; wait $!'
    ended = machine.run(["sh", "-c", script, DRAFTMARK, f"unit:{name}", seen])
    if ended.status == 0:  # it was faster
        draftmark(machine, "remove", f"unit:{name}")
    assert machine.check(["sh", "-c", LIST]) == before


def test_installed_again_and_deleted_while_watched(machine: Machine) -> None:
    name = "deleted.service"
    before = machine.check(["sh", "-c", LIST])
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'")
    draftmark(machine, "install", f"unit:{name}")
    machine.run(["systemctl", "start", name])
    await_reports(machine, name)
    await_rest(machine, name)
    assert "the newest 7" in draftmark(machine, "install", f"unit:{name}", "--keep", "7")
    assert len(json.loads(draftmark(machine, "status", f"unit:{name}", "--json"))["last"]) == 1
    machine.check(["sh", "-c", f"rm /etc/systemd/system/{name}; systemctl daemon-reload"])
    assert f"{name} is watched" in draftmark(machine, "status", f"unit:{name}")
    assert "nothing of it is left" in draftmark(machine, "remove", f"unit:{name}")
    assert machine.check(["sh", "-c", LIST]) == before
    ended = machine.run([DRAFTMARK, "watch", "remove", f"unit:{name}"])
    assert (ended.status, "there is no unit" in ended.err) == (2, True)


def test_a_full_disk_costs_the_report_and_not_the_news(machine: Machine) -> None:
    name, hook = "full.service", Hook(200)
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'")
    machine.check(["sh", "-c", "mkdir /var/lib/draftmark && mount -t tmpfs -o size=64k none /var/lib/draftmark"])
    draftmark(machine, "install", f"unit:{name}", "--webhook", hook.url())
    machine.run(["sh", "-c", "cat /dev/zero >/var/lib/draftmark/ballast"])
    machine.run(["systemctl", "start", name])
    watcher = f"draftmark-watch@{name}.service"
    machine.until(f"journalctl -q -u '{watcher}' -o cat | grep -q 'could not be written'")
    await_rest(machine, name)
    hook.shutdown()
    hook.server_close()
    assert [json.loads(data)["report"] for _, _, data in hook.got] == [None]
    assert machine.run(["sh", "-c", f"ls -A {STATE}/{name} | grep -v -e settings.json -e seen"]).out == ""
    machine.check(["rm", "/var/lib/draftmark/ballast"])
    machine.run(["systemctl", "start", name])
    await_reports(machine, name)
    await_rest(machine, name)
    draftmark(machine, "remove", f"unit:{name}")


def test_a_slow_webhook_delays_no_report(machine: Machine) -> None:
    name, hook = "slow.service", Hook(200)
    hook.hold.clear()
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'")
    draftmark(machine, "install", f"unit:{name}", "--webhook", hook.url())
    for number in (1, 2):
        machine.run(["systemctl", "start", name])
        await_reports(machine, name, number)
    assert hook.got == []
    hook.hold.set()
    await_rest(machine, name)
    hook.shutdown()
    hook.server_close()
    assert {json.loads(data)["report"] for _, _, data in hook.got} == {
        f"{STATE}/{name}/{each}.md" for each in reports(machine, name)
    }
    draftmark(machine, "remove", f"unit:{name}")


class Reached(LlmLab):
    """A lab without the service: what is needed to reach it over SSH."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder, self.machine = folder, machine
        self.home = folder / "home"
        self.ssh_port = free_port()

    def watch(self, verb: str, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-P", "-m", "draftmark", "watch", verb, f"unit:{name}", *words)
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )


def test_over_ssh(machine: Machine, tmp_path: Path) -> None:
    pytest.importorskip("asyncssh")
    name, lab = "far.service", Reached(tmp_path, machine)
    try:
        over = ("--host", lab.start_sshd(name="watch-sshd"))
    except UnavailableError as reason:
        pytest.skip(str(reason))
    unit(machine, name, "ExecStart=/bin/sh -c 'exit 1'", "always")
    before = machine.check(["sh", "-c", LIST])
    none = lab.watch("install", name, *over)
    assert none.returncode == 30
    assert "/opt/draftmark/bin/pip install" in none.stderr
    assert machine.check(["sh", "-c", LIST]) == before
    program = f"mkdir -p /root/.local/bin; echo '#!{sys.prefix}/bin/python' >/root/.local/bin/draftmark"
    machine.check(["sh", "-c", program])
    done = lab.watch("install", name, *over)
    assert f"draftmark watch remove unit:{name} --host root@" in done.stdout, done.stderr
    machine.run(["systemctl", "start", name])
    await_reports(machine, name)
    machine.run(["systemctl", "stop", name])
    await_rest(machine, name)
    assert len(json.loads(lab.watch("status", name, *over, "--json").stdout)["last"]) >= 1
    assert lab.watch("remove", name, *over).returncode == 0
    assert machine.check(["sh", "-c", LIST]) == before
    machine.check(["systemctl", "stop", "watch-sshd"])


def _kernels_kill() -> None:
    name = "w-oom.service"
    own = Machine.boot(Mode.OWN)
    try:
        unit(own, name, CASES["oom"].service, "always")
        draftmark(own, "install", f"unit:{name}")
        die(own, name, "")
        own.until(f"ls {STATE}/{name}/*-cgroup-oom.html")
        assert documents(own, name)[0]["death"]["result"] == "oom-kill"
    finally:
        own.close()


def test_the_kernels_kill_is_named(kernels_kill: Future[None]) -> None:
    """Control groups of version 2, where systemd sees it; slow, so without a promise of time."""
    try:
        kernels_kill.result()
    except UnavailableError as reason:
        pytest.skip(str(reason))
