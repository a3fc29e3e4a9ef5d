"""Calibrated from what was measured, it answers for what was not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from draftmark.errors import BadInputError
from draftmark.model import RequestRecord
from draftmark.sim.acceptance import survival
from draftmark.sim.calibrate import Point, calibrated, cases, fitted
from draftmark.sim.cost import RoundCost
from draftmark.sim.setup import Setup, setup
from draftmark.sim.text import chat_text
from draftmark.sim.words import Words

from .conftest import drafting

HERE = Path(__file__).resolve()
CAPTURES = HERE.parents[3] / "shared" / "captures" / "sglang-h200"


@pytest.fixture(scope="module")
def usual() -> Setup:
    return setup(Words(model="qwen35-35b", gpus="h200", flags=drafting(3)))


def truth(usual: Setup) -> RoundCost:
    """Another computer than the data sheet's."""
    return replace(usual.cost, base=usual.cost.base * 1.7, experts=usual.cost.experts * 0.6, draft=1.3e-3)


def point(cost: RoundCost, requests: int, depth: int) -> Point:
    cached = 400 * requests
    return Point(requests, depth, cached, cost.round_s(requests, depth, depth + 1, cached))


def test_what_was_measured_comes_out_again(usual: Setup) -> None:
    real = truth(usual)
    points = [point(real, c, k) for c in (1, 8) for k in (1, 3)]
    found = fitted(usual.cost, points)
    for each in points:
        told = found.round_s(each.requests, each.depth, each.depth + 1, round(each.cached))
        assert told == pytest.approx(each.seconds, rel=0.03)


def test_what_if_other_concurrencies_and_depths(usual: Setup) -> None:
    real = truth(usual)
    found = fitted(usual.cost, [point(real, c, k) for c in (1, 8) for k in (0, 1, 5)])
    for requests in (1, 2, 4, 16):
        for depth in (0, 2, 3, 4):
            told = found.round_s(requests, depth, depth + 1, 400 * requests)
            assert told == pytest.approx(real.round_s(requests, depth, depth + 1, 400 * requests), rel=0.08)


def test_no_parameter_runs_below_zero(usual: Setup) -> None:
    """Rounds that get cheaper with depth can only be noise."""
    seconds = {0: 0.010, 1: 0.0099, 3: 0.0098, 5: 0.0097}
    found = fitted(usual.cost, [Point(1, depth, 0.0, each) for depth, each in seconds.items()])
    assert min(found.base, found.experts, found.token, found.draft, found.draft_request) >= 0


def test_the_founding_case_has_its_figures() -> None:
    made = setup(
        Words(
            model="qwen35-122b", gpus="4xrtx-pro-6000", version="0.5.12", calibrate="founding",
            flags=("--mamba-scheduler-strategy", "extra_buffer", *drafting(3)),
        )
    )  # fmt: skip
    speeds = []
    for depth in range(1, 6):
        length = 1 + sum(survival(cases()["founding"]["chances"], depth))
        speeds.append(length / made.cost.round_s(1, depth, depth + 1, 0))
    assert speeds == pytest.approx([123, 186, 234, 277, 282], rel=1e-6)


def run_directory(path: Path, cost: RoundCost, *, torn: bool = False) -> Path:
    """A run of two depths, one of them off, one workload."""
    messages = [{"role": "user", "content": "Say something."}]
    prompts = [{"id": "one", "messages": messages, "max_tokens": 101}]
    path.joinpath("run.json").write_text(json.dumps({"workloads": [{"name": "mine", "prompts": prompts}]}))
    for depth, histogram in ((0, None), (3, (10, 10, 5, 15))):
        folder = path / "trials" / f"01-{f'd{depth}' if depth else 'off'}"
        folder.mkdir(parents=True)
        rounds = sum(histogram) if histogram else 100
        record = RequestRecord(
            tag="bench-1", workload="mine", prompt_id="one", concurrency=1, sent_at_s=0.0, end_at_s=99.0,
            first_token_at_s=1.0, last_token_at_s=1.0 + rounds * cost.round_s(1, depth, depth + 1, 60),
            prompt_tokens=10, output_tokens=101, accepted_histogram=histogram,
        )  # fmt: skip
        data = msgspec.json.encode(record) + b"\n"
        folder.joinpath("requests.jsonl").write_bytes(data + (b'{"tag": "ben' if torn else b""))
    return path


def test_from_a_run_directory(usual: Setup, tmp_path: Path) -> None:
    real = truth(usual)
    cost, acceptance = calibrated(str(run_directory(tmp_path, real, torn=True)), usual.cost, usual.acceptance)
    assert acceptance.chances["mine"] == pytest.approx((0.75, 2 / 3, 0.75))
    assert acceptance.kind(chat_text([{"role": "user", "content": "Say something."}])) == "mine"
    assert acceptance.kind("Translate this") == "translation"
    for depth in (0, 3):
        assert cost.round_s(1, depth, depth + 1, 60) == pytest.approx(
            real.round_s(1, depth, depth + 1, 60), rel=0.03
        )


def test_what_is_no_run_is_refused(usual: Setup, tmp_path: Path) -> None:
    for name in (str(tmp_path), "nowhere"):
        with pytest.raises(BadInputError, match="neither a run directory nor a known case"):
            calibrated(name, usual.cost, usual.acceptance)
    tmp_path.joinpath("run.json").write_text("{}")
    with pytest.raises(BadInputError, match="how long its rounds took"):
        calibrated(str(tmp_path), usual.cost, usual.acceptance)


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures are not beside this checkout")
def test_the_captured_h200_is_met_after_calibration(usual: Setup) -> None:
    """From the figures of depths 0, 1 and 5 the throughput of depth 3, one single noisy run each (README)."""
    shape = setup(
        Words(
            model=str(CAPTURES / "model"), gpus="h200",
            flags=("--mem-fraction-static", "0.62", "--disable-radix-cache", *drafting(3)),
        )
    )  # fmt: skip
    measured = {0: (243.5, 1009.3, 2153.0), 1: (342.6, 1373.8, 3019.6), 5: (492.5, 1669.1, 4719.3)}
    lengths = {0: 1.0, 1: 1.897, 3: 3.544, 5: 4.879}
    levels = (1, 8, 32)
    points = [
        Point(level, depth, 384.0 * level, level * lengths[depth] / speed)
        for depth, speeds in measured.items()
        for level, speed in zip(levels, speeds, strict=True)
    ]
    cost = fitted(shape.cost, points)
    three = [level * lengths[3] / cost.round_s(level, 3, 4, 384 * level) for level in levels]
    assert three == pytest.approx([503.0, 1415.4, 3665.2], rel=0.25)
