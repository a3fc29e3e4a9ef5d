"""What SGLang sets by itself is resolved before any rule looks: a flag with its own default changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from draftmark.engines.sglang.engine import SGLang
from draftmark.errors import UsageError
from draftmark.model import Arm, FitArm, Gpu
from draftmark.ports import FitScene

CONFIGS = Path(__file__).parents[2] / "data" / "model_config"
SERVER = ("python3", "-m", "sglang.launch_server", "--model-path", "/model")
READ = ("0.5.10", "0.5.12", "0.5.14", "0.5.17", "0.5.20", "0.5.23")
GIB = float(1 << 30)


def told(
    model: str, flags: str, version: str, *, depth: int = 0, mib: int = 143_771,
    environment: Mapping[str, str] | None = None,
) -> FitArm:  # fmt: skip
    config = json.dumps(json.loads((CONFIGS / f"{model}.json").read_text())["config"]).encode()
    scene = FitScene(
        read=lambda _: config, gpus=lambda: (Gpu(name="card", total_mib=mib),), version=version, model_dir="/m",
        environment=environment or {},
    )  # fmt: skip
    found = SGLang(version=version, method="NEXTN").fit((*SERVER, *flags.split()), [Arm(depth)], scene)
    assert found is not None
    return found.arms[0]


@pytest.mark.no_cover
@pytest.mark.parametrize("version", READ)
@pytest.mark.parametrize(
    ("model", "flags", "mib"),
    [
        ("gpt-oss-20b", "--mem-fraction-static 0.8 --disable-radix-cache --max-running-requests 64", 143_771),
        ("gpt-oss-20b", "--disable-radix-cache --speculative-algorithm NGRAM", 143_771),
        ("qwen3-8b", "", 46_068),
        ("llama-3.1-8b", "--tp-size 4", 81_559),
        ("deepseek-v3", "--tp-size 8 --dp-size 8 --enable-dp-attention", 183_359),
    ],
)
def test_a_flag_with_its_own_default_changes_nothing(model: str, flags: str, mib: int, version: str) -> None:
    depth = 3 if "NGRAM" in flags else 0
    chunk = 4096 if mib < 60_000 else 8192 if mib < 160_000 else 16384
    graphs = (32 if mib < 60_000 else 256) if "tp-size" not in flags else 512
    if "64" in flags and version == "0.5.23":
        graphs = 64  # by the running limit
    name = "--cuda-graph-max-bs" if version in READ[:2] else "--cuda-graph-max-bs-decode"
    plain = told(model, flags, version, depth=depth, mib=mib)
    for given in (
        f"--chunked-prefill-size {chunk}", f"{name} {graphs}", "--page-size 1", "--kv-cache-dtype auto",
        "--swa-full-tokens-ratio 0.8", "--dp-size 1" if "--dp" not in flags else "", "--pp-size 1",
    ):  # fmt: skip
        if given.startswith(name) and "NGRAM" in flags and version == "0.5.23":
            continue
        assert told(model, f"{flags} {given}", version, depth=depth, mib=mib) == plain, given


@pytest.mark.parametrize(
    ("version", "capped"), [("0.5.12", False), ("0.5.14", True), ("0.5.17", True), ("0.5.23", True)]
)
def test_windows_have_a_pool_by_the_requests_at_once(version: str, capped: bool) -> None:
    """64 requests of (127 + 128 + 1 + 1) tokens, two chunks of 8,192 and a page, 24,576 bytes each."""
    flags = "--mem-fraction-static 0.8 --disable-radix-cache --max-running-requests 64"
    limited, free = told("gpt-oss-20b", flags, version), told("gpt-oss-20b", "--mem-fraction-static 0.8", version)
    assert limited.figures.kv_tokens is not None
    assert free.figures.kv_tokens is not None
    if not capped:
        assert limited.figures.kv_tokens == free.figures.kv_tokens
        return
    budget = free.figures.kv_tokens * 1.8 * 24_576
    fixed = (64 * 257 + 2 * 8192 + 1) * 24_576
    assert limited.figures.kv_tokens == pytest.approx((budget - fixed) / 24_576, abs=2)
    shorter = told("gpt-oss-20b", flags, version, environment={"SGLANG_SWA_EVICTION_INTERVAL": "1"})
    assert shorter.figures.kv_tokens == pytest.approx(limited.figures.kv_tokens + 64 * 127, abs=2)


@pytest.mark.parametrize("version", READ)
def test_replicas_are_each_like_one_server(version: str) -> None:
    """Only data-parallel attention divides the running limit: a replica has a card of its own."""
    flags = "--mem-fraction-static 0.8 --max-running-requests 100"
    one = told("llama-3.1-8b", flags, version)
    assert one.figures.max_running_requests == 100
    assert told("llama-3.1-8b", f"{flags} --dp-size 4", version) == one
    groups = told("llama-3.1-8b", f"{flags} --tp-size 4 --dp-size 4 --enable-dp-attention", version)
    assert groups.figures.max_running_requests == 25


def test_both_spellings_of_data_parallel_attention_are_one() -> None:
    flags = "--mem-fraction-static 0.8 --tp-size 8"
    old = told("llama-3.1-8b", f"{flags} --dp-size 8 --enable-dp-attention", "0.5.23")
    assert told("llama-3.1-8b", f"{flags} --attn-dp-size 8", "0.5.23") == old
    whole = told("llama-3.1-8b", flags, "0.5.23")
    assert old.figures.kv_tokens is not None
    assert whole.figures.kv_tokens is not None
    assert old.figures.kv_tokens < whole.figures.kv_tokens / 7  # every rank has all KV heads
    with pytest.raises(UsageError, match="--dp-size 2 with --attn-dp-size 4"):
        told("llama-3.1-8b", f"{flags} --attn-dp-size 4 --dp-size 2", "0.5.23")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("--cuda-graph-bs 1 2 512", "--cuda-graph-max-bs 512"),
        ("--cuda-graph-bs-decode 512 8", "--cuda-graph-max-bs-decode 512"),
        ('--cuda-graph-config {"decode":{"max_bs":512}}', "--cuda-graph-max-bs-decode 512"),
        ('--cuda-graph-config {"prefill":{"backend":"disabled"}}', "--disable-prefill-cuda-graph"),
    ],
)
def test_graphs_are_reserved_for_however_they_are_asked_for(one: str, other: str) -> None:
    plain, asked, again = (told("llama-3.1-8b", flags, "0.5.17", mib=46_068) for flags in ("", one, other))
    assert asked == again
    assert asked.figures.kv_tokens != plain.figures.kv_tokens


@pytest.mark.parametrize(("version", "mib"), [("0.5.14", 0), ("0.5.17", 2048), ("0.5.20", 2048), ("0.5.23", 2048)])
def test_deepep_is_reserved_for(version: str, mib: int) -> None:
    """17:server_args.py:4924: 2 GiB on top of what a large card keeps back anyway."""
    plain, deep = (
        told("deepseek-v3", f"--tp-size 8 --ep-size 8 {flag}", version) for flag in ("", "--moe-a2a-backend deepep")
    )
    share = [float(each.because[0].partition(": ")[2].split()[0]) for each in (plain, deep)]
    assert share[0] - share[1] == pytest.approx(mib / 143_771, abs=0.0011)


@pytest.mark.parametrize("version", READ)
def test_a_second_whole_model_has_a_second_kv_pool(version: str) -> None:
    """gpt-oss has no layers to draft with: SGLang loads it again, with a pool of the same tokens."""
    found = told("gpt-oss-20b", "--mem-fraction-static 0.8", version, depth=3)
    assert found.fits is False
    kv = next(line for line in found.because if line.startswith("KV "))
    amount = kv.partition(":")[0].removeprefix("KV ")
    assert any(line.startswith(f"the draft's own KV, {amount}, ") for line in found.because)


@pytest.mark.parametrize("version", READ[1:])
def test_a_draft_of_blocks_has_its_kv_in_the_budget(version: str) -> None:
    """A draft of 32 layers like the target's: twice 131,072 bytes a token. N-grams have none."""
    flags = "--mem-fraction-static 0.8 --speculative-algorithm DFLASH --speculative-draft-model-path /d"
    found = told("llama-3.1-8b", flags, version, depth=8)
    assert any("tokens of 262,144 bytes, 32 draft layers among it" in line for line in found.because)
    plain = told("llama-3.1-8b", "--mem-fraction-static 0.8 --speculative-algorithm NGRAM", version, depth=8)
    assert any("tokens of 131,072 bytes" in line for line in plain.because)
