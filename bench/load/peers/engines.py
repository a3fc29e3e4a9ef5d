"""The load generators that come with the engines, run without them (alone.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.load.peers.model import MODEL, PATHS, PROMPT_TOKENS, Asked, Figures, Peer, one_a_slot

ALONE = str(Path(__file__).with_name("alone.py"))


def _vllm(asked: Asked) -> list[str]:
    words = ["python", ALONE, "vllm", "--backend", asked.api, "--base-url", asked.url]
    words += ["--endpoint", PATHS[asked.api], "--model", MODEL, "--tokenizer", str(asked.folder / "tokenizer")]
    words += ["--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)]
    words += ["--random-output-len", str(asked.tokens), "--num-prompts", str(asked.requests)]
    words += ["--max-concurrency", str(asked.concurrency), "--num-warmups", str(one_a_slot(asked.concurrency))]
    words += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"]
    return [*words, "--save-result", "--result-filename", "vllm.json", "--disable-tqdm"]


def _vllm_figures(_stdout: str, folder: Path) -> Figures:
    told = json.loads((folder / "vllm.json").read_text())
    names = {"ttft_ms": "ttft", "tpot_ms": "tpot", "itl_ms": "itl", "e2e_ms": "e2el"}
    ranks = {f"p{q}": f"p{q}" for q in (50, 90, 95, 99)}
    return {
        "requests": {"completed": told["completed"], "failed": told["failed"]},
        **_flat(told, names, ranks),
    }


def _sglang(asked: Asked) -> list[str]:
    backend = {"openai": "sglang-oai", "openai-chat": "sglang-oai-chat"}[asked.api]
    words = ["python", ALONE, "sglang", "--backend", backend, "--base-url", asked.url]
    # Its model has to be a folder, or a minute goes by over a model of that name that no hub has.
    words += ["--model", str(asked.folder / "tokenizer"), "--served-model-name", MODEL]
    words += ["--dataset-name", "random-ids"]
    words += ["--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(asked.tokens)]
    words += ["--random-range-ratio", "1", "--num-prompts", str(asked.requests)]
    words += ["--max-concurrency", str(asked.concurrency), "--warmup-requests", str(one_a_slot(asked.concurrency))]
    return [*words, "--output-file", "sglang.jsonl", "--disable-tqdm"]


def _sglang_figures(_stdout: str, folder: Path) -> Figures:
    told = json.loads((folder / "sglang.jsonl").read_text().splitlines()[-1])
    names = {"ttft_ms": "ttft", "tpot_ms": "tpot", "itl_ms": "itl", "e2e_ms": "e2e_latency"}
    ranks = {"p50": "median", **{f"p{q}": f"p{q}" for q in (90, 95, 99)}}
    return {"requests": {"completed": told["completed"]}, **_flat(told, names, ranks)}


def _flat(told: dict[str, Any], names: dict[str, str], ranks: dict[str, str]) -> Figures:
    """Figures whose keys are like `p99_ttft_ms`."""
    spread = {
        ours: {rank: told[f"{word}_{theirs}_ms"] for rank, word in {**ranks, "mean": "mean"}.items()}
        for ours, theirs in names.items()
    }
    return {
        "duration_s": told["duration"],
        "output_tokens": told["total_output_tokens"],
        "output_tokens_per_s": told["output_throughput"],
        **spread,
    }


ROWS = (
    Peer(
        "vllm",
        "pip install --no-deps vllm==0.33.0 && pip install aiohttp numpy pillow psutil pybase64 pyzmq regex"
        " requests tqdm transformers",
        _vllm,
        _vllm_figures,
        one_a_slot,
    ),
    Peer(
        "sglang",
        "pip install --no-deps sglang==0.5.17 && pip install aiohttp datasets numpy orjson pillow psutil pybase64"
        " pyzmq requests tqdm transformers",
        _sglang,
        _sglang_figures,
        one_a_slot,
    ),
)
