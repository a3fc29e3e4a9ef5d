"""What `fit` is held to, a line each with its figure.

    python -m bench.fit_acceptance

The captures lie beside the checkout, in ../shared/captures/sglang-h200.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from draftmark.engines.sglang.memory import pools, state  # noqa: E402
from draftmark.engines.sglang.memory.cell import Cell  # noqa: E402
from draftmark.engines.sglang.memory.rules import choose  # noqa: E402
from draftmark.engines.sglang.memory.settings import Settings  # noqa: E402

TABLE = ROOT / "tests" / "data" / "sglang" / "state-table.toml"
CAPTURES = ROOT.parent / "shared" / "captures" / "sglang-h200"
NEXT = ROOT / "tests" / "data" / "model_config" / "qwen3-next-80b-a3b.json"
LOGGED = {0: (638_839, 181), 1: (647_094, 48), 3: (338_982, 48), 5: (30_870, 48)}
DRAFTMARK = (sys.executable, "-m", "draftmark")

failed: list[str] = []


def told(name: str, *, good: bool, figure: str) -> None:
    print(f"{'ok  ' if good else 'FAIL'} {name}: {figure}")
    if not good:
        failed.append(name)


def fit(*words: str) -> dict[int, dict[str, Any]]:
    done = subprocess.run((*DRAFTMARK, "fit", *words, "--json"), capture_output=True, text=True, check=True)
    return {arm["depth"]: arm for arm in json.loads(done.stdout)["arms"]}


def table() -> None:
    """Three versions, six depths: slots, requests at once, tokens."""
    data = tomllib.loads(TABLE.read_text())
    equal = cells = 0
    for steps, columns in data["steps"].items():
        for version, cell, expected in zip(data["versions"], data["cell"], columns, strict=True):
            settings = Settings(algorithm="EAGLE", steps=int(steps), draft_tokens=int(steps) + 1)
            cost = state.StateCost(
                slot=data["slot"], per_request=data["slots_a_request"], draft_tokens=settings.draft_tokens
            )
            found = pools.solve(
                choose(version).rules, settings, Cell(bytes=cell, target=cell), cost, data["gib"] * 2**30, 262_144
            )
            got = [found.slots, found.running, found.tokens]
            cells += len(expected)
            equal += sum(a == b for a, b in zip(got, expected, strict=True))
    told("table of three versions and six depths", good=equal == cells, figure=f"{equal}/{cells} cells equal")


def founding() -> None:
    config = json.loads(NEXT.read_text())["config"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        arms = fit(
            folder, "--engine", "sglang==0.5.14", "--gpu", "h200", "--tp", "2", "--depth", "3..5", "--method",
            "NEXTN", "--flags", "--mem-fraction-static 0.66",
        )  # fmt: skip
    runs = [arms[depth]["max_running_requests"] for depth in (3, 5)]
    told("founding case, docs/fit.md", good=runs == [21, 17], figure=f"{runs[0]} -> {runs[1]} requests at once")


def worst(arms: dict[int, dict[str, Any]]) -> float:
    return max(abs(int(arms[depth]["kv_tokens"]) / tokens - 1) for depth, (tokens, _) in LOGGED.items())


def running(runs: Iterable[dict[int, dict[str, Any]]]) -> tuple[int, int]:
    pairs = [(arms[d]["max_running_requests"], n) for arms in runs for d, (_, n) in LOGGED.items()]
    return sum(a == b for a, b in pairs), len(pairs)


def captures() -> None:
    depths = ("--depth", ",".join(map(str, (*LOGGED, 10))))
    model = str(CAPTURES / "model")
    logs = {steps: str(CAPTURES / f"q35_k{steps}_mf0.62.log") for steps in (*LOGGED, 10)}
    runs = {steps: fit(model, "--log", path, *depths, "--method", "NEXTN") for steps, path in logs.items()}
    crossed = [runs[steps] for steps in LOGGED]
    error = max(map(worst, crossed))
    told("captures from each other, tokens", good=error <= 0.002, figure=f"worst error {error:.5%} (limit 0.2 %)")
    equal, of = running(crossed)
    told("captures from each other, requests at once", good=equal == of, figure=f"{equal}/{of} exact")
    error = worst(runs[10])
    told("captures from the start that failed", good=error <= 0.002, figure=f"worst error {error:.5%}")
    bare = fit(
        model, "--gpu", "h200", "--engine", "sglang==0.5.17", *depths, "--method", "NEXTN", "--flags",
        "--mem-fraction-static 0.62 --disable-radix-cache --cuda-graph-max-bs 32",
    )  # fmt: skip
    error = worst(bare)
    told("config and card alone, tokens", good=error <= 0.05, figure=f"worst error {error:.5%} (limit 5 %)")
    equal, of = running([bare])
    told("config and card alone, requests at once", good=equal == of, figure=f"{equal}/{of} exact")
    refused = [arms[10]["fits"] is False for arms in (*runs.values(), bare)]
    lever = next((line for line in runs[5][10]["to_get_more"] if "at least" in line), "none")
    needed = float(lever.split()[1]) if lever != "none" else 0.0
    told(
        "depth 10 does not start",
        good=all(refused) and abs(needed - 0.722) < 0.002,
        figure=f"{sum(refused)}/{len(refused)} say so; {lever} (SGLang's message: 0.468)",
    )


def seconds() -> None:
    words = (
        *DRAFTMARK, "fit", str(CAPTURES / "model"), "--depth", "0..10",
        "--log", str(CAPTURES / "q35_k3_mf0.62.log"),
    )  # fmt: skip
    took, used = [], []
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": folder}  # compiled, as an installed package is
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run(words, capture_output=True, check=True, env=env)
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            subprocess.run(words, capture_output=True, check=True, env=env)
            took.append(time.perf_counter() - began)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    median, cpu = statistics.median(took), statistics.median(used)
    figure = f"{median:.2f} s, {cpu:.2f} s of CPU (limit 0.5 s, on a quiet host)"
    told("seconds from the shell, median of 5", good=median < 0.5, figure=figure)


def main() -> None:
    table()
    founding()
    if CAPTURES.exists():
        captures()
        seconds()
    else:
        print(f"skipped: no captures at {CAPTURES.parent.parent.name}/{CAPTURES.parent.name}/{CAPTURES.name}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
