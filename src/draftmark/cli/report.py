"""`draftmark report`: everything of a run again, from its records."""

from __future__ import annotations

import argparse
from pathlib import Path

from draftmark.cli.reporting import rederive, show, write_reports
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
    show(directory, result, as_json=args.json)
    return 0
