"""Draftmark, and the least that a client can be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.load.peers.model import PATHS, Asked, Figures, Peer, one_a_slot


def _draftmark(asked: Asked) -> list[str]:
    words = [sys.executable, "-m", "draftmark", "bench", f"url:{asked.url}", "--api", asked.api, "--json"]
    words += ["--workload", "chat", "--requests", str(asked.requests), "--max-tokens", str(asked.tokens)]
    words += ["--workers", str(asked.workers)]
    if asked.concurrency:
        words += ["--concurrency", str(asked.concurrency)]
    if asked.rate is not None:
        words += ["--rate", str(asked.rate), "--arrival", "constant"]
    return words


def _draftmark_figures(stdout: str, _folder: Path) -> Figures:
    told = json.loads(stdout)
    return {
        "requests": {"completed": told["requests"], "failed": sum(told["errors"].values())},
        "duration_s": told["duration_s"],
        "output_tokens": told["output_tokens"],
        "output_tokens_per_s": told["output_tokens"] / told["duration_s"],
        **{name: told[name] for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")},
        "icl_ms": told["chunk_gap_ms"],
    }


def _plain(asked: Asked) -> list[str]:
    script = str(Path(__file__).parents[1] / "plain_client.py")
    return [sys.executable, script, asked.url, PATHS[asked.api], str(asked.concurrency), str(asked.requests)]


def _plain_figures(stdout: str, _folder: Path) -> Figures:
    told: Figures = json.loads(stdout)
    return told


ROWS = (
    Peer("draftmark", "pip install draftmark", _draftmark, _draftmark_figures, one_a_slot),
    Peer("plain", "nothing: bench/load/plain_client.py", _plain, _plain_figures),
)
