"""What the post-mortem of a trial makes of a log, an exit status and a kernel log, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.kernel_window import KernelWindow
from draftmark.cli.trial_postmortem import TrialPostMortem
from draftmark.ports import Completed, Failure
from draftmark.testing.hosts import NOT_INSTALLED, ScriptedHost

SERVING = (
    "build: 4567 (abcdef0) with cc for x86_64-linux-gnu\n"
    "srv    load_model: loading model 'm.gguf'\n"
    "main: model loaded\n"
    "main: server is listening on http://127.0.0.1:8080\n"
    "slot print_timing: id  0 | task 1 |\n"
)
LOADING = "build: 4567 (abcdef0) with cc for x86_64-linux-gnu\nsrv    load_model: loading model 'm.gguf'\n"
BOOT = "[    1.000000] Linux version 6.8.0\n[   90.000000] usb 1-1: new device\n"
OLD_KILL = (
    "[   95.000000] Out of memory: Killed process 11 (llama-server) total-vm:9kB, anon-rss:9kB, file-rss:0kB\n"
)


def oom(group: str, pid: int, at: float = 200.0) -> str:
    head = "constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0"
    return (
        f"[  {at:.6f}] oom-kill:{head},oom_memcg={group},task_memcg={group},task=llama-server,pid={pid},uid=0\n"
        f"[  {at:.6f}] Memory cgroup out of memory: Killed process {pid} (llama-server) total-vm:9kB, "
        "anon-rss:9kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n"
    )


class Kernel(ScriptedHost):
    """A host whose ring buffer grows between two looks."""

    def __init__(self, before: str, after: str, *, group: str = "/user.slice/ours") -> None:
        groups = group if ":" in group else f"0::{group}"
        super().__init__({"^journalctl": NOT_INSTALLED}, {"/proc/self/cgroup": f"{groups}\n".encode()})
        self.looks = [before, before + after]

    def run(
        self,
        argv: Any,
        *,
        input: bytes = b"",  # noqa: A002
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        if argv[0] == "dmesg":
            return Completed(0, self.looks.pop(0).encode())
        return super().run(argv, timeout_s=timeout_s, limit_bytes=limit_bytes)


def examined(tmp_path: Path, host: ScriptedHost, log: str | None, **seen: Any) -> dict[str, Any]:
    place = tmp_path / "server.log"
    if log is not None:
        place.write_text(log)
    failure = Failure(**{"log": place, "exit_code": None, "alive": False, "because": "it ended", **seen})
    post_mortem = TrialPostMortem(host)
    post_mortem.watch()
    return post_mortem.examine(failure)


def unread(document: dict[str, Any]) -> dict[str, str]:
    return {entry["source"]: entry["because"] for entry in document["not_examined"]}


def test_sigkill_with_a_quiet_kernel_is_somebodys(tmp_path: Path) -> None:
    found = examined(tmp_path, Kernel(BOOT, ""), SERVING, exit_code=-9)
    assert (found["cause"], found["confidence"]) == ("user-or-supervisor-sigkill", "likely")
    assert found["phase"] == "serving"
    assert [e["text"] for e in found["evidence"]] == ["exit code: 137"]
    assert "host-ram-oom-kernel" in [r["cause"] for r in found["ruled_out"]]
    assert unread(found) == {}


def test_an_oom_kill_of_the_trial_is_named(tmp_path: Path) -> None:
    found = examined(tmp_path, Kernel(BOOT, oom("/user.slice/ours", 77)), SERVING, exit_code=-9)
    assert (found["cause"], found["confidence"]) == ("cgroup-oom", "certain")
    assert "task=llama-server,pid=77" in found["evidence"][0]["text"]


@pytest.mark.parametrize(
    ("groups", "ours"),
    [
        ("9:name=systemd:/s\n4:memory:/a\n0::/b", "/a"),
        ("5:cpu,memory,pids:/a b\n0::/", "/a b"),
        ("9:name=systemd:/s\n0::/b", "/b"),
        ("0::/", "/"),
    ],
)
def test_which_control_group_is_ours(tmp_path: Path, groups: str, ours: str) -> None:
    found = examined(tmp_path, Kernel(BOOT, oom(ours, 77), group=groups), SERVING, exit_code=-9)
    assert found["cause"] == "cgroup-oom"
    found = examined(tmp_path, Kernel(BOOT, oom(ours + "x", 77), group=groups), SERVING, exit_code=-9)
    assert found["cause"] == "unsettled"


def test_an_oom_kill_before_the_trial_is_not_its_own(tmp_path: Path) -> None:
    found = examined(tmp_path, Kernel(BOOT + OLD_KILL, ""), SERVING, exit_code=-9)
    assert found["cause"] == "user-or-supervisor-sigkill"
    assert "Killed process" not in str(found)


def test_a_neighbours_oom_kill_leaves_it_open(tmp_path: Path) -> None:
    found = examined(tmp_path, Kernel(BOOT, oom("/other.slice", 78)), SERVING, exit_code=-9)
    assert found["cause"] == "unsettled"
    assert "1 OOM kill(s) at that time, none in our own control group" in unread(found)["kernel log"]
    both = Kernel(BOOT, oom("/other.slice", 78) + oom("/user.slice/ours", 79, 201.0))
    found = examined(tmp_path, both, SERVING, exit_code=-9)
    assert found["cause"] == "cgroup-oom"
    assert "pid=78" not in str(found)


def test_what_the_log_proves_needs_no_kernel(tmp_path: Path) -> None:
    host = Kernel(BOOT, oom("/user.slice/ours", 77))
    found = examined(tmp_path, host, "error: invalid argument: --no-such-flag\n", exit_code=1)
    assert (found["cause"], found["confidence"], found["phase"]) == ("config-invalid", "certain", "startup")
    assert unread(found) == {"kernel log": "not read: the server's own log says why"}
    assert len(host.looks) == 1


def test_an_unreadable_kernel_log_is_named(tmp_path: Path) -> None:
    denied = Completed(1, stderr="dmesg: read kernel buffer failed: Operation not permitted")
    host = ScriptedHost({"^dmesg": denied, "^journalctl": NOT_INSTALLED}, is_root=False)
    found = examined(tmp_path, host, SERVING, exit_code=-9)
    assert found["cause"] == "unsettled"
    assert "Operation not permitted" in unread(found)["kernel log"]
    assert "host-ram-oom-kernel" in [c["cause"] for c in found["candidates"]]
    assert not any("UNIT" in c["command"] for c in found["candidates"])


@pytest.mark.parametrize("log", [LOADING, SERVING, "", None])
def test_a_start_that_was_given_up_is_no_death(tmp_path: Path, log: str | None) -> None:
    found = examined(tmp_path, Kernel(BOOT, ""), log, alive=True, because="not ready after 600 s")
    assert (found["cause"], found["died"]) == ("unsettled", False)
    assert "not ready after 600 s" in found["summary"]
    assert [c["cause"] for c in found["candidates"]] == ["model-load-timeout", "hang-not-crash"]


def test_a_failure_that_the_log_names_stands_though_it_hangs(tmp_path: Path) -> None:
    log = LOADING + "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: "
    log += "cudaMalloc failed: out of memory\n"
    found = examined(tmp_path, Kernel(BOOT, ""), log, alive=True, because="not ready after 600 s")
    assert found["cause"].startswith("cuda-oom")
    assert "Draftmark gave the start up (not ready after 600 s)" in found["summary"]
    assert found["died"] is False


def test_the_exit_status_of_what_runs_is_not_asked_for(tmp_path: Path) -> None:
    found = examined(tmp_path, Kernel(BOOT, ""), LOADING, alive=True, exit_code=-9, because="not ready after 9 s")
    assert list(found["examined"]) == ["server.log", "kernel log"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    said = 'cannot run "llama-servr": no such file (ENOENT: No such file or directory)'
    found = examined(tmp_path, Kernel(BOOT, ""), None, refusal=said)
    assert found["cause"] == "config-invalid"
    assert said in found["evidence"][0]["text"]


def test_junk_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(bytes(range(256)) * 400)
    found = examined(tmp_path, Kernel("\0\xff\n", "junk \x1b[31m\n" * 9), None, exit_code=1)
    assert found["cause"] == "unsettled"


def test_an_overwritten_ring_buffer_is_all_newer() -> None:
    from draftmark.cli.compose_why import tables
    from draftmark.postmortem.intake import Hints, read_bytes

    host = Kernel("", "")
    host.looks = ["[    1.000000] first\n", "[    9.000000] ninth\n[   10.000000] tenth\n"]
    window = KernelWindow(host)
    window.begin()
    literals = tables().literals
    sources, missing = window.read(lambda name, data: read_bytes(name, data, hints=Hints(literals)), literals)
    assert [line.text for line in sources[0].lines] == ["ninth", "tenth"]
    assert missing == []
