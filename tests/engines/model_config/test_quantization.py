"""How quantized checkpoints are stored, and which of their weights are not."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.engines.model_config import ModelShape, read_shape
from draftmark.engines.model_config.names import Names
from draftmark.engines.model_config.scheme import bnb4, fp8, integer, microscaled, nvfp4
from draftmark.errors import BadInputError

DATA = Path(__file__).parents[2] / "data" / "model_config"


def config(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))["config"]
    return loaded


def quantized(name: str, table: object) -> ModelShape:
    return read_shape({**config(name), "quantization_config": table})


# Of Llama-3.1-8B: all projections, and the rest.
LINEAR = 8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096
WIDE = 2 * (8_030_261_248 - LINEAR)


def test_schemes_by_hand() -> None:
    assert fp8((128, 128)).bytes(256, 300) == 256 * 300 + 2 * 3 * 4
    assert fp8().bytes(256, 300) == 256 * 300 + 4
    assert fp8(channel=True).bytes(256, 300) == 256 * 300 + 256 * 4
    assert integer(4, 128, zeros=True).bytes(10, 256) == 1280 + 20 * 2 + 10
    assert integer(4, -1, zeros=False).bytes(10, 256) == 1280 + 10 * 2
    assert integer(4, 128, zeros=True, act_order=True).bytes(10, 256) == 1280 + 40 + 10 + 256 * 4
    assert microscaled(4).bytes(10, 64) == 320 + 20
    assert nvfp4().bytes(10, 64) == 320 + 40 + 8
    assert bnb4(double=True).bytes(64, 64) == 2048 + 64 + 4 + 4 * 272 + 172


@pytest.mark.parametrize(
    ("table", "each"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 16384),
        ({"quant_method": "fp8", "activation_scheme": "static"}, 1),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 0.5 + 2 / 128 + 0.5 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, 0.5 + 2 / 128 + 0.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 1 + 2 / 32 + 1 / 32),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, 0.5 + 1 / 16),
        ({"quant_algo": "FP8", "exclude_modules": ["lm_head"]}, 1),
    ],
)
def test_bytes_a_weight_by_method(table: dict[str, object], each: float) -> None:
    shape = quantized("llama-3.1-8b", table)
    assert shape.weights().bytes == pytest.approx(WIDE + LINEAR * each, rel=0.002)
    assert shape.weights().parameters == 8_030_261_248


def compressed(weights: dict[str, object], **more: object) -> dict[str, object]:
    group = {"targets": more.pop("targets", ["Linear"]), "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        **more,
    }


@pytest.mark.parametrize(
    ("weights", "each"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, 1),
        ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, 1 + 4 / 16384),
        ({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}, 1),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}, 0.5 + 2 / 128),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, 0.5 + 1 / 16),
    ],
)
def test_bytes_a_weight_of_compressed_tensors(weights: dict[str, object], each: float) -> None:
    assert quantized("llama-3.1-8b", compressed(weights)).weights().bytes == pytest.approx(
        WIDE + LINEAR * each, rel=0.002
    )


def test_kimi_k2_5_quantizes_its_routed_experts_alone() -> None:
    """Its lists: all of self_attn, the shared experts, the dense MLP and the head stay wide."""
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]
    four = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    text = {**config("kimi-k2"), "quantization_config": compressed(four, ignore=ignore, format="pack-quantized")}
    shape = read_shape({"architectures": ["KimiK25ForConditionalGeneration"], "text_config": text})
    experts = 60 * 384 * 3 * 7168 * 2048
    weights = shape.weights()
    assert weights.of("experts").bytes == experts // 2 + experts // 16
    assert weights.of("attention").bytes == 2 * weights.of("attention").parameters
    assert weights.of("mlp").bytes == 2 * weights.of("mlp").parameters


def test_mxfp4_packs_experts_and_leaves_their_biases() -> None:
    weights = read_shape(config("gpt-oss-20b")).weights()
    packed, biases = 24 * 32 * 3 * 2880 * 2880, 24 * 32 * 3 * 2880
    assert weights.of("experts").bytes == packed * 17 // 32 + 2 * biases
    assert weights.of("attention").bytes == 2 * weights.of("attention").parameters


def test_awq_leaves_the_modules_that_it_names() -> None:
    table = {"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["self_attn"]}
    weights = quantized("llama-3.1-8b", table).weights()
    assert weights.of("attention").bytes == 2 * weights.of("attention").parameters
    assert weights.of("mlp").bytes < weights.of("mlp").parameters


def test_gptq_with_exceptions_by_pattern() -> None:
    table = {"quant_method": "gptq", "bits": 4, "group_size": 64, "dynamic": {r"-:.*\.mlp\.": {}}}
    weights = quantized("llama-3.1-8b", table).weights()
    assert weights.of("mlp").bytes == 2 * weights.of("mlp").parameters
    assert weights.of("attention").bytes < weights.of("attention").parameters


def test_modelopt_s_own_file_goes_before_a_silent_config() -> None:
    """Nemotron-3-Nano NVFP4: published are 18,237,772,608 elements, counted as they are stored."""
    attention = [f"backbone.layers.{n}.mixer.{x}_proj" for n in (5, 12, 19, 26, 33, 42) for x in "qkvo"]
    before = [f"backbone.layers.{n}.mixer.{x}_proj" for n in (4, 11, 18, 25, 32, 41) for x in ("in", "out")]
    side = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
                             "exclude_modules": ["lm_head", *attention, *before]}}  # fmt: skip
    shape = read_shape(config("nemotron-3-nano-30b-a3b"), hf_quant_config=side)
    assert shape.quantization.kv_cache == "fp8"
    elements = 0
    for tensor in shape.tensors:
        packed = shape.quantization.scheme(tensor) is not None
        one = tensor.rows * tensor.columns
        elements += tensor.count * (one // 2 + one // 16 + 2 if packed else one)
    assert elements == pytest.approx(18_237_772_608, rel=1e-4)


def test_mixed_precision_by_module() -> None:
    layers = {"model.layers.0.mlp.gate_proj": {"quant_algo": "NVFP4"}, "model.layers.1.mlp": {"quant_algo": "FP8"}}
    table = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    one = 4096 * 14336
    plain, mixed = read_shape(config("llama-3.1-8b")).weights(), quantized("llama-3.1-8b", table).weights()
    assert plain.bytes - mixed.bytes == (2 * one - one // 2 - one // 16 - 8) + 3 * (one - 8)


@pytest.mark.parametrize(
    "table",
    [
        {"quant_method": "quark"},
        {"quant_method": "torchao", "quant_type": "int4wo"},
        {"quant_method": "hqq"},
        {"bits": 4},
        {"quant_method": "awq", "bits": 4},
        {"quant_method": "awq", "bits": "four", "group_size": 128},
        {"quant_method": "gptq", "bits": 5, "group_size": 128},
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {r"+:.*\.18\..*": {"bits": 8}}},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "weight_block_size": [128, 128], "moe_quant_algo": "NVFP4"},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "compressed-tensors"},
        compressed({"num_bits": 3, "type": "int"}),
        compressed({"num_bits": 8, "type": "float"}, targets=["FusedMoE"]),
        {"quant_method": "modelopt", "quant_algo": "W3"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
    ],
)
def test_a_quantization_that_is_not_known_has_a_shape_and_no_bytes(table: dict[str, object]) -> None:
    shape = quantized("llama-3.1-8b", table)
    assert shape.attention_layers == 32
    assert shape.quantization.unknown
    with pytest.raises(BadInputError, match=r"bytes of the weights cannot be told"):
        shape.weights()


def test_kv_cache_types_that_a_checkpoint_is_made_for() -> None:
    scheme = {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    made = quantized("llama-3.1-8b", {"quant_method": "modelopt", "quant_algo": "FP8", **scheme})
    assert made.quantization.kv_cache == "fp8"
    assert read_shape(config("deepseek-v3")).quantization.kv_cache is None


@pytest.mark.parametrize(
    ("entry", "name", "meant"),
    [
        ("lm_head", "lm_head", True),
        ("gate", "layers.3.mlp.gate", True),
        ("gate", "layers.3.mlp.gate_proj", False),
        ("model.layers.3.mlp", "layers.3.mlp.down_proj", True),
        ("model.layers.3.mlp", "layers.30.mlp.down_proj", False),
        ("model.language_model.layers.3.linear_attn*", "layers.3.linear_attn.out_proj", True),
        ("model.layers.1*", "layers.10.mlp.up_proj", True),
        ("model.layers.*.self_attn", "layers.7.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "layers.7.mlp.up_proj", False),
        ("*.mlp.shared_expert.*", "layers.7.mlp.shared_expert.up_proj", True),
        ("re:.*self_attn.*", "layers.7.self_attn.q_proj", True),
        ("re:model.layers.7.*", "layers.7.self_attn.q_proj", True),
        ("model.layers.3.mlp.experts.0.up_proj", "layers.3.mlp.experts.*.up_proj", True),
    ],
)
def test_names(entry: str, name: str, meant: bool) -> None:
    assert Names([entry]).has(name) is meant


def test_a_pattern_that_cannot_be_read_is_bad_input() -> None:
    with pytest.raises(BadInputError):
        Names(["re:(["])
