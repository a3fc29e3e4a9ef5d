"""What a client costs: tokens a CPU-second when nothing waits, CPU of paced chunks, and its start."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from statistics import median

from bench.load.lab import UnmeasuredError, measured, version
from bench.load.peers import PEERS, Asked, Peer

BURST_TOKENS = 1000
BURST = {"mode": "burst", "output_tokens": BURST_TOKENS, "plans": 8, "detail": False}
PACED = {"mode": "steady", "output_tokens": 200, "interval_ms": 20, "ttft_ms": 100, "plans": 16}
ONE = {"output_tokens": 1, "ttft_ms": 1}

Round = dict[str, dict[str, float]]
"""Of one turn of the peers, by their names, the figures by theirs."""


def run(peers: list[Peer], runs: int, api: str, venvs: Path | None, rows: Path | None) -> None:
    """Take turns and print one table; with `rows`, of all the turns that are and were written there."""
    rounds: dict[str, Round] = {}
    left_out: set[str] = set()
    for _ in range(runs):
        turn = uuid.uuid4().hex
        for peer in peers:
            if peer.name in left_out:
                continue
            try:
                found = _once(peer, api, venvs)
            except UnmeasuredError as error:
                print(f"left out: {error}", flush=True)
                left_out.add(peer.name)
                continue
            rounds.setdefault(turn, {})[peer.name] = found
            if rows:
                with rows.open("a") as file:
                    file.write(json.dumps({"turn": turn, "peer": peer.name, "figures": found}) + "\n")
    if rows and rows.exists():
        rounds = _read(rows)
    if rounds:
        _table(list(rounds.values()), venvs)


def _once(peer: Peer, api: str, venvs: Path | None) -> dict[str, float]:
    start = measured(peer, ONE, Asked("", api, 1, 1, 1), venvs).cost
    burst = measured(peer, BURST, Asked("", api, 64, peer.burst_requests, BURST_TOKENS), venvs)
    paced = measured(peer, PACED, Asked("", api, 16, 64, 200), venvs, compared=True)
    true_ms, told_ms = paced.compared["ttft_ms.p50"]
    return {
        "tokens/CPU-s, burst, 64": burst.tokens / (burst.cost.cpu_s - start.cpu_s),
        "CPU s/100k paced chunks": (paced.cost.cpu_s - start.cpu_s) / paced.tokens * 1e5,
        "TTFT p50 error %, 16": (told_ms / true_ms - 1) * 100,
        "start, one request, s": start.wall_s,
    }


def _read(rows: Path) -> dict[str, Round]:
    found: dict[str, Round] = {}
    for line in rows.read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["turn"], {})[row["peer"]] = row["figures"]
    return found


def _table(rounds: list[Round], venvs: Path | None) -> None:
    """Medians with their reach, and the first peer's ratio to each other one's, turn by turn."""
    peers = list(dict.fromkeys(name for turn in rounds for name in turn))
    names = list(next(iter(rounds[0].values())))
    print(f"{'':12}{'version':>10}{'turns':>7}" + "".join(f"{name:>28}" for name in names))
    for peer in peers:
        found = [turn[peer] for turn in rounds if peer in turn]
        cells = "".join(f"{_shown([row[key] for row in found]):>28}" for key in names)
        print(f"{peer:12}{version(PEERS[peer], venvs):>10}{len(found):>7}{cells}")
    first, *others = peers
    for other in others:
        pairs = [(turn[first], turn[other]) for turn in rounds if first in turn and other in turn]
        if pairs:
            ratios = (f"{key}: {median(a[key] / b[key] for a, b in pairs if b[key]):.2f}" for key in names)
            print(f"{first} / {other}".ljust(28) + "  ".join(ratios))
    for peer in peers:
        if PEERS[peer].burst_requests != Peer.burst_requests:
            asked = f"{PEERS[peer].burst_requests} answers of {BURST_TOKENS} tokens"
            print(f"{peer}: its burst had {asked}, not {Peer.burst_requests}: it is slow")


def _shown(values: list[float]) -> str:
    places = 0 if abs(median(values)) >= 1e3 else 2
    return f"{median(values):,.{places}f} ({min(values):,.{places}f} to {max(values):,.{places}f})"
