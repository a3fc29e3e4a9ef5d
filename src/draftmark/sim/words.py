"""The words of `draftmark sim`: its own options, and SGLang's flags behind `--`. Pure."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import NoReturn

from draftmark.engines.sglang.versions import read_minors
from draftmark.errors import UsageError

DEATHS = ("kv-start", "runtime-oom", "watchdog", "killed-child", "hang", "self-kill")
CLOCKS = ("wall", "simulated")
VERSION = "0.5.17"
_LARGEST = 1e6
_PYTHON = re.compile(r"python[\d.]*")
_SEPARATOR = "--"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a simulated server was asked for.

    Attributes:
        model: A preset's name, or a directory that holds config.json.
        gpus: `4xrtx-pro-6000`, `h200`, `2x80GiB`.
        speed: How much faster than in life everything but serving goes.
        serve_speed: How much faster than in life tokens come.
        calibrate: Run directory or case whose figures the cost of a round is fitted to.
        after_s: Seconds of service until `die`.
        noise: Relative spread of one round's duration.
        flags: SGLang's own.
    """

    model: str
    gpus: str = "h200"
    version: str = VERSION
    speed: float = 1.0
    serve_speed: float = 1.0
    clock: str = "wall"
    seed: int = 0
    noise: float = 0.01
    die: str | None = None
    after_s: float = 10.0
    calibrate: str | None = None
    flags: tuple[str, ...] = ()


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--model", required=True, metavar="NAME|DIR", help="a model by name, or a directory")
    parser.add_argument("--gpus", default="h200", metavar="[N x]CARD", help="such as 4xrtx-pro-6000 (default h200)")
    parser.add_argument(
        "--sglang-version",
        type=_version,
        default=VERSION,
        metavar="V",
        help=f"whose flags, log and memory (default {VERSION})",
    )
    parser.add_argument(
        "--speed",
        type=_factor,
        default=1.0,
        metavar="X",
        help="start, drain and teardown X times faster (default 1)",
    )
    parser.add_argument(
        "--serve-speed", type=_factor, default=1.0, metavar="X", help="tokens come X times faster (default 1)"
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="wall: serve in real time (default); simulated: never wait, stamp the log with simulated time",
    )
    parser.add_argument("--seed", type=_whole, default=0, metavar="N", help="of acceptance and noise (default 0)")
    parser.add_argument(
        "--noise", type=_share, default=0.01, metavar="X", help="relative spread of a round's time (default 0.01)"
    )
    parser.add_argument(
        "--calibrate",
        metavar="RUN|CASE",
        help="fit speed and acceptance to a run directory of draftmark tune, or to a known case: founding",
    )
    parser.add_argument("--die", choices=DEATHS, help="die in this way")
    parser.add_argument(
        "--die-after", type=_seconds, default=10.0, metavar="S", help="seconds of service before (default 10)"
    )
    parser.add_argument("flags", nargs="*", metavar="-- FLAGS", help="of SGLang's own server, behind --")


def words_of(args: argparse.Namespace) -> Words:
    """The options as they were parsed."""
    return Words(
        model=args.model,
        gpus=args.gpus,
        version=args.sglang_version,
        speed=args.speed,
        serve_speed=args.serve_speed,
        clock=args.clock,
        seed=args.seed,
        noise=args.noise,
        die=args.die,
        after_s=args.die_after,
        calibrate=args.calibrate,
        flags=tuple(args.flags),
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"draftmark sim: {message}", next_step="SGLang's flags stand behind --: draftmark sim --help"
        )


def read(words: Sequence[str]) -> Words:
    """Words behind `draftmark sim`.

    Raises:
        UsageError: They are none.
    """
    parser = _Parser(prog="draftmark sim", add_help=False)
    declare(parser)
    own, flags = _divided(words)
    return replace(words_of(parser.parse_args(own)), flags=flags)


def _divided(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    found = list(words)
    if _SEPARATOR not in found:
        return found, ()
    at = found.index(_SEPARATOR)
    return found[:at], tuple(found[at + 1 :])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a simulated server stands in a command line: its own words, and SGLang's flags behind them."""

    before: tuple[str, ...]
    words: Words

    @property
    def flags(self) -> tuple[str, ...]:
        """SGLang's."""
        return self.words.flags

    def with_flags(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The command line with other flags."""
        return (*self.before, _SEPARATOR, *flags)


def verb_at(command: Sequence[str]) -> int | None:
    """Index behind `draftmark sim`; None when no simulated server is started here."""
    for index, word in enumerate(command[:-1]):
        if command[index + 1] != "sim":
            continue
        run_as_module = word == "draftmark" and index and command[index - 1] == "-m"
        if run_as_module and index > 1 and _PYTHON.fullmatch(PurePath(command[index - 2]).name):
            return index + 2
        if PurePath(word).name == "draftmark" and not run_as_module:
            return index + 2
    return None


def place_of(command: Sequence[str]) -> Place:
    """A command line taken apart.

    Raises:
        UsageError: It starts no simulated server, or not with these words.
    """
    at = verb_at(command)
    if at is None:
        raise UsageError("no `draftmark sim` in this command line", evidence=(" ".join(command)[:200],))
    words = read(command[at:])
    own, _ = _divided(command[at:])
    return Place((*command[:at], *own), words)


def _version(text: str) -> str:
    known = read_minors()
    found = re.fullmatch(r"v?0\.5\.([0-9]{1,3})(?:[.+-]?[a-z][a-z0-9.+]*)?", text, re.ASCII)
    if found is None or not known[0] <= int(found[1]) <= known[-1]:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not simulated: 0.5.{known[0]} to 0.5.{known[-1]} are")
    return text


def _number(text: str) -> float:
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text) is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number from 0 up")
    return float(text)


def _factor(text: str) -> float:
    value = _number(text)
    if not 0 < value <= _LARGEST or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a factor above 0 (at most {_LARGEST:.0f})")
    return value


def _seconds(text: str) -> float:
    value = _number(text)
    if value > _LARGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} seconds are too many")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if value >= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a share from 0 to under 1")
    return value


def _whole(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,9}", text) is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number")
    return int(text)
