"""What does not start whatever memory there is: shapes that cannot be divided, combinations that SGLang ends at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmark.engines.sglang.engine import SGLang
from draftmark.model import Arm, Fit, FitArm, Gpu
from draftmark.ports import FitScene

CONFIGS = Path(__file__).parents[2] / "data" / "model_config"
DSPARK = "--speculative-algorithm DSPARK --speculative-dspark-block-size 8"
PLAIN = ("python3", "-m", "sglang.launch_server", "--model-path", "/model", "--mem-fraction-static", "0.9")


def fitted(model: str, flags: str, version: str | None, depth: int) -> Fit:
    config = json.dumps(json.loads((CONFIGS / f"{model}.json").read_text())["config"]).encode()
    scene = FitScene(
        read=lambda _: config, gpus=lambda: (Gpu(name="big", total_mib=2_000_000),), version=version, model_dir="/m"
    )
    found = SGLang(version=version).fit((*PLAIN, *flags.split()), [Arm(depth)], scene)
    assert found is not None
    return found


def verdict(model: str, flags: str = "", version: str | None = "0.5.17", *, depth: int = 0) -> FitArm:
    return fitted(model, flags, version, depth).arms[0]


@pytest.mark.parametrize(
    ("model", "good", "bad", "why"),
    [
        ("llama-3.1-8b", (1, 2, 4, 8, 16, 32), (3, 5, 64), "32 attention heads"),
        ("smollm2-135m", (1, 3, 9), (2, 4, 8), "9 attention heads"),
        ("qwen2.5-7b", (1, 2, 4), (8, 3), "28 attention heads"),
        ("phi-4", (1, 2, 5, 10), (4, 8), "10 KV heads"),
        ("deepseek-v3", (8, 16), (7,), "128 attention heads"),
        ("qwen3-next-80b-a3b", (1, 2, 4, 8), (3, 32), "16 attention heads"),
    ],
)
def test_ranks_that_heads_cannot_be_divided_among(
    model: str, good: tuple[int, ...], bad: tuple[int, ...], why: str
) -> None:
    for ranks in good:
        assert verdict(model, f"--tp-size {ranks}").fits is True
    for ranks in bad:
        found = verdict(model, f"--tp-size {ranks}")
        assert (found.fits, found.figures.kv_tokens) == (False, None)
        assert why in found.because[0]
        assert found.to_get_more[0].startswith("--tp-size 1, ")


def test_blocks_of_fp8_are_not_cut() -> None:
    """768 inputs of an expert among 8 ranks are 96: not a block of 128."""
    assert verdict("qwen3-30b-a3b-fp8", "--tp-size 2").fits is True
    found = verdict("qwen3-30b-a3b-fp8", "--tp-size 8")
    assert found.fits is False
    assert "96 of gate_proj" in found.because[0]
    assert verdict("qwen3-30b-a3b-fp8", "--tp-size 8 --ep-size 8").fits is True
    assert verdict("qwen3-30b-a3b", "--tp-size 8").fits is True
    assert verdict("deepseek-v3", "--tp-size 16").fits is True
    assert verdict("deepseek-v3", "--tp-size 32").fits is False


def test_attention_ranks_have_to_come_out_even() -> None:
    assert verdict("llama-3.1-8b", "--tp-size 4 --dp-size 2 --enable-dp-attention").fits is True
    found = verdict("llama-3.1-8b", "--tp-size 2 --dp-size 3 --enable-dp-attention")
    assert found.fits is False
    assert "does not come out even" in found.because[0]
    assert verdict("llama-3.1-8b", "--tp-size 2 --dp-size 3").fits is True  # three whole copies


@pytest.mark.parametrize(
    ("version", "flags", "why"),
    [
        ("0.5.12", "", "not compatible with the radix cache"),
        ("0.5.10", "--mamba-scheduler-strategy no_buffer", "not compatible with the radix cache"),
        ("0.5.12", "--mamba-scheduler-strategy extra_buffer", None),
        ("0.5.12", "--disable-radix-cache", None),
        ("0.5.12", "--mamba-scheduler-strategy extra_buffer --disable-radix-cache", "not compatible"),
        ("0.5.14", "", None),
        ("0.5.14", "--mamba-radix-cache-strategy extra_buffer_lazy", "unsupported with spec"),
        ("0.5.17", "--mamba-radix-cache-strategy extra_buffer_lazy", None),
        ("0.5.17", "--mamba-radix-cache-strategy no_buffer", "overlap schedule"),
        ("0.5.17", "--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule", None),
    ],
)
def test_how_a_hybrid_models_radix_cache_keeps_state(version: str, flags: str, why: str | None) -> None:
    found = verdict("qwen3-next-80b-a3b", f"--speculative-algorithm NEXTN {flags}", version, depth=3)
    assert found.fits is (why is None)
    assert why is None or why in found.because[0]


def test_a_strategy_that_the_model_does_not_have() -> None:
    flags = "--mamba-radix-cache-strategy extra_buffer"
    assert "not supported for KimiLinear" in verdict("kimi-linear-48b-a3b", flags, "0.5.14").because[0]
    assert verdict("kimi-linear-48b-a3b", flags, "0.5.17").fits is True


def test_a_model_that_early_versions_serve_without_the_radix_cache() -> None:
    """One slot a request, not three: it holds as many requests as it has slots."""
    early, later = (verdict("kimi-linear-48b-a3b", "--tp-size 2", version) for version in ("0.5.12", "0.5.14"))
    assert any("1 a request" in line for line in early.because)
    assert any("3 a request" in line for line in later.because)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--speculative-algorithm NGRAM --tp-size 2 --dp-size 2 --enable-dp-attention", "dp attention"),
        ("--speculative-algorithm DFLASH", "requires setting --speculative-draft-model-path"),
    ],
)
def test_what_the_command_line_alone_tells(flags: str, why: str) -> None:
    found = verdict("llama-3.1-8b", flags, depth=4)
    assert (found.fits, found.binding) == (False, None)
    assert why in found.because[0]


def test_versions_that_differ_leave_it_open() -> None:
    """0.5.13 lies between one that refuses it and one that does not; a version nobody knows as well."""
    flags = "--speculative-algorithm NEXTN --tp-size 2"
    for version in ("0.5.13", None):
        found = verdict("qwen3-next-80b-a3b", flags, version, depth=3)
        assert found.fits is None
        assert "not compatible with the radix cache" in found.because[0]


def test_an_own_fraction_below_nothing() -> None:
    config = json.dumps(json.loads((CONFIGS / "llama-3.1-8b.json").read_text())["config"]).encode()
    scene = FitScene(read=lambda _: config, gpus=lambda: (Gpu(name="h200", total_mib=143_771),), model_dir="/m")
    words = (*PLAIN[:-2], "--chunked-prefill-size", "1000000")
    found = SGLang(version="0.5.17").fit(words, [Arm(0)], scene)
    assert found is not None
    assert found.arms[0].fits is False
    assert "keeps back more than the card has" in found.arms[0].because[0]
    assert len(found.arms[0].because) == 1


def test_a_draft_that_nobody_names() -> None:
    """Of a model without layers to draft with SGLang loads the whole a second time; EAGLE-3 cannot run that."""
    found = verdict("llama-3.1-8b", "--speculative-algorithm EAGLE3", depth=3)
    assert (found.fits, "AttributeError" in found.because[0]) == (False, True)
    twice = fitted("llama-3.1-8b", "--speculative-algorithm NEXTN --mem-fraction-static 0.4", "0.5.17", 3)
    alone = fitted("llama-3.1-8b", "--mem-fraction-static 0.4", "0.5.17", 0)
    weights = [float(each.arms[0].because[0].split(" less ")[1].split()[0]) for each in (twice, alone)]
    assert weights[0] == pytest.approx(2 * weights[1], rel=0.02)
    assert any("the whole model a second time" in each for each in twice.assumptions)
    assert twice.arms[0].fits is True
    over = verdict("llama-3.1-8b", "--speculative-algorithm NEXTN", depth=3)  # its pool is as large as the target's
    assert (over.fits, over.binding) == (False, "graphs")


def test_a_draft_class_of_its_own_without_its_layers() -> None:
    found = fitted("qwen3-30b-a3b", "--speculative-algorithm NEXTN", "0.5.17", 3)
    assert any("one layer like the target's is assumed" in each for each in found.assumptions)
    arm = found.arms[0]
    assert arm.low.kv_tokens is not None
    assert arm.high.kv_tokens is not None
    assert arm.high.kv_tokens > 1.001 * arm.low.kv_tokens


@pytest.mark.parametrize("version", ["0.5.9", "0.5.24", "0.6.0", "0.4.1"])
def test_versions_outside_of_those_read_have_wide_bounds(version: str) -> None:
    outside, read = verdict("llama-3.1-8b", "", version), verdict("llama-3.1-8b", "", "0.5.23")
    assert outside.low.kv_tokens is not None
    assert outside.figures.kv_tokens is not None
    assert read.low.kv_tokens is not None
    assert read.figures.kv_tokens is not None
    assert outside.low.kv_tokens < 0.95 * outside.figures.kv_tokens
    assert read.low.kv_tokens > 0.98 * read.figures.kv_tokens


@pytest.mark.parametrize(
    ("flags", "version", "why"),
    [
        ("--context-length 131072", "0.5.17", None),
        ("--context-length 131073", "0.5.17", "longer than the model's 131072"),
        ("--context-length 9999999", "0.5.10", "longer than the model's 131072"),
        (DSPARK, "0.5.17", "DSpark dense speculative decoding requires"),
        (DSPARK, "0.5.20", "DSpark dense speculative decoding requires"),
        (DSPARK, "0.5.23", None),  # a folder beside the weights, which this model has
        (f"{DSPARK} --speculative-draft-model-path /d", "0.5.17", None),
        ("--speculative-algorithm DFLASH", "0.5.17", "DFLASH speculative decoding requires"),
    ],
)
def test_what_the_files_do_not_have(flags: str, version: str, why: str | None) -> None:
    found = verdict("llama-3.1-8b", flags, version, depth=8 if "algorithm" in flags else 0)
    assert (found.fits is False) == (why is not None)
    assert why is None or why in found.because[0]


def test_a_longer_context_starts_where_a_variable_allows_it() -> None:
    words = ("env", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1", *PLAIN, "--context-length", "200000")
    config = json.dumps(json.loads((CONFIGS / "llama-3.1-8b.json").read_text())["config"]).encode()
    scene = FitScene(
        read=lambda _: config,
        gpus=lambda: (Gpu(name="big", total_mib=2_000_000),),
        version="0.5.17",
        model_dir="/m",
    )
    found = SGLang(version="0.5.17").fit(words, [Arm(0)], scene)
    assert found is not None
    assert found.arms[0].fits is True


@pytest.mark.parametrize("method", ["DFLASH", "NGRAM"])
def test_fit_and_plan_refuse_alike(method: str) -> None:
    """A depth of 1 drafts nothing where the last round's token counts."""
    engine = SGLang(version="0.5.17")
    words = (*PLAIN, "--speculative-algorithm", method)
    for depth in (1, 8):
        refusal = engine.refuse(words, Arm(depth))
        found = verdict("llama-3.1-8b", f"--speculative-algorithm {method}", depth=depth)
        assert (found.fits is False) == (refusal is not None)
        assert refusal is None or refusal.because in found.because


@pytest.mark.parametrize("version", ["0.5.12", "0.5.14", "0.5.17", "0.5.23"])
@pytest.mark.parametrize(
    ("flags", "starts"),
    [
        ("--page-size 64", True),
        ("--page-size 48", False),
        ("--page-size 3", False),
        ("--page-size 48 --mamba-track-interval 480", False),
        ("--page-size 320 --mamba-track-interval 640", True),
    ],
)
def test_pages_on_which_state_can_be_kept(flags: str, starts: bool, version: str) -> None:
    name = "--mamba-scheduler-strategy" if version == "0.5.12" else "--mamba-radix-cache-strategy"
    found = verdict("qwen3-next-80b-a3b", f"{name} extra_buffer {flags}", version)
    assert (found.fits is not False) == starts
    assert starts or "extra_buffer wants" in found.because[0]
