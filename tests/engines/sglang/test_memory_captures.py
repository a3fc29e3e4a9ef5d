"""Real boots of 0.5.17 on an H200, predicted from each other and from the config alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from draftmark.engines.sglang.engine import SGLang
from draftmark.model import Arm, Fit, FitFigures, Gpu
from draftmark.ports import FitScene

CAPTURES = Path(__file__).resolve().parents[3].parent / "shared" / "captures" / "sglang-h200"
pytestmark = pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not at ../shared")

H200 = Gpu(name="H200", total_mib=143_771)
# steps: (tokens, requests at once, state slots), as logged.
LOGGED = {0: (638_839, 181, 181), 1: (647_094, 48, 48), 3: (338_982, 48, 48), 5: (30_870, 48, 48)}
DEPTHS = (0, 1, 2, 3, 4, 5, 6, 10)
COMMAND = (
    "python3", "-m", "sglang.launch_server", "--model-path", "/models/qwen35-shaped", "--load-format", "dummy",
    "--mem-fraction-static", "0.62", "--disable-radix-cache", "--cuda-graph-max-bs", "32",
)  # fmt: skip


def log(steps: int) -> list[str]:
    return (CAPTURES / f"q35_k{steps}_mf0.62.log").read_text(errors="replace").splitlines()


def predicted(
    lines: Iterable[str] | None = None,
    *,
    command: tuple[str, ...] = (),
    gpus: tuple[Gpu, ...] = (),
    version: str | None = None,
    depths: tuple[int, ...] = DEPTHS,
) -> Fit:
    scene = FitScene(
        read=lambda path: Path(path).read_bytes(),
        gpus=lambda: gpus,
        log=lines,
        log_name=None if lines is None else "boot.log",
        version=version,
        model_dir=str(CAPTURES / "model"),
    )
    found = SGLang(method="NEXTN").fit(command, [Arm(depth) for depth in depths], scene)
    assert found is not None
    return found


def figures(fit: Fit, depth: int) -> FitFigures:
    arm = fit.of(Arm(depth))
    assert arm is not None
    return arm.figures


@pytest.mark.parametrize("steps", LOGGED)
@pytest.mark.parametrize("command", [(), COMMAND])
def test_any_boot_predicts_the_others(steps: int, command: tuple[str, ...]) -> None:
    found = predicted(log(steps), command=command)
    assert found.calibrated_from == "boot.log"
    assert found.version == "0.5.17"
    for depth, (tokens, running, slots) in LOGGED.items():
        own = figures(found, depth)
        assert own.kv_tokens == pytest.approx(tokens, rel=0.002)
        assert (own.max_running_requests, own.state_slots) == (running, slots)


@pytest.mark.parametrize("steps", LOGGED)
def test_a_boot_predicts_itself_exactly(steps: int) -> None:
    own = predicted(log(steps)).of(Arm(steps))
    assert own is not None
    assert own.figures.kv_tokens == LOGGED[steps][0]
    assert own.low.kv_tokens is not None
    assert own.high.kv_tokens is not None
    assert own.low.kv_tokens <= LOGGED[steps][0] <= own.high.kv_tokens <= own.low.kv_tokens + 1


@pytest.mark.parametrize("steps", [0, 1, 3, 5, 10])
def test_what_does_not_start_and_the_fraction_that_it_needs(steps: int) -> None:
    """SGLang's own message says 0.468, with 0.62 in force."""
    found = predicted(log(steps))
    assert [arm.arm.depth for arm in found.arms if arm.fits is False] == [6, 10]
    deep = found.of(Arm(10))
    assert deep is not None
    assert deep.binding == "state-slots"
    least = [float(m[1]) for text in deep.to_get_more if (m := re.match(r"--mem-fraction-static (0\.\d+)", text))]
    assert least == [pytest.approx(0.721, abs=0.0015)]
    assert any("0.468" in text and "not enough" in text for text in deep.to_get_more)
    assert any(text.startswith("--max-running-requests 28 at most") for text in deep.to_get_more)


def test_from_the_boot_that_failed() -> None:
    """It tells the memory, not the pools."""
    found = predicted(log(10))
    for depth, (tokens, running, _) in LOGGED.items():
        assert figures(found, depth).kv_tokens == pytest.approx(tokens, rel=0.002)
        assert figures(found, depth).max_running_requests == running


def test_from_the_config_and_the_card_alone() -> None:
    found = predicted(command=COMMAND, gpus=(H200,), version="0.5.17")
    assert found.calibrated_from is None
    for depth, (tokens, running, slots) in LOGGED.items():
        arm = found.of(Arm(depth))
        assert arm is not None
        assert arm.fits is True
        assert arm.figures.kv_tokens == pytest.approx(tokens, rel=0.05)
        assert (arm.figures.max_running_requests, arm.figures.state_slots) == (running, slots)
        assert arm.low.kv_tokens is not None
        assert arm.high.kv_tokens is not None
        assert arm.low.kv_tokens < tokens < arm.high.kv_tokens
    assert [arm.arm.depth for arm in found.arms if arm.fits is False] == [6, 10]


def test_a_log_that_is_cut_after_the_weights_still_tells_the_memory() -> None:
    lines = log(3)
    end = next(i for i, line in enumerate(lines) if "Mamba Cache is allocated" in line)
    found = predicted(lines[:end])
    assert found.calibrated_from == "boot.log"
    own = found.of(Arm(3))
    assert own is not None
    assert own.figures.kv_tokens == pytest.approx(338_982, rel=0.005)
    assert own.low.kv_tokens is not None
    assert own.high.kv_tokens is not None
    assert own.low.kv_tokens < 338_982 < own.high.kv_tokens


def test_nothing_is_taken_from_a_log_that_ends_before_the_weights() -> None:
    lines = log(3)
    end = next(i for i, line in enumerate(lines) if "Load weight" in line)
    found = predicted(lines[:end], gpus=(H200,))
    assert found.calibrated_from is None
    assert any("nothing is taken from it" in each for each in found.assumptions)


def test_a_log_of_another_tensor_parallel_group_does_not_hold() -> None:
    found = predicted(log(3), command=(*COMMAND, "--tp-size", "2"), gpus=(H200,), version="0.5.17")
    assert found.calibrated_from is None
    assert any("--tp-size" in each for each in found.assumptions)


def test_figures_that_do_not_follow_are_said_and_widen_the_bounds() -> None:
    lines = [re.sub(r"338982|max_mamba_cache_size: 48", lambda m: {"338982": "238982"}.get(m[0], m[0]), each)
             for each in log(3)]  # fmt: skip
    found = predicted(lines)
    assert any("do not follow" in each for each in found.assumptions)
    own = found.of(Arm(3))
    assert own is not None
    assert own.low.kv_tokens is not None
    assert own.high.kv_tokens is not None
    assert own.low.kv_tokens <= 238_982
    assert own.high.kv_tokens >= 338_982


def test_what_a_start_had_is_read_from_its_log() -> None:
    assert SGLang().fit_figures(log(3)) == FitFigures(kv_tokens=338_982, max_running_requests=48, state_slots=48)
    assert SGLang().fit_figures(log(10)) is None
