"""Files that are wrong, thin, or of a model that is not known: said or refused, never a confident wrong number."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.model_config import ModelShape, UnknownArchitectureError, read_shape
from draftmark.errors import BadInputError, DraftmarkError

DATA = Path(__file__).parents[2] / "data" / "model_config"
CONFIGS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))["config"] for path in sorted(DATA.glob("*.json"))
}

# Losing these says nothing, because files without them are as usual: a checkpoint that is not quantized, a text
# model that is not wrapped.
SILENT = {"quantization_config", "text_config", "vision_config"}


@pytest.mark.parametrize("name", ["BertForMaskedLM", "DeepseekV4ForCausalLM", "T5ForConditionalGeneration"])
def test_an_unknown_architecture_is_named_with_those_that_are_known(name: str) -> None:
    with pytest.raises(UnknownArchitectureError, match=name) as caught:
        read_shape({"architectures": [name], "model_type": "llama", "hidden_size": 8})
    assert "LlamaForCausalLM" in caught.value.evidence[0]
    assert caught.value.exit_status == 2


def test_an_unknown_text_model_in_a_wrapper() -> None:
    with pytest.raises(UnknownArchitectureError, match="gemma4_text"):
        read_shape(
            {"architectures": ["Gemma4ForConditionalGeneration"], "text_config": {"model_type": "gemma4_text"}}
        )


def test_an_old_name_with_a_new_kind_of_weights() -> None:
    """Kimi-K3 calls its text model KimiLinear, and has experts in a narrower space."""
    text = {**CONFIGS["kimi-linear-48b-a3b"], "routed_expert_hidden_size": 3584}
    with pytest.raises(UnknownArchitectureError, match="routed_expert_hidden_size"):
        read_shape({"architectures": ["KimiK3ForConditionalGeneration"], "text_config": text})


def test_no_class_but_a_known_type_is_said() -> None:
    given_ = {**CONFIGS["llama-3.1-8b"]}
    del given_["architectures"]
    shape = read_shape(given_)
    assert shape.weights().parameters == 8_030_261_248
    assert any("names no class" in each for each in shape.assumptions)


@pytest.mark.parametrize("config", [{}, {"architectures": []}, {"architectures": [3]}, {"text_config": {}}])
def test_nothing_to_go_by(config: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        read_shape(config)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("llama-3.1-8b", "hidden_size"),
        ("llama-3.1-8b", "num_hidden_layers"),
        ("llama-3.1-8b", "vocab_size"),
        ("mixtral-8x7b", "intermediate_size"),
        ("deepseek-v3", "kv_lora_rank"),
        ("deepseek-v3.2", "index_n_heads"),
        ("qwen3-next-80b-a3b", "linear_conv_kernel_dim"),
        ("nemotron-nano-9b-v2", "hybrid_override_pattern"),
        ("kimi-linear-48b-a3b", "linear_attn_config"),
    ],
)
def test_a_missing_field_is_named(name: str, missing: str) -> None:
    config = {key: value for key, value in CONFIGS[name].items() if key != missing}
    with pytest.raises(BadInputError, match=missing):
        read_shape(config)


@pytest.mark.parametrize("value", ["4096", 0, -1, 2**60, 1.5, True, [4096], {}])
def test_a_width_of_no_use(value: object) -> None:
    with pytest.raises(BadInputError, match="hidden_size"):
        read_shape({**CONFIGS["llama-3.1-8b"], "hidden_size": value})


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**9},
        {"num_key_value_heads": 64},
        {"num_attention_heads": 33},
        {"layer_types": ["full_attention"]},
        {"layer_types": ["wavelet"] * 32},
        {"quantization_config": "fp8"},
    ],
)
def test_fields_that_cannot_be(change: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        read_shape({**CONFIGS["llama-3.1-8b"], **change})


def test_a_type_that_is_not_known_has_no_bytes() -> None:
    with pytest.raises(BadInputError, match="float6"):
        read_shape({**CONFIGS["llama-3.1-8b"], "torch_dtype": "float6"}).weights()


def paths(config: dict[str, Any], under: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        if key not in SILENT:
            yield (*under, key)
        if isinstance(value, dict) and key != "quantization_config":
            yield from paths(value, (*under, key))


def without(config: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    part = changed
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return changed


def layers_of(shape: ModelShape) -> tuple[object, ...]:
    linear = shape.linear and replace(shape.linear, state_dtype=None)  # engines have a default of their own for it
    return (shape.layers, shape.attention, linear, shape.mtp_layers, shape.experts)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_field_that_is_lost_changes_nothing_or_is_told(name: str) -> None:
    """Each field in turn: the same bytes, an error, or one more assumption."""
    whole = read_shape(CONFIGS[name])
    for path in paths(CONFIGS[name]):
        try:
            shape = read_shape(without(CONFIGS[name], path))
            same = shape.weights() == whole.weights() and layers_of(shape) == layers_of(whole)
        except BadInputError:
            continue
        told = (*shape.assumptions, *shape.not_counted)
        assert same or set(told) - {*whole.assumptions, *whole.not_counted}, f"{name} without {'.'.join(path)}"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize("blocks", [[[]], [{}], [1], "", [None, "mamba"]])
def test_layers_that_are_no_words(blocks: object) -> None:
    with pytest.raises(BadInputError, match="hybrid_override_pattern"):
        read_shape({**CONFIGS["nemotron-nano-9b-v2"], "hybrid_override_pattern": blocks})


@given(st.data())
def test_any_value_in_any_field_is_read_or_refused(data: st.DataObject) -> None:
    config = copy.deepcopy(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(paths(config)) or [("model_type",)]))
        part = config
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = data.draw(json_values)
    try:
        weights = read_shape(config).weights()
    except DraftmarkError:
        return
    assert weights.parameters > 0
    assert weights.bytes > 0


@given(json_values)
def test_any_quantization_config_is_read_or_refused(table: object) -> None:
    try:
        read_shape({**CONFIGS["smollm2-135m"], "quantization_config": table}).weights()
    except DraftmarkError:
        return


METHODS = ["fp8", "awq", "gptq", "mxfp4", "compressed-tensors", "bitsandbytes", "modelopt"]
METHOD_FIELDS = [
    "bits", "group_size", "weight_block_size", "config_groups", "ignore", "quant_algo", "quantized_layers",
    "modules_to_not_convert", "dynamic", "exclude_modules", "load_in_4bit",
]  # fmt: skip


@given(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(METHOD_FIELDS), json_values))
def test_any_field_of_a_known_method_is_read_or_refused(method: str, table: dict[str, object]) -> None:
    try:
        read_shape({**CONFIGS["smollm2-135m"], "quantization_config": {**table, "quant_method": method}}).weights()
    except DraftmarkError:
        return
