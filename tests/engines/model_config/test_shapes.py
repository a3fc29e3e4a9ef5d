"""Layers by kind and their widths, of real configurations."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.engines.model_config import AttentionLayers, LinearLayers, ModelShape, read_shape

DATA = Path(__file__).parents[2] / "data" / "model_config"


def config(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))["config"]
    return loaded


def shape_of(name: str) -> ModelShape:
    return read_shape(config(name))


def kinds(shape: ModelShape) -> dict[str, int]:
    return {each.kind: each.count for each in shape.attention}


@pytest.mark.parametrize(
    ("name", "expected", "linear"),
    [
        ("llama-3.1-8b", {"full": 32}, 0),
        ("mistral-7b", {"sliding": 32}, 0),
        ("qwen2.5-7b", {"full": 28}, 0),
        ("gemma-2-9b", {"sliding": 21, "full": 21}, 0),
        ("gemma-3-27b", {"sliding": 52, "full": 10}, 0),
        ("gpt-oss-20b", {"sliding": 12, "full": 12}, 0),
        ("llama-4-scout", {"chunked": 36, "full": 12}, 0),
        ("deepseek-v3", {"mla": 61}, 0),
        ("glm-5.2", {"mla": 78}, 0),
        ("qwen3-next-80b-a3b", {"full": 12}, 36),
        ("qwen3.5-27b", {"full": 16}, 48),
        ("falcon-h1-0.5b", {"full": 36}, 36),
        ("nemotron-nano-9b-v2", {"full": 4}, 27),
        ("granite-4.0-h-small", {"full": 4}, 36),
        ("kimi-linear-48b-a3b", {"mla": 7}, 20),
    ],
)
def test_layers_by_kind(name: str, expected: dict[str, int], linear: int) -> None:
    shape = shape_of(name)
    assert kinds(shape) == expected
    assert (shape.linear.count if shape.linear else 0) == linear
    assert shape.attention_layers == sum(expected.values())


def test_gated_delta_net_has_the_state_that_a_server_allocated() -> None:
    """SGLang 0.5.17 on the same widths: 8192 × 3 and 32 × 128 × 128 a layer."""
    assert shape_of("qwen3.5-35b-a3b").linear == LinearLayers(
        kind="gdn",
        count=30,
        heads=32,
        head_dim=128,
        state_dim=128,
        groups=16,
        conv_channels=8192,
        conv_kernel=4,
        state_dtype="float32",
    )


def test_mamba_2_widths() -> None:
    nemotron = shape_of("nemotron-3-nano-30b-a3b").linear
    assert nemotron is not None
    assert (nemotron.heads, nemotron.head_dim, nemotron.state_dim, nemotron.groups) == (64, 64, 128, 8)
    assert nemotron.conv_channels == 64 * 64 + 2 * 8 * 128
    falcon = shape_of("falcon-h1-0.5b").linear
    assert falcon is not None
    assert (falcon.conv_channels, falcon.conv_kernel) == (1536 + 2 * 128, 4)


def test_latent_attention_widths() -> None:
    assert shape_of("deepseek-v3.2").attention == (
        AttentionLayers(
            kind="mla",
            count=61,
            heads=128,
            kv_heads=128,
            head_dim=192,
            v_head_dim=128,
            kv_lora_rank=512,
            rope_head_dim=64,
            index_head_dim=128,
            index_layers=61,
        ),
    )
    (shared,) = shape_of("glm-5.2").attention
    assert shared.index_layers == 21


def test_windows() -> None:
    assert [each.window for each in shape_of("gemma-3-27b").attention] == [1024, None]
    assert [each.window for each in shape_of("llama-4-scout").attention] == [8192, None]
    assert shape_of("mistral-7b").attention[0].window == 4096


def test_qwen_s_windows_are_off_unless_switched_on() -> None:
    given = {**config("qwen2.5-7b"), "use_sliding_window": True, "max_window_layers": 20}
    assert kinds(read_shape(given)) == {"full": 20, "sliding": 8}


def test_layer_types_go_before_the_pattern() -> None:
    types = ["full_attention"] * 23 + ["sliding_attention"]
    assert kinds(read_shape({**config("gpt-oss-20b"), "layer_types": types})) == {"full": 23, "sliding": 1}


def test_prediction_layers() -> None:
    assert shape_of("deepseek-v3").mtp_layers == 1
    assert shape_of("glm-4.5-air").mtp_layers == 1
    assert shape_of("qwen3.5-35b-a3b").mtp_layers == 1
    assert shape_of("llama-3.1-8b").mtp_layers == 0
    assert shape_of("llama-3.1-8b").weights().mtp_draft_bytes == 0


def test_two_prediction_layers_weigh_twice() -> None:
    one, two = config("glm-4.5-air"), {**config("glm-4.5-air"), "num_nextn_predict_layers": 2}
    assert read_shape(two).weights().of("mtp").bytes == 2 * read_shape(one).weights().of("mtp").bytes


def test_a_wrapper_s_vision_tower_is_counted_apart() -> None:
    shape = shape_of("qwen3.5-35b-a3b")
    assert shape.weights().of("vision").parameters == 446_571_248
    text = {**config("qwen3.5-35b-a3b")["text_config"], "tie_word_embeddings": False}
    alone = read_shape({"architectures": ["Qwen3_5MoeForCausalLM"], **text}).weights()
    assert alone.bytes == shape.weights().bytes - shape.weights().of("vision").bytes


def test_a_tower_that_is_not_known_is_said_not_to_be_counted() -> None:
    given = {**config("deepseek-v3"), "vision_config": {"hidden_size": 1024}}
    assert read_shape(given).not_counted == ("the tower of vision_config",)
    without = {**config("llama-4-scout")}
    del without["vision_config"]
    assert read_shape(without).not_counted == ("a vision tower: config.json has no vision_config",)


def test_an_unknown_wrapper_of_a_known_text_model_says_what_it_leaves_out() -> None:
    given = {
        "architectures": ["SomeVisionModel"],
        "text_config": {**config("llama-3.1-8b"), "architectures": None},
        "vision_config": {},
    }
    shape = read_shape(given)
    assert shape.weights().parameters == 8_030_261_248
    assert any("SomeVisionModel is not known" in each for each in shape.assumptions)
    assert len(shape.not_counted) == 2


def test_experts() -> None:
    assert (shape_of("mixtral-8x7b").experts, shape_of("mixtral-8x7b").experts_per_token) == (8, 2)
    assert (shape_of("kimi-k2").experts, shape_of("kimi-k2").experts_per_token) == (384, 8)
    assert shape_of("llama-3.1-8b").experts == 0


def test_eagle_3_draft() -> None:
    """Llama-3.1-8B's: one layer that reads embedding and state, a fusing projection of three, 32,000 tokens."""
    given = {
        **config("llama-3.1-8b"),
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32000,
        "torch_dtype": "float16",
    }
    shape = read_shape(given)
    weights = shape.weights()
    assert shape.draft == "eagle3"
    assert weights.of("lm_head").parameters == 32000 * 4096
    assert weights.of("draft").parameters == 3 * 4096 * 4096 + 32000
    assert weights.of("attention").parameters == 2 * 4096 * (4096 + 2 * 1024) + 4096 * 4096
    assert weights.of("mlp").parameters == 3 * 4096 * 14336
    assert weights.bytes == 2 * (weights.parameters - 32000) + 8 * 32000


def test_eagle_draft() -> None:
    given = {**config("llama-3.1-8b"), "architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}
    weights = read_shape(given).weights()
    assert weights.of("draft").parameters == 2 * 4096 * 4096 + 4096
    assert weights.of("embedding", "lm_head").parameters == 2 * 128_256 * 4096
