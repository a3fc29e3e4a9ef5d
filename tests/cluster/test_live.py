"""`tune --cluster` on a real Ray cluster: several raylets on this computer, with simulated servers on them."""

from __future__ import annotations

import importlib.util
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.field import Raylets, draftmark, raylets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed: it has no wheel for this Python"
    ),
]

FAST, SLOW = 0, 1  # the head is the slow one
LOAD = ("--concurrency", "1", "--workload", "chat", "--requests", "2", "--max-tokens", "16")


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raylets]:
    with raylets(tmp_path_factory.mktemp("cluster"), (0.5,), head=0.25) as made:
        yield made


def tune(field: Raylets, run: Path, *more: str) -> tuple[str, ...]:
    service = field.service()
    return ("tune", service, "--cluster", field.address, "--run", str(run), "--rounds", "1", *LOAD, *more)


def started(run: Path, what: str) -> list[dict[str, Any]]:
    path = run / "actions.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [action for each in lines if (action := json.loads(each))["what"] == what]


def await_action(run: Path, what: str, number: int = 1) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 90
    while len(found := started(run, what)) < number:
        assert time.monotonic() < deadline, f"no {what} in {run}"
        time.sleep(0.05)
    return found


def await_arm(run: Path, node: str) -> int:
    """Number of the first trial of an arm whose server is ready on a node."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        arms = {action["trial"]: action["detail"]["arm"] for action in started(run, "next")}
        for action in started(run, "ready"):
            if action["detail"].get("node") == node and arms[action["trial"]] != "d3":
                return int(action["trial"])
        time.sleep(0.05)
    raise AssertionError(f"no arm became ready on {node}")


def all_gone(field: Raylets) -> list[str]:
    """What is still there after a while."""
    deadline = time.monotonic() + 15
    while (left := field.left()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def test_ctrl_c_leaves_nothing_and_a_lost_raylet_loses_nothing(field: Raylets, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = draftmark(field, *tune(field, run, "--depth", "0,2,3"))
    await_action(run, "ready", 2)
    assert field.left()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "--resume" in said
    assert all_gone(field) == []

    process = draftmark(field, "tune", "--resume", str(run), "--json")
    lost, other = field.name(FAST), field.name(SLOW)
    number = await_arm(run, lost)
    field.kill(FAST)
    out, said = process.communicate(timeout=200)
    assert process.returncode in (0, 10, 40), said
    assert f"{lost} is lost" in said
    for words in ("INFO", "raylet", "dashboard", "Traceback"):  # Ray's own words
        assert words not in said
    assert all_gone(field) == []
    assert not list((run / "trials").glob(".*"))

    result = json.loads(out)
    assert result["complete"] is True
    assert all(arm["status"] == "measured" for arm in result["arms"])
    assert any(line.startswith(f"{lost} was lost") for line in result["warnings"])
    assert not any(trial["number"] == number for trial in result["trials"])
    arms = {trial["number"]: trial["arm"] for trial in result["trials"]}
    ran = {node["node"]: [arms[n] for n in node["trials"]] for node in result["nodes"]}
    assert ran[lost] == ["d3"]
    assert set(ran[other]) == {"off", "d2", "d3"}
    assert ran[other][0] == ran[other][-1] == "d3"  # each against the baseline of its own node, before and after
    pace = {node["node"]: node["baseline_tok_s"]["1"][0] for node in result["nodes"]}
    assert 0.3 < pace[other] / pace[lost] < 0.8
    last = max(arms)
    assert (run / "trials" / f"{last:02d}-{arms[last]}" / "server.log").stat().st_size > 0
