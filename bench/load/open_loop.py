"""An open loop of thousands of requests a second: whether it keeps its schedule, and what it loses."""

from __future__ import annotations

import json

from bench.load.lab import DISTURBED, emitter, ran
from bench.load.peers import PEERS, Asked

TOKENS = 8


def run(rate: float, seconds: float, workers: int) -> None:
    """Short answers, some 60 ms each, so that the clients' sending is the load and not the streams."""
    schedule = {"output_tokens": TOKENS, "ttft_ms": 25, "interval_ms": 5, "plans": 8, "detail": False}
    requests = round(rate * seconds)
    with emitter(schedule) as server:
        asked = Asked(server.url, "openai", 0, requests, TOKENS, rate=rate, workers=workers)
        done = ran([*PEERS["draftmark"].command(asked)], watched=True)
    if done.status not in (0, DISTURBED):
        raise SystemExit(f"ended with {done.status}:\n{done.stderr[-3000:]}")
    told = json.loads(done.stdout)
    sent = sorted(row["t0_ns"] for row in server.rows if not row["warmup"])
    print(f"requests a second wanted {told['request_rate_wanted']:.1f}, sent {told['request_rate_sent']:.1f}")
    print(
        f"    as the server saw them {(len(sent) - 1) / (sent[-1] - sent[0]) * 1e9:.1f}, {len(sent)} of {requests}"
    )
    print(f"completed {told['requests']}, errors {told['errors']}, unsent {told['unsent']}, by {workers} processes")
    for figure in ("queue_ms", "ttft_ms", "ttft_intended_ms"):
        spread = told[figure]
        print(f"{figure}: p50 {spread['p50']:.2f}, p99 {spread['p99']:.2f}")
    print(f"memory {done.most_bytes / 1e6:.0f} MB, CPU {done.cpu_s:.1f} s, wall {done.wall_s:.1f} s")
    print(f"client {told['client']}; disturbed: {told['disturbed']}")
