"""What Draftmark itself saw on an H200 (docs/h200.md): boots that no rule was made from, and sweeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.log.boot import read_boot
from draftmark.model import Arm, FitFigures
from draftmark.ports import FitScene

HERE = Path(__file__).resolve().parents[2] / "data" / "sglang" / "h200"
# As their logs and /server_info say.
LOGGED = {2: 493_038, 4: 184_926}


def log(depth: int) -> list[str]:
    return (HERE / f"nextn-d{depth}.log").read_text(errors="replace").splitlines()


def result(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HERE / f"{name}.result.json").read_text())
    return document


@pytest.mark.parametrize("depth", LOGGED)
def test_the_logs_say_so(depth: int) -> None:
    summary = read_boot(log(depth)).summary
    assert summary is not None
    assert (summary.max_total_num_tokens, summary.max_running_requests) == (LOGGED[depth], 48)


@pytest.mark.parametrize(("seen", "unseen"), [(2, 4), (4, 2)])
def test_one_boot_predicts_the_other_to_the_token(seen: int, unseen: int) -> None:
    scene = FitScene(
        read=lambda path: Path(path).read_bytes(),
        gpus=lambda: (),
        log=log(seen),
        log_name="boot.log",
        version=None,
        model_dir=str(HERE / "model"),
    )
    found = SGLang(method="NEXTN").fit((), [Arm(unseen), Arm(10)], scene)
    assert found is not None
    assert found.arms[0].figures == FitFigures(kv_tokens=LOGGED[unseen], max_running_requests=48, state_slots=48)
    assert found.arms[1].fits is False


@pytest.mark.parametrize("sweep", ["nextn-0.92", "nextn-0.92-whole", "nextn-0.6", "forecast-0.92", "forecast-0.6"])
def test_what_was_predicted_before_each_start(sweep: str) -> None:
    """From config.json and the card alone, no log: within 13 tokens, and what does not fit was not started."""
    arms = {arm["arm"]: arm for arm in result(sweep)["arms"]}
    assert arms["d10"]["status"] == "refused"
    assert any("0.722" in text for text in arms["d10"]["fit"]["to_get_more"])
    started = [arm["fit"] for arm in arms.values() if arm["status"] == "measured"]
    assert len(started) >= 3
    for fit in started:
        assert fit["surprise"] is None
        assert abs(fit["kv_tokens"] - fit["actual"]["kv_tokens"]) <= 14
        assert fit["max_running_requests"] == fit["actual"]["max_running_requests"]
        assert fit["low"]["kv_tokens"] <= fit["actual"]["kv_tokens"] <= fit["high"]["kv_tokens"]


def test_acceptance_is_what_was_simulated() -> None:
    """Each draft token is accepted with probability 0.92: (1 - 0.92^(k+1)) / 0.08 tokens a round."""
    for arm in result("nextn-0.92")["arms"]:
        if arm["status"] == "measured" and arm["depth"]:
            assert arm["accept_len"] == pytest.approx((1 - 0.92 ** (arm["depth"] + 1)) / 0.08, rel=0.04)


def test_n_gram_drafting_of_a_small_model_is_no_gain() -> None:
    found = result("ngram")
    assert (found["exit_status"], found["choice"]["recommended"]) == (0, "off")
    assert found["warnings"] == [
        "depth 2, depth 4, depth 8 and depth 16 run at most 48 requests at once, the baseline 4096"
    ]


def test_a_deep_draft_loses_where_drafts_are_often_wrong() -> None:
    """Simulated acceptance of 0.92 against 0.6: the choice for a single request is deep, then shallow."""
    chosen = {name: result(name)["choice"]["latency"] for name in ("nextn-0.92-whole", "nextn-0.6")}
    assert chosen == {"nextn-0.92-whole": "d4", "nextn-0.6": "d1"}
    tok_s = {
        arm["arm"]: arm["latency"]["tok_s"] for arm in result("nextn-0.6")["arms"] if arm["status"] == "measured"
    }
    assert tok_s["d2"] > tok_s["d3"] > tok_s["d5"] > tok_s["off"]


@pytest.mark.parametrize(("sweep", "starts"), [("forecast-0.92", 4), ("forecast-0.6", 6)])
def test_a_forecast_starts_what_it_says(sweep: str, starts: int) -> None:
    found = result(sweep)
    assert found["restarts"] == starts
    assert {arm["status"] for arm in found["arms"]} == {"measured", "predicted", "refused"}
