"""How much is asked: prompts, levels of the closed loop, requests for each, by the options that all verbs share."""

from __future__ import annotations

import argparse
import dataclasses
import math

from draftmark.errors import UsageError
from draftmark.load.workloads import load_workloads, sampled, workload_from_file
from draftmark.model import Workload
from draftmark.tune.measuring import Axis
from draftmark.tune.plan import parse_concurrency

# A whole run on two cores in under four minutes: three prompts of each kind, short answers, a batch of four.
_EMBEDDED_CONCURRENCY = "1,4"
_EMBEDDED_REQUESTS = 3
_EMBEDDED_MAX_TOKENS = 32

_CONCURRENCY = "1,8"
_REQUESTS = 8


def workloads(args: argparse.Namespace, *, embedded: bool, take: int | None = None) -> tuple[Workload, ...]:
    """What is asked, answers cut to the length wanted.

    Args:
        args: The options; `seed` shuffles.
        embedded: For the demo's own defaults.
        take: So many prompts of a file are needed; None for all.
    """
    longest = args.max_tokens or (_EMBEDDED_MAX_TOKENS if embedded else None)
    seed = getattr(args, "seed", None)
    if args.prompts is not None:
        if args.workload:
            raise UsageError("--prompts and --workload exclude each other", next_step="leave one of them out")
        own = workload_from_file(
            args.prompts,
            max_tokens=longest or 256,
            multi_turn=getattr(args, "multi_turn", False),
            lengths_from_data=getattr(args, "output_tokens", None) == "data",
            take=take,
            seed=seed,
        )
        return (own,)
    names = [name.strip() for name in args.workload.split(",")] if args.workload else None
    return tuple(
        dataclasses.replace(
            w,
            prompts=tuple(
                dataclasses.replace(p, max_tokens=min(p.max_tokens, longest or p.max_tokens))
                for p in sampled(w.prompts, seed=seed)
            ),
        )
        for w in load_workloads(names)
    )


def concurrency(args: argparse.Namespace, *, embedded: bool) -> tuple[int, ...]:
    """Levels of the closed loop."""
    return parse_concurrency(args.concurrency or (_EMBEDDED_CONCURRENCY if embedded else _CONCURRENCY))


def requests_per_level(args: argparse.Namespace, levels: tuple[int, ...], *, embedded: bool) -> dict[str, int]:
    """Requests per measurement at each level: enough to fill every slot, twice outside the demo."""
    if args.requests is not None:
        return {str(c): max(args.requests, c) for c in levels}
    base, filled = (_EMBEDDED_REQUESTS, 1) if embedded else (_REQUESTS, 2)
    return {str(c): base if c == 1 else max(base, filled * c) for c in levels}


def axes(
    found: tuple[Workload, ...], levels: tuple[int, ...], requests: dict[str, int], *, embedded: bool
) -> tuple[Axis, ...]:
    """What each trial measures, in order: single requests first, then the crowd."""
    made: list[Axis] = []
    for level in levels:
        for workload in found:
            wanted = requests[str(level)]
            subset = dataclasses.replace(workload, prompts=workload.prompts[:wanted])
            made.append(
                Axis(
                    workload=subset,
                    concurrency=level,
                    # The demo warms up once a start; a service warms up to each level anew.
                    warmup=(0 if made else 1) if embedded else level,
                    repeat=math.ceil(wanted / len(subset.prompts)),
                )
            )
    return tuple(made)
