"""What a simulated server has is what `fit` estimates; its log says the same, in words that every reader knows."""

from __future__ import annotations

import pytest

from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.log import read_log
from draftmark.errors import UsageError
from draftmark.model import Arm, FitFigures
from draftmark.ports import FitScene
from draftmark.sim.memory import read_file
from draftmark.sim.presets import cards_of, model_names
from draftmark.sim.setup import setup
from draftmark.sim.words import Words

from .boots import booted
from .conftest import drafting

CARDS = {
    "smollm2-135m": "h200",
    "llama-3.1-8b": "rtx-4090",
    "qwen3-next-80b": "2xh200",
    "qwen35-35b": "h200",
    "qwen35-122b": "4xrtx-pro-6000",
}
VERSIONS = ("0.5.10", "0.5.12", "0.5.14", "0.5.17", "0.5.20", "0.5.23")
DRAFTING = tuple(name for name in CARDS if name.startswith("qwen"))


def flags_of(model: str, steps: int, version: str) -> tuple[str, ...]:
    if steps and model not in DRAFTING:
        return ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(steps + 1))
    hybrid = model in DRAFTING and version in ("0.5.10", "0.5.12")
    strategy = ("--mamba-scheduler-strategy", "extra_buffer") if hybrid else ()
    return (*drafting(steps), *strategy)


def test_every_preset_has_a_card() -> None:
    assert set(CARDS) == set(model_names())


@pytest.mark.no_cover
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("model", CARDS)
@pytest.mark.parametrize("steps", [0, 1, 3, 5, 8, 10])
def test_memory_equals_fit_and_the_log_says_so(model: str, steps: int, version: str) -> None:
    made, lines = booted(model=model, gpus=CARDS[model], version=version, flags=flags_of(model, steps, version))
    cards = cards_of(CARDS[model])
    scene = FitScene(read=read_file, gpus=lambda: (cards.gpu,), version=version)
    engine = SGLang()
    arm = engine.arm(made.command) if steps else Arm(0)
    (verdict,) = engine.fit(made.command, [arm], scene).arms  # type: ignore[union-attr]
    pools = made.memory.pools
    told = FitFigures(kv_tokens=pools.tokens, max_running_requests=pools.running, state_slots=pools.slots)
    log = read_log(lines)
    assert log.lines.samples == ()
    assert log.boot.ready == made.memory.starts
    if not made.memory.starts:
        assert verdict.fits is not True
        assert log.boot.failures
        return
    assert verdict.fits is not False
    assert verdict.figures == told
    assert engine.fit_figures(lines) == told
    range_ = log.boot.version_range
    assert (range_.since or "0.5.10") <= version <= (range_.until or "0.5.23")
    assert not range_.contradictory


@pytest.mark.parametrize("version", ["0.5.12", "0.5.14", "0.5.17", "0.5.23"])
@pytest.mark.parametrize("model", DRAFTING)
def test_a_simulated_boot_log_calibrates_fit_as_a_real_one_does(model: str, version: str) -> None:
    """From depth 3's log the figures of depth 5, to the token."""
    three, lines = booted(model=model, gpus=CARDS[model], version=version, flags=flags_of(model, 3, version))
    five = setup(Words(model=model, gpus=CARDS[model], version=version, flags=flags_of(model, 5, version)))
    scene = FitScene(read=read_file, log=lines, log_name="boot.log", version=version)
    found = SGLang().fit(three.command, [Arm(3), Arm(5)], scene)
    assert found is not None
    assert found.calibrated_from == "boot.log"
    for verdict, made in zip(found.arms, (three, five), strict=True):
        assert verdict.figures.max_running_requests == made.memory.pools.running
        assert verdict.figures.state_slots == made.memory.pools.slots
        assert verdict.figures.kv_tokens == pytest.approx(made.memory.pools.tokens, abs=2)


def test_the_founding_case_21_17_and_10_does_not_start() -> None:
    found = {}
    for steps in (3, 4, 5, 10):
        flags = ("--mem-fraction-static", "0.7915", *flags_of("qwen35-122b", steps, "0.5.12"))
        memory = setup(Words(model="qwen35-122b", gpus="4xrtx-pro-6000", version="0.5.12", flags=flags)).memory
        found[steps] = memory.pools.running if memory.starts else None
    assert found == {3: 26, 4: 21, 5: 17, 10: None}


def test_cards_are_not_invented() -> None:
    with pytest.raises(UsageError):
        setup(Words(model="smollm2-135m", gpus="abacus"))
    with pytest.raises(UsageError, match="GPUs are needed"):
        setup(Words(model="smollm2-135m", gpus="2xh200", flags=("--tp-size", "4")))
    assert cards_of("2 x 80GiB").count == 2
    assert cards_of("4xrtx-pro-6000").gpu.total_mib == 97887
