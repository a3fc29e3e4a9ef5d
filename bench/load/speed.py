"""What a client costs: tokens a CPU-second when nothing waits, CPU of paced chunks, and its start."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from bench.load.lab import Ran, emitter, ran
from bench.load.peers import Asked, Peer

BURST = {"mode": "burst", "output_tokens": 1000, "plans": 8, "detail": False}
PACED = {"mode": "steady", "output_tokens": 200, "interval_ms": 20, "ttft_ms": 100, "plans": 16}


def run(peers: list[Peer], runs: int, api: str) -> None:
    """Print one table; the runs of the peers take turns."""
    rows: dict[str, list[dict[str, float]]] = {peer.name: [] for peer in peers}
    for _ in range(runs):
        for peer in peers:
            rows[peer.name].append(_once(peer, api))
    names = list(next(iter(rows.values()))[0])
    print(f"{'':12}" + "".join(f"{name:>26}" for name in names))
    for name, found in rows.items():
        print(f"{name:12}" + "".join(f"{_shown([row[key] for row in found]):>26}" for key in names))
    first, *others = rows
    for other in others:
        ratios = [
            median(a[key] / b[key] for a, b in zip(rows[first], rows[other], strict=True) if b[key])
            for key in names
        ]
        print(
            f"{first} / {other}"[:28].ljust(12)
            + "  "
            + "  ".join(f"{n}: {r:.2f}" for n, r in zip(names, ratios, strict=True))
        )


def _shown(values: list[float]) -> str:
    return (
        f"{median(values):,.2f} ({min(values):,.2f}-{max(values):,.2f})"
        if median(values) < 1e3
        else f"{median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})"
    )


def _once(peer: Peer, api: str) -> dict[str, float]:
    start, _, _ = _against({"output_tokens": 1, "ttft_ms": 1}, peer, lambda url: Asked(url, api, 1, 1, 1))
    burst, tokens, _ = _against(BURST, peer, lambda url: Asked(url, api, 64, 512, 1000))
    schedule: dict[str, Any] = {**PACED, "warmup": peer.warmup(16)}
    paced, chunks, truth = _against(schedule, peer, lambda url: Asked(url, api, 16, 64, 200))
    ttft = peer.figures(paced.stdout)["ttft_ms"]["p50"]
    return {
        "tokens/CPU-s, burst, 64": tokens / (burst.cpu_s - start.cpu_s),
        "CPU s/100k paced chunks": (paced.cpu_s - start.cpu_s) / chunks * 1e5,
        "TTFT p50 error %, 16": abs(ttft / truth - 1) * 100,
        "start, one request, s": start.wall_s,
    }


def _against(schedule: dict[str, Any], peer: Peer, asked: Callable[[str], Asked]) -> tuple[Ran, int, float]:
    """The client's run, the tokens (one a chunk) that it was sent, and the true median TTFT in ms."""
    with emitter(schedule) as server:
        done = ran(peer.command(asked(server.url)))
    if done.status not in (0, 40):
        raise SystemExit(f"{peer.name} ended with {done.status}:\n{done.stderr[-2000:]}")
    measured = [row["first_ns"] / 1e6 for row in server.rows if not row["warmup"]]
    return done, server.tokens, median(measured)
