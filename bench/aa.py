"""A/A on the real engine: sweeps whose arms are all the same configuration. A winner would be an invention.

    python bench/aa.py [SWEEPS] [ARMS]

The arms differ in --seed alone, which greedy answers and answers with a seed of their own do not use.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

from draftmark.cli import options, planning, tune
from draftmark.cli.reporting import rederive
from draftmark.model import Arm
from draftmark.run.directory import RunDirectory
from draftmark.tune.plan import schedule


def sweep(path: Path, count: int) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    options.service(parser, default="embedded:")
    options.sweep(parser)
    options.workload(parser)
    work = planning.planned(parser.parse_args(["--depth", "off"]))
    arms = (Arm(0), *(Arm(0, (("--seed", str(n)),)) for n in range(1, count)))
    info = dataclasses.replace(work.info, arms=arms, schedule=schedule(arms, work.info.rounds, arms[0]))
    directory = RunDirectory.create(path, info)
    tune.sweep(dataclasses.replace(work, info=info), directory)
    return rederive(directory)


def main() -> int:
    sweeps = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    winners = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(1, sweeps + 1):
            result = sweep(Path(scratch) / f"run-{number}", count)
            winners += result["exit_status"] == 10
            print(f"{number}: exit status {result['exit_status']}: {result['verdict']}", flush=True)
            for axis in result["axes"]:  # type: ignore[attr-defined]
                spans = "  ".join(
                    f"{r['ratio']:.3f} ({r['low']:.3f}–{r['high']:.3f})" for r in axis["ratios"].values()
                )
                print(f"   {axis['axis']:<8} noise {axis['noise']}  {axis['verdict']:<12} {spans}")
    print(f"{winners} of {sweeps} sweeps named a winner")
    return 1 if winners > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
