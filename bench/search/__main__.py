"""Searches side by side: `python -m bench.search [--surfaces 300] [--first SEED] [--svg FILE]`.

Draws surfaces (`bench.search.surfaces` says how), lets every method search them, and prints the table of
docs/search.md. The search was built on seeds from 1000 to 9999; the ones here begin at 500000.

`python -m bench.search knobs` is that of docs/knobs.md: five knobs of which two matter (bench/search/knobs.py).

Optuna's samplers take part with `--optuna`, alone: it may live in an environment of its own (with torch, for its
Gaussian process). `--keep FILE` writes what a run found, `--beside FILE` puts it into the table of another.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.search import knobs
from bench.search.methods import METHODS, OPTUNA, Trials
from bench.search.picture import Outcome, drawn, table
from bench.search.surfaces import Surface, draw, regret

FIRST = 500_000


def outcome(surface: Surface, method: Callable[[Trials], int]) -> Outcome:
    """One method on one surface."""
    trials = Trials(surface)
    depth = method(trials)
    return Outcome(trials.restarts, regret(surface, depth), trials.misfits)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--surfaces", type=int, default=300)
    parser.add_argument("--first", type=int, default=FIRST, help="seed of the first; each further one adds 1")
    parser.add_argument("--optuna", action="store_true", help="Optuna's samplers instead of the others")
    parser.add_argument("--keep", type=Path, help="write the outcomes there")
    parser.add_argument("--beside", type=Path, action="append", default=[], help="outcomes of another run")
    parser.add_argument("--svg", type=Path, help="write the picture there")
    args = parser.parse_args()
    surfaces = [draw(args.first + i) for i in range(args.surfaces)]
    methods = OPTUNA if args.optuna else METHODS
    found = {name: [outcome(surface, method) for surface in surfaces] for name, method in methods.items()}
    if args.keep is not None:
        args.keep.write_text(json.dumps({name: [asdict(o) for o in own] for name, own in found.items()}))
    for path in args.beside:
        kept = json.loads(path.read_text(encoding="utf-8"))
        found |= {name: [Outcome(**o) for o in own] for name, own in kept.items()}
    print(f"{len(surfaces)} surfaces, seeds {args.first} to {args.first + len(surfaces) - 1}\n")
    print(table(found))
    if args.svg is not None:
        args.svg.write_text(drawn(found), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["knobs"]:
        knobs.main(sys.argv[2:])
    else:
        main()
