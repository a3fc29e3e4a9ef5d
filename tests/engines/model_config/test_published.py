"""Weights added up from config.json against the counts that are published for the same models."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.engines.model_config import ModelShape, read_shape

DATA = Path(__file__).parents[2] / "data" / "model_config"
MODELS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("*.json"))}
ITEMSIZE = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U8": 1, "F8_E4M3": 1}

# Counts that are published in two or three digits only.
ROUNDED = {"falcon-h1-0.5b": 0.01, "kimi-linear-48b-a3b": 0.03}
# Published totals leave out the 128 (512) floats a layer that correct its router's scores.
SHORT_BY = {"nemotron-3-nano-30b-a3b": 23 * 128, "nemotron-3-super-120b-a12b": 41 * 512}
# Rotary tables that the files carry: 61 layers of 56.
TABLES = {"kimi-k2": 61 * 56}


def shape_of(name: str) -> ModelShape:
    return read_shape(MODELS[name]["config"])


def stored_elements(shape: ModelShape) -> int:
    """As the Hub counts them: each weight, 4-bit ones unpacked, and each block scale."""
    total = 0
    for tensor in shape.tensors:
        scheme = shape.quantization.scheme(tensor)
        total += tensor.parameters
        if scheme and scheme.group:
            scales = -(-tensor.rows // scheme.group_rows) * -(-tensor.columns // scheme.group)
            total += tensor.count * scales
    return total


def with_key(key: str) -> list[str]:
    return [name for name, model in MODELS.items() if key in model["published"]]


@pytest.mark.parametrize("name", with_key("parameters"))
def test_parameters_are_the_published_ones(name: str) -> None:
    published, shape = MODELS[name]["published"], shape_of(name)
    weights = shape.weights()
    counted = weights.parameters
    if published.get("tied_head_stored"):
        counted += weights.of("embedding").parameters
    if name in ROUNDED:
        assert counted == pytest.approx(published["parameters"], rel=ROUNDED[name])
    else:
        assert counted - SHORT_BY.get(name, 0) == published["parameters"]


@pytest.mark.parametrize("name", with_key("elements"))
def test_quantized_checkpoints_hold_as_many_elements_as_published(name: str) -> None:
    assert stored_elements(shape_of(name)) + TABLES.get(name, 0) == MODELS[name]["published"]["elements"]


@pytest.mark.parametrize("name", with_key("stored"))
def test_bytes_are_those_of_the_stored_types(name: str) -> None:
    stored = MODELS[name]["published"]["stored"]
    expected = sum(ITEMSIZE[kind] * count for kind, count in stored.items())
    assert shape_of(name).weights().bytes == pytest.approx(expected, rel=1e-6)


def test_the_table_spans_a_dozen_families_with_exact_counts() -> None:
    exact = {shape_of(name).family for name in MODELS if name not in ROUNDED}
    assert len(exact) >= 12
    assert {"llama", "mixtral", "deepseek", "gpt_oss", "gemma3", "qwen3_next", "nemotron_h"} <= exact
    assert all(model["published"]["source"] for model in MODELS.values())


def test_gpt_oss_takes_13_8_gigabytes() -> None:
    """4-bit experts with a scale for 32, the rest in 16 bits: 2 × 1,804,459,584 + 19,110,297,600 / 2 + … / 32."""
    assert shape_of("gpt-oss-20b").weights().bytes == 2 * 1_804_459_584 + 19_110_297_600 * 17 // 32


def test_deepseek_counts_its_prediction_layer_and_copies_apart() -> None:
    """671 B without them; the README of its weights says 11.5 B unique for the layer, 0.9 B each for the copies."""
    weights = shape_of("deepseek-v3").weights()
    main = weights.parameters - weights.of("mtp", "mtp_copies").parameters
    assert main == 671_026_419_200
    assert weights.of("mtp").parameters == pytest.approx(11.5e9, rel=0.01)
    assert weights.of("mtp_copies").parameters == 2 * 129_280 * 7168


def shaped(config: dict[str, Any]) -> dict[str, Any]:
    """The model of ../shared/captures/sglang-h200: Qwen3.5-35B-A3B with a small vocabulary, text alone."""
    text = {**config["text_config"], "vocab_size": 49152, "tie_word_embeddings": False}
    return {"architectures": ["Qwen3_5MoeForCausalLM"], **text}


def test_a_server_s_log_of_its_weights_agrees() -> None:
    """SGLang 0.5.17 logged 63.11 and 1.94 GiB for target and draft (allocator rounding in the first)."""
    weights = read_shape(shaped(MODELS["qwen3.5-35b-a3b"]["config"])).weights()
    assert weights.target_bytes / 2**30 == pytest.approx(63.11, abs=0.1)
    assert weights.mtp_draft_bytes / 2**30 == pytest.approx(1.94, abs=0.01)


def test_the_parts_are_the_whole() -> None:
    for name in MODELS:
        weights = shape_of(name).weights()
        assert weights.bytes == sum(share.bytes for share in weights.shares)
        assert len({share.part for share in weights.shares}) == len(weights.shares)


def test_a_float32_checkpoint_that_is_loaded_in_16_bits() -> None:
    shape = read_shape({**MODELS["smollm2-135m"]["config"], "torch_dtype": "float32"})
    assert shape.weights().bytes == 4 * 134_515_008
    assert shape.weights(dtype="float16").bytes == 2 * 134_515_008


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_tensor_parallel_ranks_have_a_piece_and_what_cannot_be_cut(ranks: int) -> None:
    shape = shape_of("qwen3-30b-a3b")
    whole, one = shape.weights(), shape.weights(tensor_parallel=ranks)
    assert one.of("experts").bytes == whole.of("experts").bytes // ranks
    assert one.of("router").bytes == whole.of("router").bytes
    assert whole.bytes / ranks < one.bytes < whole.bytes / ranks * 1.05
    keys = 2 * 48 * 4 * 128 * 2048 * 2  # bytes of all key and value projections: 4 heads are cut in 4 at most
    queries = whole.of("attention").bytes - keys
    assert one.of("attention").bytes == queries // ranks + keys // min(ranks, 4)
