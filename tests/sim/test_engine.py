"""`draftmark sim … -- …` where SGLang's own command line could stand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from draftmark.cli.engines import starts
from draftmark.engines.sglang.engine import SGLang
from draftmark.errors import UsageError
from draftmark.model import Arm
from draftmark.ports import Engine, FitScene
from draftmark.sim.engine import SimulatedSGLang
from draftmark.testing.engine_contract import EngineContract
from draftmark.testing.processes import none_left, popen

from .conftest import FAST, drafting, free_port

SIM = ("draftmark", "sim", "--model", "qwen35-35b", "--gpus", "h200")
DRAFTED = (*SIM, "--sglang-version", "0.5.23", "--", "--port", "31000", *drafting(3))
AS_MODULE = ("/usr/bin/python3.11", "-m", "draftmark", "sim", "--model", "qwen35-122b", "--gpus", "4xh200", "--")


class TestContract(EngineContract):
    commands = ((DRAFTED, 3), (("/opt/venv/bin/draftmark", *SIM[1:]), 0), ((*AS_MODULE, *drafting(2)), 2))
    strangers = (
        ("draftmark", "tune", "sim"),
        ("sglang", "serve", "--model-path", "sim"),
        ("python3", "-m", "draftmark", "bench", "sim"),
        ("draftmark",),
        ("sim",),
    )
    live_depths = (1, 2, 5)
    failures = (
        (
            (
                "[2026-01-01 00:00:00] x",
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            ),
            "Not enough memory",
        ),
    )

    @pytest.fixture
    def engine(self) -> Engine:
        return SimulatedSGLang(method="NEXTN")


def test_an_arm_changes_only_sglangs_flags() -> None:
    engine = SimulatedSGLang()
    deeper = engine.with_arm(DRAFTED, Arm(5))
    assert deeper[: len(SIM) + 3] == DRAFTED[: len(SIM) + 3]
    assert engine.base_url(deeper) == "http://127.0.0.1:31000"
    assert engine.depth(deeper) == 5
    assert engine.version(deeper) == "0.5.23"
    assert engine.summary(DRAFTED)["simulated"] == "qwen35-35b on h200"


def test_cards_are_used_unless_told_otherwise() -> None:
    engine = SimulatedSGLang(method="NEXTN")
    assert "--tp-size" not in engine.with_arm(AS_MODULE, Arm(1))
    scene = FitScene(read=lambda _: b"")
    (four,) = engine.fit(AS_MODULE, [Arm(0)], scene).arms  # type: ignore[union-attr]
    (two,) = engine.fit((*AS_MODULE, "--tp-size", "2"), [Arm(0)], scene).arms  # type: ignore[union-attr]
    assert four.figures.kv_tokens is not None
    assert two.figures.kv_tokens is None or four.figures.kv_tokens > two.figures.kv_tokens


def test_fit_is_exact_for_a_simulated_server() -> None:
    engine, scene = SimulatedSGLang(), FitScene(read=lambda _: b"")
    verdict = engine.fit(DRAFTED, [Arm(depth) for depth in (0, 3, 10)], scene)
    assert verdict is not None
    assert all(arm.fits is not None and arm.low == arm.figures == arm.high for arm in verdict.arms)
    assert verdict.version == "0.5.23"
    assert any("simulated" in each for each in verdict.assumptions)


def test_other_engines_are_not_taken_for_it() -> None:
    engines: tuple[Engine, ...] = (SGLang(), SimulatedSGLang())
    assert starts(DRAFTED, engines) is engines[1]
    assert starts(("python3", "-m", "sglang.launch_server", "--model-path", "x"), engines) is engines[0]


def test_words_that_are_none() -> None:
    engine = SimulatedSGLang()
    with pytest.raises(UsageError, match="--model"):
        engine.base_url(("draftmark", "sim", "--", "--port", "1"))
    with pytest.raises(UsageError, match="draftmark sim"):
        engine.check(("draftmark", "sim", "--model", "qwen35-35b", "--speculative-num-steps", "3"))
    with pytest.raises(UsageError, match="no longer has the flag"):
        engine.check((*SIM, "--sglang-version", "0.5.23", "--", "--cuda-graph-max-bs", "8"))
    with pytest.raises(UsageError, match="does not adapt"):
        engine.adaptive(DRAFTED)


@pytest.mark.slow
def test_tune_end_to_end(tmp_path: Path) -> None:
    """The founding case: 4 and 5 are level, 10 is never started, and nothing is left running."""
    command = [
        sys.executable, "-m", "draftmark", "sim", "--model", "qwen35-122b", "--gpus", "4xrtx-pro-6000", *FAST[:2],
        "--sglang-version", "0.5.12", "--calibrate", "founding", "--serve-speed", "2", "--", "--port",
        str(free_port()), "--mem-fraction-static", "0.7915", "--mamba-scheduler-strategy", "extra_buffer",
        *drafting(3),
    ]  # fmt: skip
    words = (
        "tune", f"cmd:{' '.join(command)}", "--depth", "3,4,5,10", "--concurrency", "1", "--workload", "chat",
        "--requests", "4", "--max-tokens", "128", "--rounds", "1", "--run", "run", "--json",
    )  # fmt: skip
    with popen(words, tmp_path) as process:
        out, err = process.communicate(timeout=150)
    assert process.returncode == 10, err
    result = json.loads(out)
    arms = {arm["arm"]: arm for arm in result["arms"]}
    assert arms["d10"]["status"] == "refused"
    assert {name for name, arm in arms.items() if arm["status"] == "measured"} == {"d3", "d4", "d5"}
    assert result["choice"]["recommended"] in ("d4", "d5")
    running = {name: arm["fit"]["actual"]["max_running_requests"] for name, arm in arms.items() if name != "d10"}
    assert running == {"d3": 26, "d4": 21, "d5": 17}
    assert not any(arm["fit"].get("surprise") for arm in arms.values() if arm.get("fit"))
    assert none_left(10.0)
