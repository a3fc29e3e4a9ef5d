"""A/A: the same load twice. The second run's figures should lie in the first run's intervals 19 times in 20.

    python -m bench.load aa [--pairs 20] [--loop closed|open] [--repeat 1]

Against the reference emitter (../shared/stream-lab): any difference is the machine's and the client's. Prints
for every figure how often the second run missed the interval, and how wide the interval was.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from draftmark.load.arrivals import Poisson
from draftmark.load.client import LoadPlan, run_load
from draftmark.load.intervals import between, figures, within
from draftmark.load.measurement import belonging, measure
from draftmark.model import Interval, Message, Prompt, Workload

LAB = Path(__file__).resolve().parents[2].parent / "shared" / "stream-lab" / "streamlab"
SCHEDULE = {
    "mode": "spec",
    "output_tokens": {"dist": "uniform", "min": 32, "max": 96},
    "ttft_ms": {"dist": "uniform", "min": 60, "max": 120},
    "interval_ms": 20,
}
QUOTED = (
    "output_tok_s",
    "ttft_ms.p50",
    "ttft_ms.p99",
    "tpot_ms.p50",
    "itl_ms.p50",
    "itl_ms.p99",
    "e2e_ms.p50",
    "e2e_ms.p99",
)
Figures = dict[str, float | None]


@contextmanager
def emitter(schedule: dict[str, Any]) -> Iterator[str]:
    """Its URL."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "schedule.json").write_text(json.dumps(schedule))
        command = [
            sys.executable,
            LAB,
            "serve",
            "--schedule",
            folder / "schedule.json",
            "--truth",
            folder / "truth.jsonl",
        ]
        with subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        ) as running:
            assert running.stdout is not None
            try:
                yield f"http://127.0.0.1:{running.stdout.readline().split()[1]}"
            finally:
                running.send_signal(signal.SIGTERM)


def one_run(url: str, args: argparse.Namespace, tags: Iterator[int]) -> tuple[Figures, dict[str, Interval]]:
    workload = Workload("aa", tuple(Prompt(f"p{i}", (Message("user", "go"),), 96) for i in range(args.requests)))
    send_at_s = tuple(Poisson(args.rate).offsets(args.requests, 0)) if args.loop == "open" else None
    slots = 0 if args.loop == "open" else args.concurrency
    plan = LoadPlan(
        workload=workload, concurrency=slots, api="openai", model="m", send_at_s=send_at_s, warmup=args.concurrency,
        extra={"stream_options": {"continuous_usage_stats": True}}, first_tag=1 + 10_000 * next(tags),
    )  # fmt: skip
    run = run_load(url, plan, headers={}, on_record=lambda _record: None, on_progress=lambda *_now: None)
    m = measure(run.records, workload="aa", concurrency=slots)
    assert not m.errors, m.errors
    return figures(m), within(belonging(run.records, "aa", slots), m)


def one_side(url: str, args: argparse.Namespace, tags: Iterator[int]) -> tuple[Figures, dict[str, Interval]]:
    """A run, or the mean of several."""
    runs = [one_run(url, args, tags) for _ in range(args.repeat)]
    return runs[0] if args.repeat == 1 else between([found for found, _ in runs])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load aa")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--loop", choices=("closed", "open"), default="closed")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rate", type=float, default=20.0)
    args = parser.parse_args(argv)
    seen: dict[str, list[tuple[bool, float, float]]] = {}
    tags = count()
    with emitter(SCHEDULE) as url:
        for pair in range(args.pairs):
            (first, intervals), (second, _) = one_side(url, args, tags), one_side(url, args, tags)
            for name, interval in intervals.items():
                a, b = first[name], second[name]
                if a and b is not None:
                    reach = (interval.high - a) / a
                    seen.setdefault(name, []).append((interval.low <= b <= interval.high, reach, abs(b - a) / a))
            print(
                f"pair {pair + 1}: {' '.join(n for n, hits in seen.items() if not hits[-1][0]) or 'all within'}",
                flush=True,
            )
    print(f"\n{'figure':<24}{'missed':>8}{'interval':>10}{'difference':>12}")
    for name in sorted(seen, key=lambda name: (name not in QUOTED, name)):
        hits = seen[name]
        missed = sum(not hit for hit, _, _ in hits)
        width, gap = (median(row[i] for row in hits) for i in (1, 2))
        aside = "" if name in QUOTED else "   (not quoted)"
        print(f"{name:<24}{missed:>4}/{len(hits):<3}{width:>9.1%}{gap:>12.2%}{aside}")
    quoted = [hit for name in QUOTED for hit, _, _ in seen.get(name, ())]
    share = quoted.count(True) / len(quoted) if quoted else 0.0
    print(f"\n{share:.1%} of the quoted figures' second runs lie in the first run's interval; 95 % is the claim")
    return 0 if share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
