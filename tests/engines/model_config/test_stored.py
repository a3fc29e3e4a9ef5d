"""Exact sizes: the index of a sharded checkpoint, the headers of its files, a directory with both."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.model_config import from_safetensors_headers, from_safetensors_index, read_model
from draftmark.errors import BadInputError

# A Llama of one layer, and its weights.
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 32,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "attention_bias": False, "mlp_bias": False,
}  # fmt: skip
SHAPES = {
    "model.embed_tokens.weight": [32, 8],
    "model.layers.0.self_attn.q_proj.weight": [8, 8],
    "model.layers.0.self_attn.k_proj.weight": [4, 8],
    "model.layers.0.self_attn.v_proj.weight": [4, 8],
    "model.layers.0.self_attn.o_proj.weight": [8, 8],
    "model.layers.0.mlp.gate_proj.weight": [16, 8],
    "model.layers.0.mlp.up_proj.weight": [16, 8],
    "model.layers.0.mlp.down_proj.weight": [8, 16],
    "model.layers.0.input_layernorm.weight": [8],
    "model.layers.0.post_attention_layernorm.weight": [8],
    "model.norm.weight": [8],
    "lm_head.weight": [32, 8],
}
BYTES = 2 * (2 * 256 + 64 + 32 + 32 + 64 + 3 * 128 + 3 * 8)


def header(names: list[str], dtype: str = "BF16", size: int = 2) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in names:
        count = 1
        for each in SHAPES[name]:
            count *= each
        entries[name] = {"dtype": dtype, "shape": SHAPES[name], "data_offsets": [at, at + count * size]}
        at += count * size
    return json.dumps(entries).encode()


def write(directory: Path, name: str, names: list[str]) -> None:
    body = header(names)
    (directory / name).write_bytes(struct.pack("<Q", len(body)) + body)  # the weights themselves are never read


def model(directory: Path, **changes: object) -> Path:
    (directory / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return directory


def test_headers_are_summed_up_over_files(tmp_path: Path) -> None:
    names = list(SHAPES)
    write(model(tmp_path), "model-00001-of-00002.safetensors", names[:5])
    write(tmp_path, "model-00002-of-00002.safetensors", names[5:])
    found = read_model(tmp_path)
    assert found.stored is not None
    assert (found.weights_bytes, found.stored.tensors, found.stored.elements) == (
        BYTES,
        12,
        (("BF16", BYTES // 2),),
    )
    assert found.shape.weights().bytes == BYTES
    assert found.notes == ()


def test_an_index_without_its_files(tmp_path: Path) -> None:
    index = {
        "metadata": {"total_size": BYTES},
        "weight_map": dict.fromkeys(SHAPES, "model-00001-of-00009.safetensors"),
    }
    (model(tmp_path) / "model.safetensors.index.json").write_text(json.dumps(index))
    found = read_model(tmp_path)
    assert found.stored is not None
    assert (found.stored.bytes, found.stored.files) == (BYTES, ("model-00001-of-00009.safetensors",))
    assert found.stored.source == "model.safetensors.index.json"


def test_only_files_of_the_index_count(tmp_path: Path) -> None:
    """Mistral's repositories hold the same weights a second time, as consolidated.safetensors."""
    write(model(tmp_path), "model.safetensors", list(SHAPES))
    write(tmp_path, "model-of-something-else.safetensors", list(SHAPES))
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(SHAPES, "model.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_model(tmp_path).weights_bytes == BYTES


def test_files_that_are_not_of_this_config_are_noted(tmp_path: Path) -> None:
    write(model(tmp_path, intermediate_size=64), "model.safetensors", list(SHAPES))
    found = read_model(tmp_path)
    assert found.weights_bytes == BYTES
    assert any("the files are right" in each for each in found.notes)


def test_a_tied_head_that_is_stored_all_the_same_is_not_kept(tmp_path: Path) -> None:
    write(model(tmp_path, tie_word_embeddings=True), "model.safetensors", list(SHAPES))
    found = read_model(tmp_path)
    assert found.stored is not None
    assert found.stored.bytes == BYTES
    assert found.weights_bytes == BYTES - 2 * 256 == found.shape.weights().bytes


def test_a_quantization_that_is_not_known_has_the_bytes_of_its_files(tmp_path: Path) -> None:
    write(model(tmp_path, quantization_config={"quant_method": "quark"}), "model.safetensors", list(SHAPES))
    assert read_model(tmp_path).weights_bytes == BYTES


def test_modelopt_s_file_is_read(tmp_path: Path) -> None:
    side = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (model(tmp_path) / "hf_quant_config.json").write_text(json.dumps(side))
    assert read_model(tmp_path).shape.quantization.scheme_name == "fp8"


def test_no_config_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"has no config\.json"):
        read_model(tmp_path)
    with pytest.raises(BadInputError, match=r"has no config\.json"):
        read_model(tmp_path / "nowhere")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_config_that_is_no_json_object(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(BadInputError):
        read_model(tmp_path)


BROKEN = [
    b"",
    b"version https://git-lfs.github.com/spec/v1\n",
    struct.pack("<Q", 40) + b"{}",
    struct.pack("<Q", 2) + b"[]",
]


@pytest.mark.parametrize("data", BROKEN)
def test_files_of_no_use_leave_what_config_says(tmp_path: Path, data: bytes) -> None:
    (model(tmp_path) / "model.safetensors").write_bytes(data)
    found = read_model(tmp_path)
    assert found.stored is None
    assert found.notes
    assert found.weights_bytes == BYTES


@pytest.mark.parametrize("total", [None, "12", 0, -3, True, 1.5, 2**70, float("inf"), float("nan")])
def test_an_index_without_a_total(total: object) -> None:
    with pytest.raises(BadInputError):
        from_safetensors_index({"metadata": {"total_size": total}})


def test_totals_that_were_written_as_floats() -> None:
    assert from_safetensors_index({"metadata": {"total_size": 688586727753.0}}).bytes == 688_586_727_753


@pytest.mark.parametrize(
    "entry",
    [1, {}, {"data_offsets": [0]}, {"data_offsets": [4, 0], "shape": []}, {"data_offsets": [0, 4], "shape": [-1]}],
)
def test_an_entry_of_no_use(entry: object) -> None:
    with pytest.raises(BadInputError):
        from_safetensors_headers([json.dumps({"w": entry}).encode()])


@given(st.lists(st.binary(max_size=40), max_size=3))
def test_any_bytes_for_a_header(headers: list[bytes]) -> None:
    with pytest.raises(BadInputError):
        from_safetensors_headers(headers)


def test_prediction_layers_are_told_apart_by_name() -> None:
    found = from_safetensors_headers([header(list(SHAPES))], mtp_prefixes=("model.layers.0.",))
    assert found.mtp_bytes == 2 * (64 + 32 + 32 + 64 + 3 * 128 + 2 * 8)
    assert found.head_bytes == 2 * 256
