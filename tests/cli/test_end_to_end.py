"""The main job on the real engine with the real model, small enough for the test run."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmark.service.host import free_port
from draftmark.testing.processes import none_left, popen, servers

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("embedded_command")]

Draftmark = Callable[..., Any]

# Small enough for a few seconds a run, real all the same.
FEW = ("--concurrency", "1", "--requests", "1", "--max-tokens", "8", "--max-foreign-cpu", "99")
SMALL = ("--workload", "copy", *FEW)
ARMS = ("--depth", "off,2,8", "--rounds", "1")


@pytest.fixture
def brief(tmp_path: Path) -> tuple[str, ...]:
    """As `SMALL`, of a prompt that is read in a tenth of the time: for what happens around the measurement."""
    prompts = tmp_path / "brief.jsonl"
    prompts.write_text('{"prompt": "One, two, three,"}\n')
    return ("--prompts", str(prompts), *FEW, "--max-tokens", "4")


def trials(run: Path) -> dict[int, dict[str, object]]:
    found = {}
    for path in (run / "trials").glob("*/trial.json"):
        if ".interrupted" not in path.parent.name:
            document = json.loads(path.read_text())
            found[document["number"]] = document
    return found


def why_of(run: Path, trial: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "trials" / trial / "why.json").read_text())
    return found


def test_tune_end_to_end(draftmark: Draftmark, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = draftmark("tune", *SMALL, *ARMS, "--run", str(run), "--json")
    assert done.status in (0, 10, 40), done.err
    assert none_left(0)
    result = json.loads(done.out)
    assert result["schema"] == "draftmark.tune/1"
    assert result["exit_status"] == done.status
    arms = {arm["arm"]: arm for arm in result["arms"]}
    assert arms["d2"]["status"] == "refused"
    assert "drafts nothing" in arms["d2"]["because"]
    assert arms["d8"]["status"] in ("measured", "void")
    assert result["restarts"] == 3
    for number, directory in ((1, "01-off"), (2, "02-d8"), (3, "03-off")):
        trial = run / "trials" / directory
        assert trials(run)[number]["status"] in ("measured", "void")
        for name in (
            "server.log",
            "requests.jsonl",
            "metrics.before.prom",
            "metrics.after.prom",
            "measurement.json",
        ):
            assert (trial / name).stat().st_size > 0, name
    assert "listening on" in (run / "trials" / "01-off" / "server.log").read_text()
    assert not list(run.rglob("why.json"))

    before = (run / "result.json").read_bytes()
    assert json.loads(before) == result
    (run / "result.json").unlink()
    (run / "report.html").unlink()
    assert draftmark("report", str(run)).status == 0
    assert (run / "result.json").read_bytes() == before
    assert (run / "report.html").stat().st_size > 10_000

    other = draftmark("tune", "--resume", str(run), "--rounds", "5")
    assert (other.status, "--rounds" in other.err) == (2, True)
    again = draftmark("tune", "--resume", str(run), "--json")
    assert json.loads(again.out)["restarts"] == 3
    same = draftmark("compare", str(run), str(run), "--json")
    assert same.status == 0, same.err


def test_bench_of_the_embedded_engine(draftmark: Draftmark) -> None:
    done = draftmark("bench", "embedded:", "--concurrency", "2", "--requests", "2", "--max-tokens", "8", "--json")
    assert done.status == 0, done.err
    levels = json.loads(done.out)["levels"]
    assert {level["workload"] for level in levels} == {"copy", "chat"}
    assert all(level["requests"] >= 2 and level["errors"] == {} for level in levels)
    assert all(level["ttft_ms"]["p50"] > 0 for level in levels)
    assert none_left(0)


def test_a_port_in_use_is_refused_with_its_holder(
    draftmark: Draftmark, embedded_command: tuple[tuple[str, ...], dict[str, str]], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        words = _with_port(embedded_command, port)
        done = draftmark("tune", f"cmd:{words}", *SMALL, *ARMS, "--run", str(tmp_path / "run"))
    assert done.status == 30
    assert not (tmp_path / "run").exists()
    assert f"something else listens on http://127.0.0.1:{port}" in done.err
    assert servers() == []


def test_an_unknown_flag_of_this_build(
    draftmark: Draftmark, embedded_command: tuple[tuple[str, ...], dict[str, str]], tmp_path: Path
) -> None:
    words = _with_port(embedded_command, free_port()) + " --no-such-flag"
    done = draftmark("tune", f"cmd:{words}", *SMALL, *ARMS, "--run", str(tmp_path / "run"))
    assert done.status == 50
    assert "invalid argument: --no-such-flag" in done.err
    assert "config-invalid (certain)" in done.err
    why = why_of(tmp_path / "run", "01-off")
    assert (why["cause"], why["confidence"], why["phase"]) == ("config-invalid", "certain", "startup")
    assert "invalid argument: --no-such-flag" in why["evidence"][0]["text"]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["arms"][0]["why"] == "trials/01-off/why.json"


# Stands for a host where something takes the port between Draftmark's look and the server's own, for one arm only.
_LOSES_ITS_PORT = """#!{python}
import os, socket, sys
if "--spec-ngram-simple-size-m 8" in " ".join(sys.argv):
    taken = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
    taken.set_inheritable(True)
os.execv({command!r}[0], {command!r} + sys.argv[1:])
"""


def test_an_arm_that_does_not_start_says_why_wherever_it_is_shown(
    draftmark: Draftmark, embedded_command: tuple[tuple[str, ...], dict[str, str]], tmp_path: Path
) -> None:
    words = shlex.split(_with_port(embedded_command, free_port()))
    first = next(i for i, word in enumerate(words) if "=" not in word)
    model = words.index("-m")
    wrapper = tmp_path / "llama-server"
    wrapper.write_text(_LOSES_ITS_PORT.format(python=sys.executable, command=words[first:model]))
    wrapper.chmod(0o755)
    service = "cmd:" + shlex.join([*words[:first], str(wrapper), *words[model:]])
    run = tmp_path / "run"
    done = draftmark("tune", service, *SMALL, "--depth", "off,8", "--rounds", "1", "--run", str(run))
    assert done.status in (0, 10, 40), done.err
    assert none_left(0)
    trial = trials(run)[2]
    assert (trial["status"], trials(run)[1]["status"]) == ("did-not-start", "measured")
    why = why_of(run, "02-d8")
    assert (why["schema"], why["cause"], why["confidence"]) == ("draftmark.why/1", "port-in-use", "certain")
    assert why["evidence"][0]["file"] == "server.log"
    assert "bind HTTP server socket" in why["evidence"][0]["text"]
    result = json.loads((run / "result.json").read_text())
    arm = next(arm for arm in result["arms"] if arm["arm"] == "d8")
    assert (arm["status"], arm["why"]) == ("did-not-start", "trials/02-d8/why.json")
    told = " ".join(done.out.split())
    pages = [(run / name).read_text() for name in ("report.md", "report.html")]
    for shown in (told, *pages):
        assert "port-in-use (certain)" in shown
        assert "trials/02-d8/why.json" in shown
        assert "server.log:" in shown

    before = {name: (run / name).read_bytes() for name in ("result.json", "report.md", "report.html")}
    assert draftmark("report", str(run)).status == 0
    assert {name: (run / name).read_bytes() for name in before} == before


def test_a_secret_is_written_nowhere_and_resume_asks_for_it(
    draftmark: Draftmark,
    brief: tuple[str, ...],
    embedded_command: tuple[tuple[str, ...], dict[str, str]],
    tmp_path: Path,
) -> None:
    words = _with_port(embedded_command, free_port())
    service = f"cmd:MY_TOKEN=tok-very-secret {words} --api-key sk-very-secret"
    run = tmp_path / "run"
    done = draftmark("tune", service, *brief, "--depth", "off", "--rounds", "1", "--run", str(run))
    assert done.status in (0, 40), done.err
    assert all(trial["status"] == "measured" for trial in trials(run).values())
    for path in run.rglob("*"):
        if path.is_file():
            assert b"very-secret" not in path.read_bytes(), path
    asked = draftmark("tune", "--resume", str(run))
    assert (asked.status, "secret" in asked.err) == (2, True)
    assert draftmark("tune", service, "--resume", str(run)).status == done.status


def test_a_second_draftmark_is_refused(
    draftmark: Draftmark, embedded_command: tuple[tuple[str, ...], dict[str, str]], tmp_path: Path
) -> None:
    service = f"cmd:{_with_port(embedded_command, free_port())}"
    words = ("tune", service, *SMALL, "--depth", "off,8", "--rounds", "1", "--run", "one")
    with popen(words, tmp_path) as first:
        _wait_for(lambda: bool(servers()))
        second = draftmark("tune", service, *SMALL, "--depth", "off", "--run", str(tmp_path / "two"))
        first.send_signal(signal.SIGTERM)
        _, err = first.communicate(timeout=30)
    assert second.status == 30
    assert f"pid {first.pid}" in second.err
    assert first.returncode == 128 + signal.SIGTERM
    assert "everything is as it was" in err
    assert none_left(0)


@pytest.mark.parametrize(
    ("phase", "signum"),
    [  # every phase and every signal; all nine pairs and more are in bench/kill_points.py
        ("start", signal.SIGKILL),
        ("start", signal.SIGINT),
        ("measure", signal.SIGTERM),
        ("measure", signal.SIGKILL),
        ("stop", signal.SIGINT),
    ],
)
def test_ended_in_any_phase_leaves_nothing_and_resumes(
    draftmark: Draftmark, brief: tuple[str, ...], tmp_path: Path, signum: signal.Signals, phase: str
) -> None:
    run = tmp_path / "run"
    actions = run / "actions.jsonl"
    with popen(("tune", *brief, "--depth", "off,8", "--rounds", "1", "--run", str(run)), tmp_path) as process:
        _wait_for(lambda: actions.exists() and _seen(actions, phase) >= 2)
        process.send_signal(signum)
        process.communicate(timeout=30)
    assert none_left(5.0)
    finished = {number: (run / "trials" / "01-off" / "trial.json").stat().st_mtime_ns for number in trials(run)}
    assert draftmark("report", str(run)).status == 0
    done = draftmark("tune", "--resume", str(run), "--json")
    result = json.loads(done.out)
    assert result["complete"] is True
    assert [trial["number"] for trial in result["trials"]] == [1, 2, 3]
    for number in finished:
        assert (run / "trials" / "01-off" / "trial.json").stat().st_mtime_ns == finished[number]


def test_a_server_killed_in_mid_measurement_is_void(brief: tuple[str, ...], tmp_path: Path) -> None:
    run = tmp_path / "run"
    longer = ("--requests", "3", "--max-tokens", "16")
    with popen(
        ("tune", *brief, *longer, "--depth", "off", "--rounds", "1", "--run", str(run), "--json"), tmp_path
    ) as process:
        _wait_for(lambda: any((run / "trials").glob("01-off/requests.jsonl")))
        ready = [line for line in (run / "actions.jsonl").read_text().splitlines() if '"ready"' in line]
        subprocess.run(["kill", "-9", str(json.loads(ready[0])["detail"]["pid"])], check=True)
        process.communicate(timeout=60)
    first = trials(run)[1]
    assert first["status"] == "void"
    assert "died with exit status -9 during brief@1" in str(first["because"])
    assert trials(run)[2]["status"] == "measured"
    why = why_of(run, "01-off")
    assert why["cause"] in (
        "user-or-supervisor-sigkill",
        "unsettled",
    )  # by whom: the kernel's log may be closed to us
    assert "killed by SIGKILL" in why["summary"]
    assert (why["phase"], why["died"]) == ("serving", True)
    assert "exit code: 137" in [line["text"] for line in why["evidence"]]
    assert not (run / "trials" / "02-off" / "why.json").exists()
    assert json.loads((run / "result.json").read_text())["arms"][0]["why"] == "trials/01-off/why.json"


def _with_port(embedded: tuple[tuple[str, ...], dict[str, str]], port: int) -> str:
    """The embedded engine as a user's own command line, on a port of the test's choice."""
    command, env = embedded
    words = list(command)
    words[words.index("--port") + 1] = str(port)
    return shlex.join([*(f"{name}={value}" for name, value in env.items()), *words])


def _seen(actions: Path, what: str) -> int:
    return sum(f'"what":"{what}"' in line for line in actions.read_text().splitlines())


def _wait_for(condition: object, within_s: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
