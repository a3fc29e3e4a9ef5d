"""`plan --knob` and `tune --knob` on the simulated server."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.main import main
from draftmark.service.host import free_port

SIM = ("--model", "qwen35-35b", "--gpus", "h200", "--speed", "200", "--serve-speed", "4")
CHAIN = (
    "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
    "--speculative-num-draft-tokens", "4",
)  # fmt: skip


def service() -> str:
    flags = ("--port", str(free_port()), "--mem-fraction-static", "0.85", "--max-running-requests", "4", *CHAIN)
    return "cmd:" + shlex.join([sys.executable, "-m", "draftmark", "sim", *SIM, "--", *flags])


def test_a_plan_says_what_is_tried_first_and_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--knob", "mem-fraction=0.8..0.97", "--knob", "topk=1,2")
    assert main(["plan", service(), *asked, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    mem, topk = plan["knobs"]
    assert (mem["flag"], mem["runs"], mem["source"] != "") == ("--mem-fraction-static", "0.85", True)
    low, high = mem["first"]
    assert (low["verdict"], high["verdict"]) == ("start", "refused")
    assert "does not fit" in high["because"]
    assert "+ --mem-fraction-static 0.8" in low["command_diff"]
    (tree,) = topk["first"]
    assert "+ --speculative-num-draft-tokens 7" in tree["command_diff"]
    assert [arm["label"] for arm in plan["arms"]] == ["depth 3"]
    assert plan["knob_restarts_most"] == 15


def test_no_more_restarts_are_planned_than_there_are_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", service(), "--knob", "mem-fraction=0.85,0.86", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["restarts"], plan["restarts_most"]) == (4, 5)  # it once, the baseline and the choice again
    (low,) = plan["knobs"][0]["first"]
    assert low["command_diff"] == ["- --mem-fraction-static 0.85", "+ --mem-fraction-static 0.86"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--knob", "speed=1..2"), "no knob 'speed'"),
        (("--knob", "topk=1,2", "--search", "grid"), "exclude each other"),
        (("--study", "sqlite:///x"), "is for a search of knobs"),
    ],
)
def test_what_cannot_be_searched_is_one_error(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(["plan", service(), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
def test_the_knob_that_matters_is_found_and_the_other_dropped(
    draftmark: Callable[..., Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = draftmark(
        "tune", service(), "--knob", "max-running-requests=4,16", "--knob", "mem-fraction=0.85,0.86",
        "--concurrency", "1,8", "--workload", "chat", "--max-tokens", "64", "--rounds", "1",
        "--run", str(run), "--json",
    )  # fmt: skip
    assert done.status in (10, 40), done.err  # 40: a busy computer
    result = json.loads(done.out)
    running, mem = result["knobs"]
    assert (running["most"], running["dropped"]) == ("16", False)
    assert running["throughput"]["ratio"] > 1.1
    assert mem["most"] == "0.86"
    assert (run / "study.db").is_file()
    for report in (run / "report.md", run / "report.html"):
        assert "max-running-requests=16" in report.read_text(encoding="utf-8")
