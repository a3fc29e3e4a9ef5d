"""What is asked of a server, and when: the options of `bench` that shape a load, and what they come to."""

from __future__ import annotations

import argparse
import dataclasses
import math
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from random import Random

from draftmark.cli import load_sizes, options
from draftmark.cli.load_conflicts import check
from draftmark.cli.load_prompts import prompts
from draftmark.cli.load_words import output_tokens, prefix_shape, seed, span, token_counts
from draftmark.load.arrivals import Constant, Gamma, Poisson, Ramp, Schedule, Trace, mean_rate
from draftmark.load.traces import RequestTrace, read_trace
from draftmark.model import Workload
from draftmark.tune.measuring import Axis

_SECONDS = 30.0  # of an open loop, where nothing says how long
_FEWEST = 8
_MOST = 1_000_000
_WARMUP = 4
_RAMP_S = 60.0
_THOUGHTS = 1000  # think times drawn; taken in turn, from the start again when used up


def add_arguments(parser: argparse.ArgumentParser, *, tuning: bool = False) -> None:
    """Declare the arguments.

    Args:
        parser: Of the verb.
        tuning: For the verbs that choose a depth: only what makes sense there, and what they refuse in words.
    """
    group = parser.add_argument_group("what is asked")
    group.add_argument(
        "--seed",
        type=seed,
        metavar="N",
        help="shuffle the prompts, and of more than are needed take any (default: in order)",
    )
    group.add_argument(
        "--random-tokens",
        type=token_counts,
        metavar="IN:OUT",
        help=argparse.SUPPRESS
        if tuning
        else "prompts of IN random token ids, answers forced to OUT: for pure capacity, never to choose a depth",
    )
    if tuning:
        return
    group.add_argument(
        "--multi-turn",
        action="store_true",
        help="ask the further turns of conversations, too, each with the answers so far "
        "(default: one request each, of turns that nobody answered yet the first)",
    )
    group.add_argument(
        "--output-tokens",
        type=output_tokens,
        metavar="N|data",
        help="force each answer to N tokens, or to the length of the one that the data have",
    )
    group.add_argument(
        "--shared-prefix",
        type=prefix_shape,
        metavar="G:P:T",
        help="G groups of P prompts; those of a group begin with the same T tokens of text",
    )
    when = parser.add_argument_group(
        "when it is asked (default: a closed loop, each slot again as soon as it is answered)"
    )
    when.add_argument(
        "--rate",
        type=span,
        metavar="R",
        help="open loop: requests a second, whatever became of others; A..B: a ramp",
    )
    when.add_argument(
        "--arrival",
        choices=("poisson", "constant", "gamma", "ramp"),
        help="how requests of --rate arrive (default poisson; gamma with --burstiness; ramp with A..B)",
    )
    when.add_argument(
        "--burstiness",
        type=options.positive_number,
        metavar="X",
        help="shape of gamma arrivals, as vLLM has it: below 1 in clumps, 1 is Poisson, above 1 more even; "
        "a ramp is by chance with it, and even without",
    )
    when.add_argument(
        "--ramp-seconds",
        type=options.positive_number,
        metavar="S",
        help="how long a ramp takes (default: as long as --requests last, else 60)",
    )
    when.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="replay the times and lengths of a trace: Mooncake or Bailian JSONL, BurstGPT or Azure CSV",
    )
    when.add_argument("--trace-speed", type=options.positive_number, metavar="X", help="2 replays it twice as fast")
    when.add_argument(
        "--think",
        type=span,
        metavar="S",
        help="seconds that a slot waits before its next request; A..B: drawn between",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the options come to.

    Attributes:
        workloads: What is asked, each measured apart.
        send_at_s: Open loop: when each measured request goes out, the same for each workload; None: closed loop.
        think_s: Pauses, taken in turn.
        requests: Measured requests of each workload, where the options say it; None: by the level.
        cap: Open loop: most under way at once; 0 for no limit.
        warmup: Open loop: requests before the begin; none before a trace, whose first prompts must not be known.
        by_ids: Asked with token ids, which not every API takes.
        shares: Prompts have beginnings in common on purpose, so the server's prompt cache must stay on.
        arrival: The schedule, for the document; None in a closed loop.
        notes: What a reader of the figures has to know, a sentence each.
    """

    workloads: tuple[Workload, ...]
    send_at_s: tuple[float, ...] | None = None
    think_s: tuple[float, ...] = ()
    requests: int | None = None
    cap: int = 0
    warmup: int = 0
    by_ids: bool = False
    shares: bool = False
    arrival: dict[str, object] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Times:
    """An open loop's plan."""

    at_s: tuple[float, ...]
    told: dict[str, object]
    note: str


def asked(args: argparse.Namespace, *, embedded: bool) -> Asked:
    """What is asked, and when. Reads files; asks no server.

    Raises:
        UsageError: Options that do not go together, or a file that cannot be used.
    """
    check(args)
    trace = _trace(args) if args.trace is not None else None
    times = _replayed_times(args, trace) if trace is not None else _times(args) if args.rate is not None else None
    levels = () if times is not None else load_sizes.concurrency(args, embedded=embedded)
    wanted = len(times.at_s) if times is not None else None
    if wanted is None and args.requests is None and args.shared_prefix is not None:
        wanted = args.shared_prefix.total
    most = wanted or max(load_sizes.requests_per_level(args, levels, embedded=embedded).values())
    cap = _cap(args) if times is not None else 0
    workloads, notes = prompts(args, trace, most, embedded=embedded)
    return Asked(
        workloads=workloads,
        send_at_s=times.at_s if times is not None else None,
        think_s=_thoughts(args),
        requests=wanted,
        cap=cap,
        warmup=min(_WARMUP, cap or _WARMUP) if times is not None and trace is None else 0,
        by_ids=args.random_tokens is not None,
        shares=args.shared_prefix is not None or args.multi_turn or (trace is not None and trace.block_tokens > 0),
        arrival=times.told if times is not None else None,
        notes=(*((times.note,) if times is not None else ()), *notes),
    )


def axes(found: Asked, args: argparse.Namespace, *, embedded: bool) -> tuple[Axis, ...]:
    """What is measured, in order; an open loop once for each workload."""
    if found.send_at_s is None:
        levels = load_sizes.concurrency(args, embedded=embedded)
        requests = load_sizes.requests_per_level(args, levels, embedded=embedded)
        if found.requests is not None:
            requests = {str(level): max(level, found.requests) for level in levels}
        return load_sizes.axes(found.workloads, levels, requests, embedded=embedded)
    count = len(found.send_at_s)
    made = []
    for workload in found.workloads:
        subset = dataclasses.replace(workload, prompts=workload.prompts[:count])
        repeat = math.ceil(count / len(subset.prompts))
        made.append(Axis(workload=subset, concurrency=found.cap, warmup=found.warmup, repeat=repeat))
    return tuple(made)


# --- when ---------------------------------------------------------------------------------------------------


def _times(args: argparse.Namespace) -> _Times:
    schedule, words, told = _schedule(args)
    drawn = args.seed or 0
    offsets = schedule.offsets(args.requests, drawn) if args.requests else _within(args, schedule, drawn)
    chance = f", seed {drawn}" if told["burstiness"] is not None else ""
    note = f"Open loop: {len(offsets)} requests {words}{chance}; {_comes_to(offsets)}, as planned and not rescaled."
    return _Times(tuple(offsets), {**told, "seed": drawn if chance else None, **_plan(offsets)}, note)


def _schedule(args: argparse.Namespace) -> tuple[Schedule, str, dict[str, object]]:
    rate, shape = args.rate, args.burstiness
    told: dict[str, object] = {"kind": args.arrival, "rate_req_s": rate.end, "burstiness": shape}
    if not rate.single:
        told |= {"kind": "ramp", "rate_from_req_s": rate.start, "ramp_s": _ramp_s(args)}
        words = f"on a ramp from {rate.start:g} to {rate.end:g} a second over {told['ramp_s']:.3g} s"
        return Ramp(rate.start, rate.end, _ramp_s(args), shape), words, told
    if args.arrival == "constant":
        return Constant(rate.end), f"evenly at {rate} a second", told
    if shape is not None:
        words = f"with gamma gaps of burstiness {shape:g} at {rate} a second"
        return Gamma(rate.end, shape), words, {**told, "kind": "gamma"}
    return (
        Poisson(rate.end),
        f"with Poisson arrivals at {rate} a second",
        {**told, "kind": "poisson", "burstiness": 1.0},
    )


def _ramp_s(args: argparse.Namespace) -> float:
    if args.ramp_seconds is not None:
        return float(args.ramp_seconds)
    return 2 * args.requests / (args.rate.start + args.rate.end) if args.requests else _RAMP_S


def _within(args: argparse.Namespace, schedule: Schedule, drawn: int) -> list[float]:
    """As many as fall into the time that there is."""
    seconds = args.max_seconds or (_ramp_s(args) if not args.rate.single else _SECONDS)
    count = 64
    offsets = schedule.offsets(count, drawn)
    while offsets[-1] <= seconds and count < _MOST:
        count = min(_MOST, 2 * count)
        offsets = schedule.offsets(count, drawn)
    return offsets[: max(_FEWEST, bisect_right(offsets, seconds))]


def _trace(args: argparse.Namespace) -> RequestTrace:
    """As much of it as is replayed in the time that there is."""
    trace = read_trace(args.trace, take=args.requests)
    if args.requests or not args.max_seconds:
        return trace
    end = trace.times[0] + args.max_seconds * (args.trace_speed or 1.0)
    return dataclasses.replace(trace, requests=trace.requests[: bisect_right(trace.times, end)])


def _replayed_times(args: argparse.Namespace, trace: RequestTrace) -> _Times:
    speed = args.trace_speed or 1.0
    offsets = Trace(trace.times, speed).offsets(len(trace.requests), 0)
    told = {"kind": "trace", "source": trace.source, "form": trace.form, "speed": speed}
    few = len(offsets) < (args.requests or 0)
    first = "the first " if args.requests == len(offsets) else "all " if few else "the "
    faster = f" at {speed:g} times its speed" if speed != 1 else ""
    note = (
        f"Open loop: {first}{len(offsets)} requests of {trace.source} ({trace.about}){faster}; "
        f"{_comes_to(offsets)}. Their answers are forced to the trace's lengths."
    )
    return _Times(tuple(offsets), {**told, **_plan(offsets)}, note)


def _plan(offsets: list[float]) -> dict[str, object]:
    return {"planned_requests": len(offsets), "planned_s": offsets[-1], "planned_req_s": mean_rate(offsets)}


def _comes_to(offsets: list[float]) -> str:
    rate = mean_rate(offsets)
    return f"that comes to {rate:.3g} a second over {offsets[-1]:.3g} s" if rate else "all at once"


def _cap(args: argparse.Namespace) -> int:
    return load_sizes.concurrency(args, embedded=False)[0] if args.concurrency else 0


def _thoughts(args: argparse.Namespace) -> tuple[float, ...]:
    if args.think is None:
        return ()
    if args.think.single:
        return (args.think.end,)
    draw = Random(args.seed or 0)  # noqa: S311 - chance that must repeat, not a secret
    return tuple(draw.uniform(args.think.start, args.think.end) for _ in range(_THOUGHTS))
