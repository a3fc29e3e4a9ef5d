"""`draftmark compare`: two runs side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

from draftmark.cli.output import print_json, result_console
from draftmark.run.directory import RunDirectory
from draftmark.tune import compare as comparison
from draftmark.tune.result import derive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("first", type=Path, metavar="RUN", help="a run directory: the reference")
    parser.add_argument("second", type=Path, metavar="RUN", help="another")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def run(args: argparse.Namespace) -> int:
    """Compare, from the records of both."""
    first, second = (derive(RunDirectory.open(path).load()) for path in (args.first, args.second))
    rows = comparison.compare(first, second)
    document = {
        "schema": "draftmark.compare/1",
        "runs": [str(args.first), str(args.second)],
        "differences": comparison.differences(first, second),
        "axes": rows,
        "sentence": comparison.sentence(rows),
    }
    if args.json:
        print_json(document)
    else:
        from draftmark.report.terminal import print_compare

        console = result_console()
        for difference in document["differences"]:
            console.print(f"differs: {difference}", markup=False, soft_wrap=True)
        print_compare(document, console)
    return 0
