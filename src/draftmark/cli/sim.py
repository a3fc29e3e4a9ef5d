"""`draftmark sim`: a simulated server, in the foreground, its log on stderr; or its figures (`--what-if`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from draftmark.cli import options
from draftmark.cli.output import print_json, progress_console, result_console
from draftmark.sim.words import Words, declare, words_of

if TYPE_CHECKING:
    from draftmark.sim.setup import Setup

_EPILOG = """\
draftmark sim --model qwen35-122b --gpus 4xrtx-pro-6000 -- --speculative-algorithm NEXTN \\
    --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4
draftmark tune 'cmd:draftmark sim --model … -- …'      in the place of a real server
draftmark sim --model … --calibrate RUN --what-if 1,8,32 --depth 0..5 -- …      figures, nothing is served
"""
_SCHEMA = "draftmark.sim/1"
_LONG = 512  # requests at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser)
    group = parser.add_argument_group("figures in place of a server")
    group.add_argument(
        "--what-if",
        type=options.listed,
        metavar="LIST",
        help="requests at once, such as 1,8,32: tell, serve nothing",
    )
    group.add_argument("--depth", metavar="LIST", help="depths, such as 0..5 (default: that of the flags)")
    group.add_argument(
        "--prompt-tokens", type=options.positive, default=256, metavar="N", help="of a prompt (default 256)"
    )
    group.add_argument(
        "--output-tokens", type=options.positive, default=256, metavar="N", help="of an answer (default 256)"
    )
    group.add_argument(
        "--kind",
        metavar="LIST",
        help="of text, such as chat,copy, taking turns (default: those of the run it is calibrated from, else all)",
    )
    group.add_argument("--json", action="store_true", help="with --what-if: one JSON document on stdout")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Serve until something ends it, or tell what it would do."""
    from draftmark.sim.launcher import LauncherError
    from draftmark.sim.service import serve
    from draftmark.sim.setup import setup

    words = words_of(args)
    if args.what_if is not None:
        return _what_if(args, words)
    try:
        made = setup(words)
    except LauncherError as error:
        sys.stderr.write(error.said)
        return error.status
    return serve(made)


def _what_if(args: argparse.Namespace, words: Words) -> int:
    from draftmark.tune.plan import parse_concurrency

    levels = parse_concurrency(args.what_if)
    arms = [_arm(args, depth, made, levels) for depth, made in _setups(args, words)]
    document = {
        "schema": _SCHEMA,
        "model": words.model,
        "gpus": words.gpus,
        "version": words.version,
        "calibrated_from": words.calibrate,
        "prompt_tokens": args.prompt_tokens,
        "output_tokens": args.output_tokens,
        "arms": arms,
    }
    if args.json:
        print_json(document)
    else:
        _show(document)
    return 0


def _setups(args: argparse.Namespace, words: Words) -> Iterator[tuple[int, Setup]]:
    """The server at each depth that is asked for."""
    from draftmark.engines.sglang.engine import SGLang
    from draftmark.model import Arm
    from draftmark.sim.commandline import SERVES
    from draftmark.sim.setup import setup
    from draftmark.tune.plan import parse_depths

    sglang = SGLang(version=words.version)
    command = (*SERVES, *words.flags)
    for depth in parse_depths(args.depth) if args.depth else (sglang.depth(command),):
        flags = sglang.with_arm(command, Arm(depth)) if args.depth else command
        yield depth, setup(replace(words, flags=tuple(flags[len(SERVES) :])))


def _arm(args: argparse.Namespace, depth: int, made: Setup, levels: tuple[int, ...]) -> dict[str, Any]:
    from draftmark.sim.whatif import figures

    def told(level: int) -> dict[str, Any]:
        if level >= _LONG:  # seconds, and more than in proportion
            progress_console().print(f"depth {depth}, {level} at once", style="dim")
        return asdict(figures(made, level, prompt=args.prompt_tokens, output=args.output_tokens, kinds=kinds))

    pools, starts = made.memory.pools, made.memory.starts
    learned = dict.fromkeys(made.acceptance.prompts.values())
    kinds = tuple(args.kind.split(",")) if args.kind else tuple(learned or made.acceptance.chances)
    return {
        "depth": depth,
        "fits": starts,
        "kv_tokens": pools.tokens if starts else None,
        "max_running_requests": pools.running if starts else None,
        "levels": [told(level) for level in (levels if starts else ())],
    }


def _show(document: dict[str, Any]) -> None:
    from rich.table import Table

    console = result_console()
    source = document["calibrated_from"]
    told = f"calibrated from {source}" if source else "by data sheets, not calibrated: no prediction"
    table = Table(
        "depth", "at once", "tok/s", "each", "first token", "accept", "runs at most", box=None, pad_edge=False
    )
    for column in table.columns:
        column.justify = "right"
    for arm in document["arms"]:
        if not arm["fits"]:
            table.add_row(str(arm["depth"]), "", "", "", "", "", "does not start")
        for each in arm["levels"]:
            length = "–" if each["accept_len"] is None else f"{each['accept_len']:.2f}"
            table.add_row(
                str(arm["depth"]),
                str(each["concurrency"]),
                f"{each['output_tok_s']:.1f}",
                f"{each['decode_tok_s']:.1f}",
                f"{each['ttft_s']:.2f} s",
                length,
                str(arm["max_running_requests"]),
            )
    console.print(
        f"{document['model']} on {document['gpus']}, SGLang {document['version']}, simulated; {told}", markup=False
    )
    console.print(table)
