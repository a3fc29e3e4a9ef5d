"""`draftmark report`: everything of a run again, from its records."""

from __future__ import annotations

import argparse
from pathlib import Path

from draftmark.cli.output import print_json, result_console
from draftmark.cli.reporting import rederive, write_reports
from draftmark.run.directory import RunDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run_directory", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument("--json", action="store_true", help="the result document on stdout")


def run(args: argparse.Namespace) -> int:
    """Derive result.json, report.html and report.md again."""
    directory = RunDirectory.open(args.run_directory)
    result = rederive(directory)
    write_reports(directory, result)
    if args.json:
        print_json(result)
    else:
        from draftmark.report.terminal import print_result

        print_result(result, result_console(), paths=str(directory.path / "report.html"))
    return 0
