"""Runs the tests under coverage and holds the pure parts to 90 % of their branches. `make test` calls it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PURE = (
    *("tune/", "run/", "report/", "engines/", "load/", "postmortem/", "model/", "errors.py"),
    "service/reference.py",
)
LEAST = 90.0
# Live tests wait more than they work. A file stays together: its tests share a machine that was booted for them.
SIDE_BY_SIDE = ("--numprocesses", "4", "--dist", "loadfile")


def main() -> int:
    """Exit status: pytest's, or 1 when a pure part is covered too little."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "coverage.json"
        words = [*SIDE_BY_SIDE, "--cov", "--cov-report", f"json:{target}", *sys.argv[1:]]
        run = subprocess.run([sys.executable, "-m", "pytest", *words], check=False)
        if run.returncode != 0:
            return run.returncode
        files = json.loads(target.read_text())["files"]
    branches = covered = statements = ran = 0
    for name, entry in sorted(files.items()):
        part = name.partition("draftmark/")[2]
        if not part.startswith(PURE):
            continue
        figures = entry["summary"]
        branches += figures["num_branches"]
        covered += figures["covered_branches"]
        statements += figures["num_statements"]
        ran += figures["covered_lines"]
        if figures["num_branches"] and figures["covered_branches"] / figures["num_branches"] < LEAST / 100:
            print(f"  {part}: {figures['covered_branches']} of {figures['num_branches']} branches")
    share = 100 * covered / branches
    lines = 100 * ran / statements
    print(f"pure parts: {share:.1f} % of {branches} branches, {lines:.1f} % of {statements} statements")
    if share < LEAST:
        print(f"that is under {LEAST} %: test what is listed above")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
