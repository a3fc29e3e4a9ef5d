"""Who is measured: how each is installed, how it is asked, and where its figures stand. A table: add a row."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATHS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}


@dataclass(frozen=True)
class Asked:
    """What a client shall do.

    Attributes:
        rate: Open loop, requests a second at even distances; None is a closed loop.
        tokens: Of each answer.
    """

    url: str
    api: str
    concurrency: int
    requests: int
    tokens: int
    rate: float | None = None
    workers: int = 1


@dataclass(frozen=True)
class Peer:
    """One load generator.

    Attributes:
        install: What to type to have it.
        command: Its command line.
        figures: From its standard output to the emitter's result form (../shared/stream-lab/README.md).
        warmup: How many requests it sends before those that it counts, by its concurrency.
    """

    name: str
    install: str
    command: Callable[[Asked], list[str]]
    figures: Callable[[str], dict[str, Any]]
    warmup: Callable[[int], int] = lambda _: 0


def _draftmark(asked: Asked) -> list[str]:
    words = [sys.executable, "-m", "draftmark", "bench", f"url:{asked.url}", "--api", asked.api, "--json"]
    words += ["--workload", "chat", "--requests", str(asked.requests), "--max-tokens", str(asked.tokens)]
    words += ["--concurrency", str(asked.concurrency), "--workers", str(asked.workers)]
    if asked.rate is not None:
        words += ["--rate", str(asked.rate), "--arrival", "constant"]
    return words


def _draftmark_figures(stdout: str) -> dict[str, Any]:
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
    script = str(Path(__file__).with_name("plain_client.py"))
    return [sys.executable, script, asked.url, PATHS[asked.api], str(asked.concurrency), str(asked.requests)]


PEERS = {
    peer.name: peer
    for peer in (
        Peer("draftmark", "pip install draftmark", _draftmark, _draftmark_figures, lambda concurrency: concurrency),
        Peer("plain", "bench/load/plain_client.py, here", _plain, json.loads),
    )
}


def chosen(names: str) -> list[Peer]:
    """Peers by their names, in this order."""
    return [PEERS[name] for name in names.split(",")]
