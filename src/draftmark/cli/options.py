"""Arguments that several verbs share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from draftmark.cli import engines, hosts
from draftmark.errors import UsageError
from draftmark.model import Foreign

_LARGEST = (
    9_999_999  # seven digits: above it a number is a slip of the finger, and waits of so many seconds overflow
)
_ROUNDS = 100
_REQUESTS = 1_000_000


def service(parser: argparse.ArgumentParser, *, default: str | None = None, optional: bool = False) -> None:
    """The service reference.

    Args:
        parser: Of the verb.
        default: Taken where none is named.
        optional: The verb can do without one.
    """
    parser.add_argument(
        "service",
        nargs="?" if optional or default is not None else None,
        default=default,
        metavar="SERVICE",
        help='unit:NAME, cmd:"COMMAND LINE", url:http://…, embedded: or a name of draftmark.toml'
        + (f" (default {default})" if default is not None else ""),
    )
    hosts.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, progress on stderr")
    parser.add_argument(
        "--engine",
        type=engines.engine_named,
        default="auto",
        metavar="NAME",
        help="which build serves embedded: xllamacpp or llama-server (default: the first that runs here); "
        "or the version of SGLang that serves, where it cannot be seen: sglang==0.5.17",
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="drafting method to bring when the command line names none (llama-server: ngram-simple, "
        "or draft-simple when there is a draft model; SGLang: none)",
    )


def workload(parser: argparse.ArgumentParser) -> None:
    """What is asked of the server."""
    group = parser.add_argument_group("load")
    group.add_argument(
        "--concurrency",
        type=listed,
        metavar="LIST",
        help="requests at once, such as 1,8,32 (default 1,4 for embedded:, else 1,8)",
    )
    group.add_argument(
        "--workload",
        type=listed,
        metavar="LIST",
        help="built-in sets: copy, chat (default both); by name also code, math, extraction, translation, long",
    )
    group.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="your own prompts instead, JSONL or a JSON list: OpenAI messages, ShareGPT, the turns of MT-Bench, "
        "Spec-Bench and SPEED-Bench, or {prompt}",
    )
    group.add_argument(
        "--requests",
        type=whole(_REQUESTS),
        metavar="N",
        help="requests per measurement (conversations with --multi-turn), at least one a slot "
        "(default 8, or twice the slots; embedded: 3, or one a slot; with --rate: 30 seconds of them)",
    )
    group.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="longest answer, tokens (default: as the prompts say; embedded: 32)",
    )
    group.add_argument(
        "--api",
        choices=("openai-chat", "openai", "sglang", "llamacpp"),
        help="openai-chat: /v1/chat/completions; openai: /v1/completions, without the chat template; sglang: "
        "its own /generate, with it, whose answers tell what became of the drafts; llamacpp: llama-server's "
        "own /completion, likewise "
        "(default: sglang for SGLang from 0.5.12 on, else openai-chat)",
    )
    group.add_argument(
        "--request-timeout", type=positive_number, default=120.0, metavar="S", help="longest request (default 120)"
    )
    group.add_argument(
        "--load-from",
        choices=("auto", "here", "host"),
        default="auto",
        help="with --host, where requests are sent from: host, the service's own, if this version of draftmark is "
        "installed there; here, through the SSH connection; auto, the first of these that is possible (default)",
    )


def header(parser: argparse._ActionsContainer) -> None:
    """What is sent with every request to a server at a URL."""
    parser.add_argument(
        "--header", action="append", default=[], metavar="'N: V'", help="HTTP header, such as a key"
    )


def headers(args: argparse.Namespace) -> dict[str, str]:
    """The headers given, by name.

    Raises:
        UsageError: One is no header.
    """
    found = {}
    for text in args.header:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise UsageError(
                "a header is NAME: VALUE", evidence=(text,), next_step="--header 'Authorization: Bearer …'"
            )
        found[name.strip()] = value.strip()
    return found


def measuring(parser: argparse.ArgumentParser, *, most_workers: int, most_repeats: int) -> None:
    """How `bench` measures."""
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "--max-seconds",
        type=positive_number,
        metavar="S",
        help="longest measurement; what there is by then is shown",
    )
    group.add_argument(
        "--repeat",
        type=whole(most_repeats),
        default=1,
        metavar="N",
        help="measure everything N times, and say how far the figures of such runs lie apart (default 1)",
    )
    group.add_argument(
        "--workers",
        type=whole(most_workers),
        default=1,
        metavar="N",
        help="processes that send, for thousands of streams at once (default 1)",
    )
    group.add_argument(
        "--no-stream",
        action="store_true",
        help="ask for whole answers: nothing is then known of their tokens' times",
    )
    group.add_argument(
        "--slo",
        metavar="LIST",
        help="count requests within these limits, in ms: ttft:500,tpot:30,e2e:9000 (goodput)",
    )
    group.add_argument(
        "--goodput", nargs="+", metavar="LIMIT", help="the same as vLLM writes it: ttft:500 e2el:9000"
    )


def bench_outputs(parser: argparse.ArgumentParser) -> None:
    """What `bench` leaves."""
    group = parser.add_argument_group("files")
    group.add_argument(
        "--output", type=Path, metavar="FILE", help="every request's record, as JSONL, written as they end"
    )
    group.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="measure nothing: everything again from what --output wrote",
    )
    group.add_argument("--html", type=Path, metavar="FILE", help="distributions and course over time, as one page")
    group.add_argument(
        "--export",
        action="append",
        default=[],
        metavar="vllm|sglang[=FILE]",
        help="the result under the keys of vllm bench serve (default vllm.json) or of SGLang's bench_serving "
        "(a line is added to sglang.jsonl)",
    )


def sweep(parser: argparse.ArgumentParser) -> None:
    """Which arms, and how often."""
    group = parser.add_argument_group("arms")
    group.add_argument(
        "--depth",
        metavar="LIST",
        help="depths, such as 0..8 or off,4,8,16; adaptive is SGLang's own choice of depth while it serves "
        "(default: off,4,8,16,32 for n-gram drafting, off,1..6,8 for a draft model; embedded: off,4,8,16)",
    )
    group.add_argument(
        "--knob",
        action="append",
        metavar="NAME=RANGE",
        help="search a further flag at the best depth, such as mem-fraction=0.80..0.92 or "
        "attention-backend=fa3,triton; again for each (docs/knobs.md); without --depth the depth stays as it is",
    )
    group.add_argument(
        "--knob-restarts", type=whole(_ROUNDS), metavar="N", help="most restarts spent on knobs (default 15)"
    )
    group.add_argument(
        "--study",
        metavar="URL",
        help="where Optuna keeps what was tried of the knobs, for its dashboard and for other runs: "
        "sqlite:////… or postgresql://… (default: study.db in the run directory)",
    )
    group.add_argument(
        "--search",
        choices=("forecast", "grid"),
        help="forecast: after each start say what is worth the next, and stop when nothing is; grid: every arm, "
        "in rounds (default: forecast for units and SGLang; grid where --rounds is given, for n-gram drafts, else)",
    )
    group.add_argument(
        "--rounds",
        type=whole(_ROUNDS),
        metavar="N",
        help="how often each arm is started (default 2; embedded: 3); by forecast how often its choice is, at most "
        "(default 2)",
    )
    group.add_argument(
        "--tie-margin", type=share, default=0.02, metavar="X", help="arms closer than this are ties (default 0.02)"
    )
    group.add_argument(
        "--start-timeout",
        type=positive_number,
        metavar="S",
        help="longest start (default 600; once the service has started as it is, from how long that took)",
    )
    group.add_argument(
        "--max-foreign-cpu",
        type=positive_number,
        metavar="CORES",
        help="other work on the host above which a measurement is void "
        "(default 0.25 where the server computes on CPUs; not looked at where it uses a GPU)",
    )


def live(parser: argparse.ArgumentParser) -> None:
    """How a live service is treated."""
    group = parser.add_argument_group("live service")
    group.add_argument(
        "--foreign",
        type=Foreign,
        choices=tuple(Foreign),
        default=Foreign.ABORT,
        help="requests of others: end the run and put the service back (abort, the default), "
        "wait until there are none, or ignore them",
    )
    group.add_argument(
        "--patience",
        type=positive_number,
        default=120.0,
        metavar="S",
        help="longest wait for requests to finish before a stop, and for others with --foreign wait (default 120)",
    )
    group.add_argument(
        "--lease",
        type=whole(3600),
        default=60,
        metavar="S",
        help="without a sign of life for so long, the service's host puts it back (default 60, at least 6)",
    )


def whole(largest: int) -> Callable[[str], int]:
    """A reader of whole numbers from 1 to `largest`, in plain ASCII digits.

    int() alone would also take digits of other scripts, underscores, signs and blanks, and any length.
    """

    def read(text: str) -> int:
        if re.fullmatch("[0-9]{1,7}", text) is None or not 1 <= int(text) <= largest:
            raise argparse.ArgumentTypeError(f"{_shown(text)} is not a whole number from 1 up (at most {largest})")
        return int(text)

    return read


positive = whole(_LARGEST)
"""A whole number from 1 up."""


def positive_number(text: str) -> float:
    """A number above 0."""
    value = _number(text)
    if value is None or not 0 < value <= _LARGEST:
        raise argparse.ArgumentTypeError(f"{_shown(text)} is not a number above 0 (at most {_LARGEST})")
    return value


def share(text: str) -> float:
    """A number from 0 to under 1."""
    value = _number(text)
    if value is None or not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{_shown(text)} is not a share from 0 to under 1")
    return value


def listed(text: str) -> str:
    """A list with something in it: an empty one, mostly an unset shell variable, would pass for the default."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the list is empty; leave the option out for the default")
    return text


def _number(text: str) -> float | None:
    """A decimal number in ASCII, such as 2, 0.5 or 1e-3."""
    plain = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text)
    return float(text) if plain is not None else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
