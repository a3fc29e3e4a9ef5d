"""Options of a load that do not go together: each combination has its one error."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from draftmark.cli.load_words import DATA
from draftmark.errors import UsageError


@dataclass(frozen=True, slots=True)
class _Conflict:
    """Options that cannot be carried out as they stand, or not together.

    Attributes:
        found: Whether they are there.
        options: Which they are, for the evidence.
        what: What is wrong.
        next_step: What to type instead.
    """

    found: Callable[[argparse.Namespace], bool]
    options: tuple[str, ...]
    what: str
    next_step: str


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be carried out together.

    Raises:
        UsageError: The first of them.
    """
    for conflict in _CONFLICTS:
        if conflict.found(args):
            raise UsageError(
                conflict.what,
                evidence=(" ".join(_given(args, option) for option in conflict.options),),
                next_step=conflict.next_step,
            )


def refuse_random_tokens(args: argparse.Namespace) -> None:
    """For the verbs that choose.

    Raises:
        UsageError: Random tokens were asked for.
    """
    if args.random_tokens is not None:
        raise UsageError(
            "random tokens do not choose a depth",
            evidence=(_given(args, "random_tokens"), "what is drafted and accepted depends on the text"),
            next_step="give real prompts, --workload or --prompts; random tokens measure pure capacity: "
            "draftmark bench",
        )


def _given(args: argparse.Namespace, option: str) -> str:
    value = getattr(args, option)
    flag = "--" + option.replace("_", "-")
    if value is True:
        return flag
    shown = ":".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return flag if value is None else f"{flag} {shown}"


def _is(*names: str) -> Callable[[argparse.Namespace], bool]:
    return lambda args: all(getattr(args, name) not in (None, False) for name in names)


def _without(name: str, *needed: str) -> Callable[[argparse.Namespace], bool]:
    return lambda args: _is(name)(args) and not any(_is(other)(args) for other in needed)


def _bursty_without_chance(args: argparse.Namespace) -> bool:
    return args.burstiness is not None and args.arrival in ("constant", "poisson")


def _span_without_ramp(args: argparse.Namespace) -> bool:
    return args.rate is not None and not args.rate.single and args.arrival not in (None, "ramp")


def _ramp_without_span(args: argparse.Namespace) -> bool:
    return args.rate is not None and args.rate.single and (args.arrival == "ramp" or args.ramp_seconds is not None)


def _gamma_without_shape(args: argparse.Namespace) -> bool:
    return args.arrival == "gamma" and args.burstiness is None


def _several_caps(args: argparse.Namespace) -> bool:
    return (args.rate is not None or args.trace is not None) and "," in (args.concurrency or "")


def _think_in_open_loop(args: argparse.Namespace) -> bool:
    return args.think is not None and (args.rate is not None or args.trace is not None) and not args.multi_turn


def _ids_as_chat(args: argparse.Namespace) -> bool:
    return args.random_tokens is not None and args.api == "openai-chat"


def _lengths_without_data(args: argparse.Namespace) -> bool:
    return args.output_tokens == DATA and args.prompts is None and args.trace is None


def _both(first: str, second: str, why: str, next_step: str = "leave one of them out") -> _Conflict:
    one, other = (f"--{name.replace('_', '-')}" for name in (first, second))
    what = f"{one} and {other} exclude each other: {why}"
    return _Conflict(_is(first, second), (first, second), what, next_step)


def _needs(option: str, needed: str, next_step: str) -> _Conflict:
    flag, other = (f"--{name.replace('_', '-')}" for name in (option, needed))
    return _Conflict(
        _without(option, needed), (option,), f"{flag} says something about {other}, and there is none", next_step
    )


_MADE = "each of them says what is asked"
_LENGTH = "IN:OUT has the answers' length already"
_CONFLICTS = (
    _both(
        "rate",
        "trace",
        "a trace has its own times",
        "leave --rate out; --trace-speed 2 replays the trace twice as fast",
    ),
    _needs("arrival", "rate", "--rate R, requests a second"),
    _needs("burstiness", "rate", "--rate R, requests a second"),
    _needs("ramp_seconds", "rate", "--rate A..B"),
    _needs("trace_speed", "trace", "--trace FILE"),
    _Conflict(
        _bursty_without_chance,
        ("arrival", "burstiness"),
        "these arrivals have no burstiness to be chosen: constant ones have none, and Poisson's is 1",
        "--arrival gamma, or leave --burstiness out",
    ),
    _Conflict(
        _gamma_without_shape,
        ("arrival",),
        "gamma arrivals need a burstiness",
        "--burstiness 0.5 for clumps; 1 would be Poisson",
    ),
    _Conflict(
        _span_without_ramp,
        ("rate", "arrival"),
        "two rates are a ramp, and no other arrival",
        "--arrival ramp, or one rate",
    ),
    _Conflict(
        _ramp_without_span,
        ("rate",),
        "a ramp goes from one rate to another",
        "--rate 2..20, with --ramp-seconds S",
    ),
    _Conflict(
        _several_caps,
        ("concurrency",),
        "in an open loop --concurrency is a cap on what is under way, and there is one",
        "give one number, or leave it out for no cap",
    ),
    _Conflict(
        _think_in_open_loop,
        ("think",),
        "--think is a pause between one user's requests, and an open loop has times instead",
        "leave it out, or hold conversations with --multi-turn, in which each further turn is thought about",
    ),
    _both("output_tokens", "max_tokens", "one forces the answers' length, the other limits it"),
    _both("shared_prefix", "trace", _MADE),
    _both("random_tokens", "trace", _MADE),
    _both("random_tokens", "shared_prefix", _MADE),
    _both("random_tokens", "prompts", _MADE),
    _both("random_tokens", "workload", _MADE),
    _both("random_tokens", "output_tokens", _LENGTH, "leave --output-tokens out"),
    _both("random_tokens", "max_tokens", _LENGTH, "leave --max-tokens out"),
    _Conflict(
        _ids_as_chat,
        ("random_tokens", "api"),
        "a chat API is asked with messages, not with token ids",
        "--api openai, sglang or llamacpp",
    ),
    _both("multi_turn", "trace", "a trace has requests, not conversations"),
    _both("multi_turn", "random_tokens", "random tokens make no conversation"),
    _both("multi_turn", "shared_prefix", "shared beginnings are made for single requests"),
    _Conflict(
        _lengths_without_data,
        ("output_tokens",),
        "there are no data whose lengths could be taken",
        "--prompts FILE with recorded answers, or a number",
    ),
)
