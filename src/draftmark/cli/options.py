"""Arguments that several verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path

from draftmark.errors import UsageError


def service(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    """The service reference."""
    parser.add_argument(
        "service",
        nargs="?" if default is not None else None,
        default=default,
        metavar="SERVICE",
        help='embedded:, cmd:"llama-server …" or url:http://…'
        + (f" (default {default})" if default is not None else ""),
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, progress on stderr")
    parser.add_argument(
        "--engine",
        choices=("auto", "xllamacpp", "llama-server"),
        default="auto",
        help="which build serves embedded: (default: the first that runs here)",
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="drafting method to bring when the command line names none (default: ngram-simple, "
        "or draft-simple when there is a draft model)",
    )


def workload(parser: argparse.ArgumentParser) -> None:
    """What is asked of the server."""
    group = parser.add_argument_group("load")
    group.add_argument(
        "--concurrency",
        metavar="LIST",
        help="requests at once, such as 1,8,32 (default 1,4 for embedded:, else 1,8)",
    )
    group.add_argument("--workload", metavar="LIST", help="built-in sets, copy and chat (default both)")
    group.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="your own prompts instead: JSONL, OpenAI messages or ShareGPT conversations",
    )
    group.add_argument(
        "--requests",
        type=positive,
        metavar="N",
        help="requests per measurement, at least one a slot "
        "(default 8, or twice the slots; embedded: 3, or one a slot)",
    )
    group.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="longest answer, tokens (default: as the prompts say; embedded: 40)",
    )
    group.add_argument(
        "--api",
        choices=("openai-chat", "openai"),
        default="openai-chat",
        help="openai-chat: /v1/chat/completions (default); openai: /v1/completions, without the chat template",
    )
    group.add_argument(
        "--request-timeout", type=positive_number, default=120.0, metavar="S", help="longest request (default 120)"
    )


def sweep(parser: argparse.ArgumentParser) -> None:
    """Which arms, and how often."""
    group = parser.add_argument_group("arms")
    group.add_argument(
        "--depth",
        metavar="LIST",
        help="depths, such as 0..8 or off,4,8,16 "
        "(default: off,4,8,16,32 for n-gram drafting, off,1..6,8 for a draft model; embedded: off,4,8,16)",
    )
    group.add_argument(
        "--rounds", type=positive, metavar="N", help="how often each arm is started (default 3; cmd: 2)"
    )
    group.add_argument(
        "--tie-margin", type=share, default=0.02, metavar="X", help="arms closer than this are ties (default 0.02)"
    )
    group.add_argument(
        "--start-timeout", type=positive_number, default=600.0, metavar="S", help="longest start (default 600)"
    )
    group.add_argument(
        "--max-foreign-cpu",
        type=positive_number,
        metavar="CORES",
        help="other work on the host above which a measurement is void "
        "(default 0.25 where the server computes on CPUs; not looked at where it uses a GPU)",
    )


def positive(text: str) -> int:
    """A whole number from 1 up."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return value


def positive_number(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def share(text: str) -> float:
    """A number from 0 to under 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to under 1")
    return value


def existing_directory(text: str) -> Path:
    """A directory that is there."""
    path = Path(text)
    if not path.is_dir():
        raise UsageError(f"there is no directory {text}", next_step="give a run directory")
    return path
