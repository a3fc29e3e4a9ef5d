"""Figures beside the truth, and latency that counts the waiting which a stalled server causes."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from bench.load.lab import UnmeasuredError, emitter, measured, ran, scored
from bench.load.peers import PEERS, Asked, Peer

SHAPES: dict[str, dict[str, Any]] = {
    "one token a chunk": {"mode": "steady"},
    "1 to 4 tokens a chunk": {"mode": "spec"},
    "1 to 8 tokens a chunk": {
        "mode": "spec",
        "acceptance": {"draft_tokens": 7, "accept": [0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55]},
    },
}
SHOWN = (
    *("ttft_ms.p50", "ttft_ms.p99", "tpot_ms.p50", "tpot_ms.p99"),
    *("itl_ms.p50 as amortized", "itl_ms.p99 as amortized", "icl_ms.p50", "icl_ms.p99"),
    *("e2e_ms.p50", "e2e_ms.p99", "output_tokens_per_s", "output_tokens"),
)
TIMING = {"interval_ms": 20, "ttft_ms": 100, "output_tokens": 128, "plans": 64}


def run(peers: list[Peer], runs: int, api: str, venvs: Path | None, shapes: list[str]) -> None:
    """Each figure's truth and the median error of the runs; marked where all are off by over 1 % and 0.3 ms."""
    for shape in shapes:
        print(f"\n{shape}", flush=True)
        for peer in peers:
            asked = Asked("", api, 16, 96, 128)
            try:
                found = [
                    measured(peer, {**SHAPES[shape], **TIMING}, asked, venvs, compared=True).compared
                    for _ in range(runs)
                ]
            except UnmeasuredError as error:
                print(f"  left out: {error}", flush=True)
                continue
            for name in SHOWN:
                print(
                    f"  {peer.name:12}{name:28}{_error([rows[name] for rows in found if name in rows])}", flush=True
                )


def _error(seen: list[tuple[float, float]]) -> str:
    """Of one figure, over the runs."""
    if not seen:
        return "not told"
    errors = [got - true for true, got in seen]
    error, true = median(errors), median(true for true, _ in seen)
    over = all(abs(e) > max(0.01 * t, 0.3) for e, (t, _) in zip(errors, seen, strict=True))
    return f"{true:12.3f}{error:+10.3f} ({error / true:+.2%}){'  OVER' * over}"


def stall(runs: int) -> None:
    """20 requests a second, 16 at once at most, over a server that halts for 2 s: the waiting must be seen."""
    for _ in range(runs):
        schedule = {"mode": "stall", "output_tokens": 16, "interval_ms": 10, "ttft_ms": 50}
        with emitter(schedule) as server:
            asked = Asked(server.url, "openai", 16, 160, 16, rate=20.0)
            done = ran([*PEERS["draftmark"].command(asked)])
            told = json.loads(done.stdout)
            server.stop()
            truth = scored(server.truth_file, {}, "--rate", "20")["truth"]
        for ours, true in (
            ("ttft_ms", "ttft_ms"),
            ("ttft_intended_ms", "intended_ttft_ms"),
            ("e2e_intended_ms", "intended_e2e_ms"),
        ):
            for q in ("p50", "p99"):
                print(f"{ours}.{q}: {told[ours][q]:.1f}, in truth {truth[true][q]:.1f}")
