"""What `tune --cluster` costs and bears: `python -m bench.cluster [side-by-side] [slow] [lost]`, or all three.

A real Ray cluster of several raylets on this computer, simulated servers on them: SGLang's flags, log and HTTP, and
starts that are `--speed` times faster than real ones. Half an hour on two cores, most of it sleep; with faster
starts what the computer itself does for four servers at once weighs more.

- side-by-side: 8 arms beside the baseline in 2 rounds, on one node and on four; at most 0.4 of the time
- slow: four nodes, one of half the speed; the verdict is that of four alike
- lost: a raylet killed by SIGKILL while a server of an arm serves on it; every arm is measured as often as asked
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.field import Raylets, draftmark, raylets

ARMS = "0,3..10"  # the best of them is the shallowest but off, so that no tie decides
LOAD = ("--concurrency", "1", "--workload", "chat", "--requests", "6", "--max-tokens", "48", "--rounds", "2")
PACE = 0.5  # of what is simulated, so that four servers have room on two cores


def tune(field: Raylets, run: Path, speed: float, during: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """One run to its end, with its wall time."""
    began = time.monotonic()
    words = (
        "tune",
        field.service(speed=speed, flags="--port 32510"),
        "--method",
        "NEXTN",
        "--cluster",
        field.address,
        "--run",
        str(run),
        "--depth",
        ARMS,
    )
    process = draftmark(field, *words, *LOAD, "--json")
    try:
        during()
        out, said = process.communicate()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.returncode not in (0, 10, 40):
        raise SystemExit(said)
    result: dict[str, Any] = json.loads(out)
    result["wall_s"] = time.monotonic() - began
    if left := field.left():
        raise SystemExit(f"left on the nodes: {left}")
    return result


def told(name: str, result: dict[str, Any]) -> None:
    """One run, in lines."""
    print(f"{name}: {result['wall_s']:.0f} s, {len(result['trials'])} trials, complete {result['complete']}")
    print(f"  {result['verdict']}")
    for arm in result["arms"]:
        ratio = arm["latency"] or {"ratio": None, "low": None, "high": None, "tok_s": None}
        print(f"  {arm['arm']:<4} {ratio['tok_s']} tok/s  {ratio['ratio']} ({ratio['low']} to {ratio['high']})")
    for node in result["nodes"]:
        print(
            f"  {node['node']}: trials {node['trials']}, baseline {node['baseline_tok_s']}, counts {node['counts']}"
        )
    for warning in result["warnings"]:
        print(f"  warning: {warning}")


def on(paces: Sequence[float], act: Callable[[Raylets], dict[str, Any]]) -> dict[str, Any]:
    """Something on a cluster of its own."""
    with tempfile.TemporaryDirectory() as scratch, raylets(Path(scratch), paces) as field:
        return act(field)


def alike(speed: float, nodes: int, name: str) -> dict[str, Any]:
    result = on([PACE] * nodes, lambda field: tune(field, field.scratch / "run", speed))
    told(name, result)
    return result


def side_by_side(speed: float) -> bool:
    one, four = alike(speed, 1, "one node"), alike(speed, 4, "four nodes")
    share = four["wall_s"] / one["wall_s"]
    print(
        f"side by side: {four['wall_s']:.0f} s against {one['wall_s']:.0f} s: {share:.3f} of the time (at most 0.4)"
    )
    return bool(share <= 0.4 and one["complete"] and four["complete"])


def slow(speed: float) -> bool:
    plain = alike(speed, 4, "four alike")
    half = on([PACE, PACE, PACE, PACE / 2], lambda field: tune(field, field.scratch / "run", speed))
    told("one of half the speed", half)
    same = plain["choice"]["recommended"] == half["choice"]["recommended"]
    chosen, other = plain["choice"]["recommended"], half["choice"]["recommended"]
    print(f"slow: {chosen} and {other}: {'the same' if same else 'NOT the same'}")
    return bool(same and plain["exit_status"] == half["exit_status"])


def lost(speed: float) -> bool:
    def act(field: Raylets) -> dict[str, Any]:
        run, name = field.scratch / "run", field.name(2)

        def kill() -> None:
            while not serving(run, name):
                time.sleep(0.1)
            field.kill(2)

        return tune(field, run, speed, kill)

    result = on([PACE] * 4, act)
    told("a raylet killed", result)
    starts: dict[str, int] = {}
    for trial in result["trials"]:
        starts[trial["arm"]] = starts.get(trial["arm"], 0) + (trial["status"] == "measured")
    short = [arm["arm"] for arm in result["arms"] if starts.get(arm["arm"], 0) < 2]
    print(f"lost: {'every arm was measured twice' if not short else f'NOT measured twice: {short}'}")
    return not short and bool(result["complete"]) and any("was lost" in line for line in result["warnings"])


def serving(run: Path, node: str) -> bool:
    """Whether a server of another arm than the baseline serves on a node."""
    path = run / "actions.jsonl"
    actions = [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []
    arms = {a["trial"]: a["detail"]["arm"] for a in actions if a["what"] == "next"}
    return any(a["what"] == "ready" and a["detail"]["node"] == node and arms[a["trial"]] != "off" for a in actions)


PARTS = {"side-by-side": side_by_side, "slow": slow, "lost": lost}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which of them")
    parser.add_argument("--speed", type=float, default=4.0, help="starts are so many times faster than real ones")
    args = parser.parse_args()
    good = [PARTS[part](args.speed) for part in args.parts or PARTS]
    print(f"{sum(good)} of {len(good)} hold")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
