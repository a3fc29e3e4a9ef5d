"""From arguments to a RunInfo: shared by `plan`, which shows it, and `tune`, which carries it out."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftmark import __version__
from draftmark.cli import compose, gpus, knobs, load_sizes
from draftmark.cli.engines import api_of
from draftmark.cli.fitting import predicted
from draftmark.cli.load_conflicts import refuse_random_tokens
from draftmark.cli.searching import experts_of, search_of, trees_of
from draftmark.cli.target import Target
from draftmark.errors import RefusedError
from draftmark.model import Arm, Fit, Refusal
from draftmark.run.records import FORECAST, GRID, RunInfo
from draftmark.run.redact import HIDDEN
from draftmark.service.host import SystemClock, has_gpu, local_facts
from draftmark.tune.fitting import refusal_of
from draftmark.tune.measuring import Axis
from draftmark.tune.plan import schedule

if TYPE_CHECKING:
    from draftmark.cli.cluster import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A run that could begin now."""

    target: Target
    info: RunInfo
    axes: tuple[Axis, ...]


_FOREIGN_CORES = 0.25


def _refusal(target: Target, arm: Arm, fits: Fit | None) -> Refusal | None:
    """Why an arm is not started: the engine would not, or the memory is not there."""
    refusal = target.engine.refuse(target.command, arm)
    verdict = fits.of(arm) if refusal is None and fits is not None else None
    return refusal_of(verdict) if verdict is not None else refusal


def _trusted(fits: Fit | None, baseline: Arm, *, runs: bool) -> Fit | None:
    """A prediction that would not even let the service start as it is refuses nothing.

    But for one that `runs` nowhere yet: what SGLang's own checks end, memory aside, they end for every arm.
    """
    own = fits.of(baseline) if fits is not None else None
    if own is None or own.fits is not False or (not runs and own.binding is None):
        return fits
    return None


def _host(target: Target, field: Field | None) -> dict[str, Any]:
    if field is not None:
        return field.host
    return local_facts() if target.local else {"name": target.shown.partition(" on ")[2]}


def _foreign_limit(args: argparse.Namespace, target: Target, field: Field | None) -> float | None:
    """The user's own limit always; else one where the server computes on this host's CPUs."""
    if args.max_foreign_cpu is not None:
        return float(args.max_foreign_cpu)
    if field is not None or not target.local:
        return None
    bound = target.engine.cpu_bound(target.command)
    return _FOREIGN_CORES if bound or (bound is None and not has_gpu()) else None


def planned(args: argparse.Namespace, field: Field | None = None) -> Planned:
    """Everything that is known before the first start.

    Args:
        args: Of the verb.
        field: The nodes that run it; None for one host.

    Raises:
        RefusedError: No arm but the baseline is left to try.
    """
    refuse_random_tokens(args)
    target = compose.target(args)
    demo = target.embedded
    levels = load_sizes.concurrency(args, embedded=demo)
    requests = load_sizes.requests_per_level(args, levels, embedded=demo)
    found = load_sizes.workloads(args, embedded=demo, take=max(requests.values()))
    baseline, arms = compose.arms(args, target)
    notes = list(target.notes)
    dead = target.engine.refuse(target.command, baseline)
    if dead is not None and dead.code != "dead-depth":
        notes.append(f"the service as it is: {dead.because}")
    elif dead is not None:
        # It runs as if off, so off is what the arms are held against.
        notes.append(f"the service's own {dead.because}; off is the baseline in its place")
        arms = tuple(dict.fromkeys((Arm(0), *(arm for arm in arms if arm != baseline))))
        baseline = Arm(0)
    if field is None:
        fits = predicted(target, tuple(dict.fromkeys((baseline, *arms))), notes, gpus.named(args))
    else:
        fits = field.fit
        notes += field.notes
    trusted = _trusted(fits, baseline, runs=target.may_run)
    refused = {
        arm.name: refusal
        for arm in arms
        if arm != baseline and (refusal := _refusal(target, arm, trusted)) is not None
    }
    startable = tuple(arm for arm in arms if arm.name not in refused)
    if startable == (baseline,) and len(arms) > 1:
        raise RefusedError(
            "none of these depths is worth a start",
            evidence=tuple(refusal.because for refusal in refused.values()),
            next_step="name other depths with --depth, or lower the drafting method's minimum in the command line",
        )
    search = search_of(args, target, baseline) if field is None else GRID
    space = knobs.space_of(args, target)
    rounds = compose.rounds(args, embedded=demo, forecast=search == FORECAST)
    command = target.redactor.command(target.command)
    info = RunInfo(
        draftmark=__version__,
        service=target.shown,
        engine=target.engine.name,
        engine_version=target.version if field is None else field.version or target.version,
        command=command,
        redacted=HIDDEN in " ".join((*command, target.shown)),
        host=_host(target, field),
        started_at=SystemClock().now_iso(),
        settings={
            "api": api_of(args, target.engine, target.command),
            "requests": requests,
            "request_timeout_s": args.request_timeout,
            "start_timeout_s": args.start_timeout,
            "max_foreign_cores": _foreign_limit(args, target, field),
            "load_from": target.load_from,
            "method": args.method,
            "engine": args.engine,
        },
        workloads=found,
        concurrency=levels,
        rounds=rounds,
        tie_margin=args.tie_margin,
        baseline=baseline,
        arms=arms,
        refused=refused,
        schedule=() if search == FORECAST or field else schedule(startable, rounds, baseline),
        search=search,
        trees=search == FORECAST and trees_of(target, arms),
        experts=experts_of(target, arms) if search == FORECAST else None,
        notes=tuple(notes),
        fit=fits,
        knobs=space.knobs,
        budget=knobs.budget(args) if space.knobs else 0,
        study=knobs.shown_study(args),
        cwd=None if demo or target.may_run else os.getcwd(),  # noqa: PTH109 - as the user sees it
        cluster=None if field is None else args.cluster,
    )
    return Planned(target=target, info=info, axes=load_sizes.axes(found, levels, requests, embedded=demo))
