"""The verb, not meant for people, by which a Draftmark elsewhere sends its requests from this host."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from draftmark.load.on_host import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("spec", type=Path, help="file that says what to send; it is removed")


def run(args: argparse.Namespace) -> int:
    """Send the requests; what comes of them goes to stdout, a line of JSON each."""

    def write(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    serve(args.spec, write)
    return 0
