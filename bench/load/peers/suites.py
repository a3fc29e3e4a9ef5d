"""Load generators that are programs of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.load.peers.model import MODEL, PATHS, PROMPT_TOKENS, Asked, Figures, Peer, one_a_slot

RANKS = (50, 90, 95, 99)


def _aiperf(asked: Asked) -> list[str]:
    kind = {"openai": "completions", "openai-chat": "chat"}[asked.api]
    words = ["aiperf", "profile", "-m", MODEL, "--url", asked.url, "--endpoint-type", kind, "--streaming"]
    # A tokenizer of an absolute path is taken for a name on the hub; a relative one is read.
    words += ["--tokenizer", "tokenizer", "--use-server-token-count", "--isl", str(PROMPT_TOKENS)]
    words += ["--osl", str(asked.tokens), "--num-prompts", "64", "--request-count", str(asked.requests)]
    words += ["--concurrency", str(asked.concurrency)]
    words += ["--warmup-request-count", str(one_a_slot(asked.concurrency))]
    return [*words, "--output-artifact-dir", "aiperf", "--ui-type", "none"]


def _aiperf_figures(_stdout: str, folder: Path) -> Figures:
    told = json.loads((folder / "aiperf" / "profile_export_aiperf.json").read_text())
    names = {
        "ttft_ms": "time_to_first_token",
        "tpot_ms": "inter_token_latency",
        "itl_ms": "inter_token_latency",
        "icl_ms": "inter_chunk_latency",
        "e2e_ms": "request_latency",
    }
    spread = {
        ours: {**{f"p{q}": told[theirs][f"p{q}"] for q in RANKS}, "mean": told[theirs]["avg"]}
        for ours, theirs in names.items()
        if theirs in told  # an answer of one token has no gap
    }
    failed = (told.get("error_request_count") or {}).get("avg", 0)
    return {
        "requests": {"completed": told["request_count"]["avg"], "failed": failed},
        "duration_s": told["benchmark_duration"]["avg"],
        "output_tokens": told["total_output_tokens"]["avg"],
        "output_tokens_per_s": told["output_token_throughput"]["avg"],
        **spread,
    }


def _guidellm(asked: Asked) -> list[str]:
    backend = f"kind=openai_http,target={asked.url},model={MODEL},request_format={PATHS[asked.api]}"
    words = ["guidellm", "run", "--backend", backend]
    words += ["--profile", f"kind=concurrent,streams={asked.concurrency}"]
    words += ["--constraint", f"kind=max_requests,count={asked.requests}"]
    words += ["--tokenizer", f"kind=hf_auto,model={asked.folder / 'tokenizer'}"]
    words += ["--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={asked.tokens}"]
    return [*words, "--output", f"kind=json,path={asked.folder / 'guidellm.json'}", "--disable-console"]


def _guidellm_figures(_stdout: str, folder: Path) -> Figures:
    told = json.loads((folder / "guidellm.json").read_text())["benchmarks"][0]
    metrics = told["metrics"]
    names = {
        "ttft_ms": ("time_to_first_token_ms", 1.0),
        "tpot_ms": ("time_per_output_token_ms", 1.0),
        "itl_ms": ("inter_token_latency_ms", 1.0),
        "e2e_ms": ("request_latency", 1e3),
    }
    totals = metrics["request_totals"]
    return {
        "requests": {"completed": totals["successful"], "failed": totals["errored"] + totals["incomplete"]},
        "duration_s": told["duration"],
        "output_tokens": metrics["output_token_count"]["successful"]["total_sum"],
        "output_tokens_per_s": metrics["output_tokens_per_second"]["successful"]["mean"],
        **{ours: _percentiles(metrics[theirs]["successful"], by) for ours, (theirs, by) in names.items()},
    }


def _percentiles(told: dict[str, Any], by: float) -> dict[str, float]:
    """Guidellm's ranks, in ms."""
    return {**{f"p{q}": told["percentiles"][f"p{q}"] * by for q in RANKS}, "mean": told["mean"] * by}


def _evalscope(asked: Asked) -> list[str]:
    words = ["evalscope", "perf", "--model", MODEL, "--url", asked.endpoint, "--api", "openai", "--stream"]
    words += ["--tokenizer-path", str(asked.folder / "tokenizer"), "--dataset", "random", "--prefix-length", "0"]
    words += ["--min-prompt-length", str(PROMPT_TOKENS), "--max-prompt-length", str(PROMPT_TOKENS)]
    words += ["--min-tokens", str(asked.tokens), "--max-tokens", str(asked.tokens), "-n", str(asked.requests)]
    words += ["--parallel", str(asked.concurrency), "--warmup-num", str(one_a_slot(asked.concurrency))]
    return [*words, "--no-test-connection", "--no-timestamp", "--outputs-dir", "evalscope"]


def _evalscope_figures(_stdout: str, folder: Path) -> Figures:
    (summary,) = (folder / "evalscope").rglob("benchmark_summary.json")
    told = json.loads(summary.read_text())
    ranked = {
        row["Percentiles"]: row for row in json.loads((summary.parent / "benchmark_percentile.json").read_text())
    }
    names = {"ttft_ms": "TTFT (ms)", "tpot_ms": "TPOT (ms)", "itl_ms": "ITL (ms)", "e2e_ms": "Latency (s)"}
    return {
        "requests": {"completed": told["Success Requests"], "failed": told["Failed Requests"]},
        "duration_s": told["Test Duration (s)"],
        "output_tokens": told["Avg Output Tokens"] * told["Success Requests"],
        "output_tokens_per_s": told["Output Throughput (tok/s)"],
        **{
            ours: {f"p{q}": ranked[f"{q}%"][theirs] * (1e3 if theirs.endswith("(s)") else 1.0) for q in RANKS}
            for ours, theirs in names.items()
        },
    }


ROWS = (
    Peer("aiperf", "pip install aiperf==0.13.0", _aiperf, _aiperf_figures, one_a_slot, burst_requests=256),
    # Its warm-up is a part of the run by time or share, not so many requests: the emitter could not tell it apart.
    Peer(
        "guidellm",
        "pip install guidellm==0.8.1, where a CPU build of torch is installed before it or there are 6 GB",
        _guidellm,
        _guidellm_figures,
        burst_requests=128,
    ),
    Peer("evalscope", "pip install 'evalscope[perf]==1.14.1'", _evalscope, _evalscope_figures, one_a_slot),
)
