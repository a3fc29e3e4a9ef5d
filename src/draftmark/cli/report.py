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
    parser.add_argument(
        "--adaptive",
        type=Path,
        metavar="FILE",
        help="write the best depth at each concurrency as a file for SGLang's --speculative-adaptive-config",
    )


def run(args: argparse.Namespace) -> int:
    """Derive result.json, report.html and report.md again; write what is asked for besides."""
    directory = RunDirectory.open(args.run_directory)
    result = rederive(directory)
    write_reports(directory, result)
    show(directory, result, as_json=args.json)
    if args.adaptive is not None:
        from draftmark.cli.adaptive_file import write_adaptive
        from draftmark.cli.output import progress_console

        said = write_adaptive(args.adaptive, directory.info, result)
        progress_console().print(said, markup=False, highlight=False, soft_wrap=True)
    return 0
