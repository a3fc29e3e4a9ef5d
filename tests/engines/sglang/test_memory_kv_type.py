"""What `--kv-cache-dtype auto` is: by checkpoint, card, and log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.engines.sglang.engine import SGLang
from draftmark.model import Arm, Fit, FitArm, Gpu
from draftmark.ports import FitScene

DATA = Path(__file__).parents[2] / "data"
PLAIN = ("python3", "-m", "sglang.launch_server", "--model-path", "/model", "--mem-fraction-static", "0.85")
EIGHT = {"dynamic": False, "num_bits": 8, "type": "float"}
FP8_WEIGHTS = {"quant_algo": "FP8", "quant_method": "modelopt", "ignore": ["lm_head"], "config_groups": {}}


def published(name: str) -> dict[str, Any]:
    config = json.loads((DATA / "model_config" / f"{name}.json").read_text())["config"]
    assert isinstance(config, dict)
    return config


def fitted(
    config: dict[str, Any], *flags: str, version: str = "0.5.17", card: str = "NVIDIA H200", mib: int = 143_771,
    beside: dict[str, Any] | None = None, log: list[str] | None = None,
) -> Fit:  # fmt: skip
    files = {"/model/config.json": config, **({"/model/hf_quant_config.json": beside} if beside else {})}

    def read(path: str) -> bytes:
        if path not in files:
            raise FileNotFoundError(path)
        return json.dumps(files[path]).encode()

    scene = FitScene(
        read=read, gpus=lambda: (Gpu(name=card, total_mib=mib),), version=version, log=log, log_name="boot.log"
    )
    found = SGLang(version=version).fit((*PLAIN, *flags), [Arm(0)], scene)
    assert found is not None
    return found


def bytes_a_token(found: Fit) -> int:
    (line,) = (line for line in found.arms[0].because if line.startswith("KV "))
    return int(line.split(" tokens of ")[1].split()[0].replace(",", ""))


LLAMA = published("llama-3.1-8b")
SIXTEEN_BITS, EIGHT_BITS = 131_072, 65_536


@pytest.mark.parametrize(
    ("stored", "version", "expected"),
    [
        ({**FP8_WEIGHTS, "kv_cache_scheme": EIGHT}, "0.5.10", EIGHT_BITS),
        ({**FP8_WEIGHTS, "kv_cache_scheme": EIGHT}, "0.5.23", EIGHT_BITS),
        ({**FP8_WEIGHTS, "kv_cache_scheme": {**EIGHT, "num_bits": 4}}, "0.5.17", SIXTEEN_BITS),
        ({**FP8_WEIGHTS, "kv_cache_quant_algo": "FP8"}, "0.5.17", EIGHT_BITS),
        (FP8_WEIGHTS, "0.5.17", SIXTEEN_BITS),
        (
            {"quant_method": "fp8", "activation_scheme": "dynamic", "kv_cache_quant_algo": "FP8"},
            "0.5.17",
            SIXTEEN_BITS,
        ),
        (
            {"quant_method": "fp8", "activation_scheme": "dynamic", "kv_cache_quant_algo": "FP8"},
            "0.5.20",
            EIGHT_BITS,
        ),
    ],
)
def test_a_checkpoint_that_is_made_for_kv_in_fp8(stored: dict[str, Any], version: str, expected: int) -> None:
    found = fitted({**LLAMA, "quantization_config": stored}, version=version)
    assert bytes_a_token(found) == expected
    assert any("KV cache in FP8" in each for each in found.assumptions) == (expected == EIGHT_BITS)


def test_the_flag_comes_first() -> None:
    stored = {**FP8_WEIGHTS, "kv_cache_scheme": EIGHT}
    found = fitted({**LLAMA, "quantization_config": stored}, "--kv-cache-dtype", "bfloat16")
    assert bytes_a_token(found) == SIXTEEN_BITS


def test_an_old_version_that_may_not_look_is_bounded_both_ways() -> None:
    found = fitted(
        {**LLAMA, "quantization_config": {**FP8_WEIGHTS, "kv_cache_quant_algo": "FP8"}}, version="0.5.14"
    )
    arm = found.arms[0]
    assert bytes_a_token(found) == EIGHT_BITS
    assert arm.low.kv_tokens is not None
    assert arm.figures.kv_tokens is not None
    assert arm.low.kv_tokens < 0.51 * arm.figures.kv_tokens


def test_modelopts_own_file_tells_weights_and_kv() -> None:
    """config.json of such a checkpoint does not speak of quantization at all."""
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    plain, stored = fitted(LLAMA), fitted(LLAMA, beside=beside)
    assert (bytes_a_token(plain), bytes_a_token(stored)) == (SIXTEEN_BITS, EIGHT_BITS)
    weights = [float(fit.arms[0].because[0].split(" less ")[1].split()[0]) for fit in (plain, stored)]
    assert weights[1] < 0.6 * weights[0]


def sparse(**given: Any) -> FitArm:
    return fitted(published("deepseek-v3.2"), "--tp-size", "8", **given).arms[0]


def test_sparse_attention_by_the_cards_generation() -> None:
    """61 layers: 576 numbers and an index key of 132 bytes; scaled rows of 656 bytes and that in FP8."""
    hopper, blackwell = (
        fitted(published("deepseek-v3.2"), "--tp-size", "8", card=card, mib=mib)
        for card, mib in (("NVIDIA H200", 143_771), ("NVIDIA B200", 183_359))
    )
    assert bytes_a_token(hopper) == 61 * (576 * 2 + 132)
    assert bytes_a_token(blackwell) == 61 * (512 + 16 + 128 + 132)
    assert sparse(card="183359MiB", mib=183_359) == blackwell.arms[0]


def test_sparse_attention_on_a_card_that_is_not_known() -> None:
    arm = sparse(card="NVIDIA Something", mib=190_000)
    assert arm.low.kv_tokens is not None
    assert arm.figures.kv_tokens is not None
    assert arm.low.kv_tokens < 0.65 * arm.figures.kv_tokens


def test_as_the_log_has_it() -> None:
    """Llama in FP8 KV, though neither flag nor config say so: what was allocated counts."""
    log = [
        "server_args=ServerArgs(model_path='/model', kv_cache_dtype='auto', mem_fraction_static=0.85, page_size=1, "
        "max_running_requests=None, disable_radix_cache=False, tp_size=1, pp_size=1, dp_size=1, "
        "speculative_algorithm=None, mamba_full_memory_ratio=0.9)",
        "Load weight begin. avail mem=138.00 GB",
        "Load weight end. elapsed=1.00 s, type=LlamaForCausalLM, avail mem=123.00 GB, mem usage=15.00 GB.",
        "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 1675900, K size: 51.15 GB, V size: 51.15 GB",
        "max_total_num_tokens=1675900, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=4096, context_len=131072, available_gpu_mem=20.00 GB",
    ]
    found = fitted(LLAMA, log=log)
    assert bytes_a_token(found) == EIGHT_BITS
    assert found.calibrated_from == "boot.log"
    assert found.arms[0].figures.kv_tokens == 1_675_900
