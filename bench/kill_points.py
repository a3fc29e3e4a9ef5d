"""Ends `draftmark tune` on the real engine at random moments, and looks at what is left.

    python bench/kill_points.py [POINTS] [SEED]

Each point: a small run in a fresh directory, SIGINT, SIGTERM or SIGKILL after a random time, then three questions:
is any server process left after five seconds, can the run directory be read, does `--resume` finish without
repeating a finished trial. Exit status 1 when any answer is wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from draftmark.testing.processes import none_left, popen

WORDS = (
    *("tune", "--workload", "copy", "--concurrency", "1,2", "--requests", "1", "--max-tokens", "6"),
    *("--depth", "off,8", "--rounds", "1", "--max-foreign-cpu", "99"),
)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def finished(run: Path) -> dict[str, int]:
    found = (run / "trials").glob("*/trial.json")
    return {p.parent.name: p.stat().st_mtime_ns for p in found if ".interrupted-" not in p.parent.name}


def phase(run: Path) -> str:
    actions = run / "actions.jsonl"
    if not actions.exists():
        return "set-up"
    lines = actions.read_text().splitlines()
    whole = [line for line in lines if line.endswith("}")]
    return str(json.loads(whole[-1])["what"]) if whole else "set-up"


def one(scratch: Path, signum: signal.Signals, after_s: float) -> tuple[str, list[str]]:
    run = scratch / "run"
    faults: list[str] = []
    with popen((*WORDS, "--run", str(run)), scratch) as process:
        try:
            process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signum)
        process.communicate(timeout=60)
    at = phase(run)
    if not none_left(5.0):
        faults.append("a server is left after 5 s")
    before = finished(run)
    if (run / "run.json").exists():
        with popen(("report", str(run)), scratch) as report:
            _, err = report.communicate(timeout=60)
        if report.returncode:
            faults.append(f"report: {err.strip()}")
        words: tuple[str, ...] = ("tune", "--resume", str(run), "--json")
    else:
        words = (*WORDS, "--run", str(run), "--json")
    with popen(words, scratch) as resumed:
        out, err = resumed.communicate(timeout=120)
    result = json.loads(out) if out else {}
    if not result.get("complete") or [t["number"] for t in result["trials"]] != [1, 2, 3]:
        faults.append(f"resume did not finish: {err.strip()[-300:]}")
    after = finished(run)
    if any(after.get(name) != stamp for name, stamp in before.items()):
        faults.append("a finished trial was repeated")
    return at, faults


def main() -> int:
    os.sched_setaffinity(0, {0})  # one thread of the engine: the moment matters here, not the speed
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with tempfile.TemporaryDirectory() as scratch:
        began = time.monotonic()
        one(Path(scratch), signal.SIGKILL, 600.0)
        whole_s = time.monotonic() - began
    print(f"a whole run and its resume take {whole_s:.1f} s")
    phases: Counter[str] = Counter()
    bad = 0
    for number in range(1, points + 1):
        signum, after_s = rng.choice(SIGNALS), rng.uniform(0.0, whole_s)
        with tempfile.TemporaryDirectory() as scratch:
            at, faults = one(Path(scratch), signum, after_s)
        phases[at] += 1
        bad += bool(faults)
        print(
            f"{number:>3}  {signum.name:<8} after {after_s:5.2f} s  in {at:<12} {'; '.join(faults) or 'ok'}",
            flush=True,
        )
    print(f"{points - bad} of {points} points right; phases: {dict(phases)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
