"""`tune --search`: which way a run goes where nobody says, and the founding case by forecast."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli import compose
from draftmark.cli.searching import refused_by, search_of, trees_of
from draftmark.engines.llamacpp.engine import LlamaCpp
from draftmark.engines.sglang.engine import SGLang
from draftmark.errors import UsageError
from draftmark.model import Arm, Fit, FitArm, Refusal
from draftmark.ports import Engine
from draftmark.run.directory import RunDirectory
from draftmark.service.host import free_port
from draftmark.testing.processes import none_left
from draftmark.tune.result import derive

SGLANG = ("python3", "-m", "sglang.launch_server", "--model-path", "m", "--speculative-algorithm")
LLAMA = ("llama-server", "-m", "m.gguf", "--spec-type")
ADAPTIVE = Arm(3, (("--speculative-adaptive", ""),))


@dataclass(frozen=True)
class Target:
    engine: Engine
    command: tuple[str, ...]
    may_run: bool = False


def asked(
    search: str | None = None, rounds: int | None = None, knob: tuple[str, ...] | None = None
) -> argparse.Namespace:
    return argparse.Namespace(search=search, rounds=rounds, knob=knob)


def of(target: Target, args: argparse.Namespace, baseline: Arm = Arm(0)) -> str:  # noqa: B008 - frozen
    return search_of(args, target, baseline)  # type: ignore[arg-type]


EAGLE = Target(SGLang(version="0.5.17"), (*SGLANG, "EAGLE"))
DRAFTED = Target(LlamaCpp(), (*LLAMA, "draft-simple", "-md", "d.gguf"))
NGRAMS = Target(LlamaCpp(), (*LLAMA, "ngram-simple"))


@pytest.mark.parametrize(
    ("target", "args", "way"),
    [
        (EAGLE, asked(), "forecast"),
        (EAGLE, asked(rounds=3), "grid"),
        (EAGLE, asked("grid"), "grid"),
        (EAGLE, asked("forecast", rounds=3), "forecast"),
        (DRAFTED, asked(), "grid"),
        (Target(DRAFTED.engine, DRAFTED.command, may_run=True), asked(), "forecast"),
        (Target(NGRAMS.engine, NGRAMS.command, may_run=True), asked(), "grid"),
        (NGRAMS, asked("forecast"), "forecast"),
        (DRAFTED, asked(knob=("batch=64..512",)), "forecast"),
    ],
)
def test_which_way(target: Target, args: argparse.Namespace, way: str) -> None:
    assert of(target, args) == way


def test_a_service_that_varies_its_depth_is_no_start_for_a_forecast() -> None:
    assert of(EAGLE, asked(), ADAPTIVE) == "grid"
    with pytest.raises(UsageError, match="fixed depth"):
        of(EAGLE, asked("forecast"), ADAPTIVE)


def test_drafts_that_branch_are_told_apart() -> None:
    def trees(command: tuple[str, ...]) -> bool:
        return trees_of(Target(SGLang(version="0.5.17"), command), (Arm(0), Arm(4)))  # type: ignore[arg-type]

    shape = ("--speculative-num-steps", "3", "--speculative-num-draft-tokens", "8", "--speculative-eagle-topk")
    assert trees((*EAGLE.command, *shape, "4"))
    assert not trees((*EAGLE.command, *shape, "1"))


def test_the_rounds_of_a_forecast_are_two_wherever_it_runs() -> None:
    assert compose.rounds(asked(), embedded=True) == 3
    assert compose.rounds(asked(), embedded=True, forecast=True) == 2
    assert compose.rounds(asked(rounds=5), embedded=True, forecast=True) == 5


def test_what_fits_by_a_log_replaces_what_fitted_by_the_card(run_info: Any) -> None:
    fit = Fit(
        engine="x", version=None, calibrated_from="server.log",
        arms=(FitArm(arm=Arm(0), fits=True), FitArm(arm=Arm(4), fits=True), FitArm(arm=Arm(8), fits=False)),
    )  # fmt: skip
    info = run_info(refused={"d4": Refusal("does-not-fit", "by the card"), "d2": Refusal("dead-depth", "dead")})
    assert set(refused_by(fit, info)) == {"d2", "d8"}


@pytest.fixture
def run_info() -> Callable[..., Any]:
    def made(**more: Any) -> Any:
        return argparse.Namespace(baseline=Arm(0), arms=(Arm(0), Arm(2), Arm(4), Arm(8)), **more)

    return made


def founding() -> str:
    words = [sys.executable, "-m", "draftmark", "sim", "--model", "qwen35-122b", "--gpus", "4xrtx-pro-6000"]
    words += ["--sglang-version", "0.5.12", "--calibrate", "founding", "--speed", "200", "--"]
    words += ["--port", str(free_port()), "--mem-fraction-static", "0.7915"]
    words += ["--mamba-scheduler-strategy", "extra_buffer", "--speculative-algorithm", "NEXTN"]
    words += [
        "--speculative-num-steps",
        "3",
        "--speculative-eagle-topk",
        "1",
        "--speculative-num-draft-tokens",
        "4",
    ]
    return "cmd:" + shlex.join(words)


FOUNDING = ("--depth", "1..5,10", "--concurrency", "1", "--workload", "chat")


@pytest.mark.slow
def test_the_founding_case_by_forecast(draftmark: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = draftmark("tune", founding(), *FOUNDING, "--run", str(run), "--json")
    assert done.status in (10, 40), done.err  # 40: a busy computer
    assert none_left(0)
    result = json.loads(done.out)
    arms = {arm["arm"]: arm for arm in result["arms"]}
    assert arms["d10"]["status"] == "refused"
    started = [trial["arm"] for trial in result["trials"]]
    assert (started[0], started[-1]) == ("d3", "d3")
    assert len(set(started) - {"d3"}) <= 3
    assert "d10" not in started
    assert "d1" not in started
    assert arms["d1"]["status"] == "predicted"
    if done.status == 10:
        assert result["choice"]["recommended"] in ("d4", "d5")
    for step in result["steps"]:
        assert step["because"] in done.err
    record = RunDirectory.open(run).load()
    assert [action.what for action in record.actions].count("fitted") == 1
    assert record.info.fit is not None
    assert "01-d3/server.log" in (record.info.fit.calibrated_from or "")
    assert json.loads(json.dumps(derive(record))) == result


def test_a_plan_by_forecast_says_what_it_costs(draftmark: Callable[..., Any]) -> None:
    plan = json.loads(draftmark("plan", founding(), *FOUNDING, "--json").out)
    assert (plan["search"], plan["schedule"]) == ("forecast", [])
    assert (plan["restarts"], plan["restarts_most"]) == (6, 7)
    assert plan["minutes"] < plan["minutes_most"]
    shown = draftmark("plan", founding(), *FOUNDING).out
    assert "about 6 restarts" in shown
    assert "at most 7" in shown
    grid = json.loads(draftmark("plan", founding(), *FOUNDING, "--rounds", "2", "--json").out)
    assert (grid["search"], grid["restarts"], grid["restarts_most"]) == ("grid", 10, 10)
