"""As many streams at once as one computer is asked for: errors, and what the client holds in memory."""

from __future__ import annotations

import json

from bench.load.lab import emitter, ran
from bench.load.peers import PEERS, Asked


def run(streams: int, workers: int) -> None:
    """Each stream says 16 tokens over some ten seconds, so that all are open together."""
    schedule = {"output_tokens": 16, "ttft_ms": 6000, "interval_ms": 400, "plans": 8, "detail": False}
    with emitter(schedule) as server:
        asked = Asked(server.url, "openai", streams, streams, 16, workers=workers)
        done = ran([*PEERS["draftmark"].command(asked), "--request-timeout", "120"], watched=True)
    if done.status not in (0, 40):
        raise SystemExit(f"ended with {done.status}:\n{done.stderr[-3000:]}")
    told = json.loads(done.stdout)
    ends = sorted(
        [(row["t0_ns"], 1) for row in server.rows] + [(row["t0_ns"] + row["end_ns"], -1) for row in server.rows]
    )
    most = now = 0
    for _, step in ends:
        now += step
        most = max(most, now)
    print(f"streams asked for {streams}, most at once {most}, by {workers} processes")
    print(
        f"requests completed {told['requests']}, errors {told['errors']}, of {len(server.rows)} that the server saw"
    )
    print(f"memory {done.most_bytes / 1e6:.0f} MB, CPU {done.cpu_s:.1f} s, wall {done.wall_s:.1f} s")
    print(f"lag p99 {told['client']['loop_lag_ms_p99']} ms; disturbed: {told['disturbed']}")
