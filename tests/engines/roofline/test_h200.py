"""The floor against rounds that were measured on an H200, and the founding case's finding."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.engines.roofline.shapes import DATA, captured, founding_config

from draftmark.engines.model_config import read_shape
from draftmark.engines.roofline import Measured, Roofline, Served, card_of, measured_rounds, sentences

# The captured model under forced acceptance (docs/roofline.md): output tok/s at 1, 8 and 32 at once, prefill
# included, and the accept length that was observed; prompts and answers of 256 tokens.
MEASURED = {
    0: ((243.5, 1009.3, 2153.0), 1.0),
    1: ((342.6, 1373.8, 3019.6), 1.897),
    3: ((503.0, 1415.4, 3665.2), 3.544),
    5: ((492.5, 1669.1, 4719.3), 4.879),
}
FIGURES = [
    (depth, level, rate, accepted)
    for depth, (rates, accepted) in MEASURED.items()
    for level, rate in zip((1, 8, 32), rates, strict=True)
]


def on(card: str, **more: Any) -> Roofline:
    found = card_of(card)
    assert found is not None
    return Roofline(Served(**{"card": found, "shape": captured(), "draft": "own-layers", **more}))


@pytest.mark.parametrize(("depth", "level", "rate", "accepted"), FIGURES)
def test_the_floor_lies_below_every_capture(depth: int, level: int, rate: float, accepted: float) -> None:
    measured_s = level * accepted / rate
    floor_s = on("NVIDIA H200").round(level, depth, 256 + 128).floor_s
    assert floor_s < measured_s
    assert measured_s < (4 if level == 1 else 2.5) * floor_s


@pytest.mark.parametrize("context", [0, 250])
def test_the_floor_lies_below_every_round_of_a_sweep(context: int) -> None:
    """Six depths of another sweep, at as many requests as decoded: fewer than 32, while others were prefilled."""
    result = json.loads((DATA / "sglang" / "h200" / "nextn-0.92.result.json").read_text(encoding="utf-8"))
    found = measured_rounds(result)
    assert {(each.depth, each.concurrency) for each in found} == {(k, c) for k in range(6) for c in (1, 32)}
    for each in found:
        over = each.over_floor(on("NVIDIA H200"), context)
        assert 1 < over < 4, each


def test_a_small_model_is_far_above_its_floor() -> None:
    """SmolLM2-135M: launches, not memory, make its rounds, and drafting by n-grams made them longer."""
    path = DATA / "model_config" / "smollm2-135m.json"
    shape = read_shape(json.loads(path.read_text(encoding="utf-8"))["config"])
    line = on("NVIDIA H200", shape=shape, draft="none")
    result = json.loads((DATA / "sglang" / "h200" / "ngram.result.json").read_text(encoding="utf-8"))
    found = measured_rounds(result)
    assert len(found) == 20
    assert min(each.over_floor(line, 200) for each in found) > 10


def test_gains_that_were_measured_stay_below_their_ceiling() -> None:
    """By the round without drafts as measured. Floor over floor bounds nothing: 2.07 at depth 3 is above it."""
    line = on("NVIDIA H200")
    for depth, level, rate, accepted in FIGURES:
        alone = dict(zip((1, 8, 32), MEASURED[0][0], strict=True))[level]
        assert rate / alone <= line.gain_ceiling(level, depth, 384, level / alone, accepted) + 1e-9
    assert line.gain_at_floor(1, 3, 384, 3.544) < 503.0 / 243.5


def test_the_founding_case() -> None:
    """256 experts of width 256 on four cards: memory-bound at all that was served, no kernel was worth tuning."""
    line = on(
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", shape=read_shape(founding_config()), tensor_parallel=4
    )
    for depth in range(9):
        since = line.compute_bound_from("experts", depth, 1024)
        assert since is not None
        assert since > 48
        assert line.round(48, depth, 1024).shares()[0].bound == "memory"
    told = sentences(line, 4, (1, 8, 21), 1024)
    assert told[0] == (
        "expert GEMMs read weights for c·(k+1) tokens at expert width 256 (1,024 over 4 cards): memory-bound up to "
        "c = 1,799 at depth 4; tuning their kernels for arithmetic cannot help, drafting can"
    )


def test_a_few_wide_experts_are_compute_bound_where_it_is_crowded() -> None:
    path = DATA / "model_config" / "mixtral-8x7b.json"
    shape = read_shape(json.loads(path.read_text(encoding="utf-8"))["config"])
    line = on("NVIDIA GeForce RTX 4090", shape=shape, tensor_parallel=8, draft="none")
    told = sentences(line, 7, (1, 256), 100)
    assert "compute-bound from c = " in told[0]
    assert "better kernels can help" in told[0]


def test_a_round_below_its_floor_is_explained_and_not_hidden() -> None:
    """Balanced routing is the most that experts can be read; a router with preferences reads fewer."""
    quick = Measured(depth=2, workload="chat", concurrency=32, round_ms=9.0, decoding=30.0)
    told = sentences(on("NVIDIA H200"), 2, (1, 32), 1024, (quick,))
    (said,) = [each for each in told if each.startswith("32 at once")]
    assert "measured at depth 2 9.00 ms, 30 decoding: 0.6" in said
    assert "its tokens meet the same experts more often than by chance" in said
    assert "over the round measured without drafts" not in said
