"""Searches of five knobs side by side: `python -m bench.search knobs [--surfaces 50] [--first SEED]`.

Draws surfaces (`bench.search.knob_surfaces` says how), lets every method search them with 15 restarts, and prints
the table of docs/knobs.md. The search was built on seeds 1000 to 3299; these begin at 700000.

Optuna (`pip install 'draftmark[search]'`) takes part where it is installed; its Gaussian process needs torch and
scipy, too, and is left out without them. `--keep FILE` writes what a run found, `--beside FILE` puts it into
another's table.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from bench.search.knob_methods import BUDGET, KNOB_METHODS, KNOB_OPTUNA, KNOB_OPTUNA_GP, KnobTrials
from bench.search.knob_surfaces import KnobSurface, draw_knobs

from draftmark.tune.knobs.space import Point

FIRST = 700_000
NEAR = 0.05
Method = Callable[[KnobTrials], Point]


@dataclass(frozen=True, slots=True)
class KnobOutcome:
    """What one method came to on one surface."""

    restarts: int
    regret: float
    misfits: int


def outcome(surface: KnobSurface, method: Method) -> KnobOutcome:
    """One method on one surface."""
    trials = KnobTrials(surface)
    chosen = method(trials)
    return KnobOutcome(trials.restarts, surface.regret(chosen), trials.misfits)


def table(found: dict[str, list[KnobOutcome]]) -> str:
    """As Markdown."""
    lines = [
        "| method | within 5 % of the best | restarts, mean | most | regret, mean | 95 % | did not fit |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, own in found.items():
        regrets = sorted(each.regret for each in own)
        late = regrets[min(round(0.95 * len(regrets)), len(regrets) - 1)]
        near = sum(each.regret <= NEAR for each in own) / len(own)
        starts = [each.restarts for each in own]
        lines.append(
            f"| {name} | {near:.0%} | {fmean(starts):.1f} | {max(starts)} | {fmean(regrets):.1%} | {late:.1%} | "
            f"{sum(each.misfits for each in own)} |"
        )
    return "\n".join(lines)


def methods() -> dict[str, Method]:
    """Those that can run here."""
    found = dict(KNOB_METHODS)
    if importlib.util.find_spec("optuna") is not None:
        found |= KNOB_OPTUNA
        if all(importlib.util.find_spec(name) is not None for name in ("torch", "scipy")):
            found |= KNOB_OPTUNA_GP
    return found


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.search knobs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--surfaces", type=int, default=50)
    parser.add_argument("--first", type=int, default=FIRST, help="seed of the first; each further one adds 1")
    parser.add_argument("--only", action="append", help="a method, by a part of its name")
    parser.add_argument("--keep", type=Path, help="write the outcomes there")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="outcomes of another run")
    args = parser.parse_args(words)
    wanted = {
        name: method
        for name, method in methods().items()
        if not args.only or any(part.lower() in name.lower() for part in args.only)
    }
    surfaces = [draw_knobs(args.first + i) for i in range(args.surfaces)]
    found = {name: [outcome(surface, method) for surface in surfaces] for name, method in wanted.items()}
    if args.keep is not None:
        args.keep.write_text(json.dumps({name: [asdict(o) for o in own] for name, own in found.items()}))
    for path in args.beside:
        kept = json.loads(path.read_text(encoding="utf-8"))
        found |= {name: [KnobOutcome(**o) for o in own] for name, own in kept.items()}
    print(
        f"{len(surfaces)} surfaces of 5 knobs of which 2 matter, seeds {args.first} to "
        f"{args.first + len(surfaces) - 1}, at most {BUDGET} restarts\n"
    )
    print(table(found))
