"""What the roofline takes from an SGLang command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.engines.roofline.shapes import config

from draftmark.engines.roofline import Roofline, Served
from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.roofline import same_model, served
from draftmark.errors import BadInputError, UsageError
from draftmark.model import Arm, Gpu
from draftmark.ports import FitScene

PLAIN = ("python3", "-m", "sglang.launch_server", "--model-path", "/m/target")
NEXTN = ("--speculative-algorithm", "NEXTN")
EAGLE3 = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "/m/draft")
EAGLE = {
    "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1, "vocab_size": 128256,
    "draft_vocab_size": 32000, "head_dim": 128, "dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


def scene(target: Mapping[str, Any], card: str = "NVIDIA H200", **files: Mapping[str, Any]) -> FitScene:
    there = {"/m/target/config.json": target, **{f"/m/{name}.json": body for name, body in files.items()}}

    def read(path: str) -> bytes:
        path = path.replace("/m/draft/config.json", "/m/draft.json")
        path = path.replace("/m/target/hf_quant_config.json", "/m/quant.json")
        if path not in there:
            raise FileNotFoundError(2, "No such file or directory")
        return json.dumps(there[path]).encode()

    return FitScene(read=read, gpus=lambda: (Gpu(name=card, total_mib=143_771),))


def asked(words: tuple[str, ...], where: FitScene, depth: int = 0) -> Served:
    command = (*PLAIN, *words)
    engine = SGLang(version="0.5.17")
    found = served(command, engine.with_arm(command, Arm(depth)) if depth else command, where, "0.5.17")
    assert found is not None
    return found[0]


MOE = config("qwen3.5-35b-a3b")
LLAMA = config("llama-3.1-8b")


def test_flags_that_split_and_narrow() -> None:
    words = ("--tp", "4", "--kv-cache-dtype", "fp8_e5m2", "--mamba-ssm-dtype", "bfloat16", "--ep-size", "2")
    found = asked(words, scene(MOE))
    assert (found.card.name, found.tensor_parallel, found.expert_parallel) == ("h200", 4, 2)
    assert (found.kv_bytes, found.state_bytes, found.draft) == (1.0, 2, "none")


def test_a_backend_that_spreads_experts_keeps_them_whole() -> None:
    found = asked(("--tp-size", "8", "--moe-a2a-backend", "deepep"), scene(MOE))
    assert found.expert_parallel == 8


@pytest.mark.parametrize(
    ("words", "target", "files", "kind"),
    [
        (NEXTN, MOE, {}, "own-layers"),
        (NEXTN, LLAMA, {}, "unknown"),
        (EAGLE3, LLAMA, {}, "unknown"),
        (EAGLE3, LLAMA, {"draft": EAGLE}, "model"),
        (("--speculative-algorithm", "NGRAM"), LLAMA, {}, "none"),
    ],
)
def test_what_drafts(words: tuple[str, ...], target: Any, files: dict[str, Any], kind: str) -> None:
    found = asked(words, scene(target, **files), depth=3)
    assert found.draft == kind
    assert (found.draft_shape is not None) == (kind == "model")


def test_an_unknown_draft_is_said_and_makes_no_floor_higher() -> None:
    command = (*PLAIN, *EAGLE3)
    drafting = SGLang(version="0.5.17").with_arm(command, Arm(3))
    unknown, known = (
        served(command, drafting, where, "0.5.17") for where in (scene(LLAMA), scene(LLAMA, draft=EAGLE))
    )
    assert unknown is not None
    assert known is not None
    assert "the draft is not known: its passes are in no floor" in unknown[1]
    assert not Roofline(unknown[0]).drafts_known
    assert Roofline(unknown[0]).round(1, 3, 10).floor_s < Roofline(known[0]).round(1, 3, 10).floor_s


def test_quantization_beside_the_config_and_at_loading() -> None:
    fp8 = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    beside = asked((), scene(LLAMA, quant=fp8))
    assert beside.shape.quantization.method == "modelopt"
    assert beside.kv_bytes == 1.0
    loaded = asked(("--quantization", "fp8"), scene(LLAMA))
    wide = Roofline(asked((), scene(LLAMA))).round(1, 0, 0)
    for narrow in (beside, loaded):
        assert Roofline(narrow).round(1, 0, 0).bytes < 0.6 * wide.bytes
    with pytest.raises(BadInputError, match="torchao"):
        asked(("--quantization", "torchao"), scene(LLAMA))


def test_floats_are_loaded_as_halves() -> None:
    found = asked((), scene(LLAMA | {"torch_dtype": "float32"}))
    assert found.dtype == "float16"
    assert asked(("--dtype", "float32"), scene(LLAMA)).dtype == "float32"


def test_nothing_is_said_of_an_unknown_card() -> None:
    assert served(PLAIN, PLAIN, scene(LLAMA, card="NVIDIA GeForce GTX 1080"), None) is None
    assert served(PLAIN, PLAIN, FitScene(read=scene(LLAMA).read), None) is None


@pytest.mark.parametrize("words", [("--pp-size", "2"), ("--dp-size", "2")])
def test_groups_that_are_not_modelled(words: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError, match="not modelled"):
        asked(words, scene(LLAMA))


def test_no_model_and_no_number() -> None:
    with pytest.raises(UsageError):
        served(PLAIN[:3], PLAIN[:3], scene(LLAMA), None)
    with pytest.raises(UsageError):
        asked(("--tp-size", "many"), scene(LLAMA))


def test_which_runs_are_of_the_same_model() -> None:
    assert same_model(PLAIN, (*PLAIN, *NEXTN, "--port", "1"), "0.5.17")
    assert not same_model(PLAIN, (*PLAIN, "--tp", "2"), "0.5.17")
    assert not same_model(PLAIN, (*PLAIN[:-1], "/m/other"), "0.5.17")
