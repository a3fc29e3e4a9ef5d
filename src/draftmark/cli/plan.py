"""`draftmark plan`: what tune would do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, cast

from draftmark.cli import cluster, gpus, load_options, options, roofline
from draftmark.cli.cluster import Field
from draftmark.cli.knobs import Vetting
from draftmark.cli.output import print_json, result_console
from draftmark.cli.planning import Planned, planned
from draftmark.model import Arm, Refusal
from draftmark.run.records import FORECAST
from draftmark.tune.fitting import arm_document
from draftmark.tune.knobs.space import Space
from draftmark.tune.lanes import makespan
from draftmark.tune.plan import expected_minutes, expected_restarts, forecast_trials

# Before anything was measured: a start, and a short answer, on an ordinary host.
_START_S = 60.0
_REQUEST_S = 4.0
_STOP_S = 5.0
_EMBEDDED_START_S = 1.5
_EMBEDDED_REQUEST_S = 1.3
_EMBEDDED_STOP_S = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.service(parser, default="embedded:")
    cluster.add_argument(parser)
    options.sweep(parser)
    options.workload(parser)
    load_options.add_arguments(parser, tuning=True)
    gpus.add_argument(parser)
    roofline.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Show the plan; nothing is started."""
    with cluster.opened(args) as field:
        work = planned(args, field)
    document = {**describe(work, field), "roofline": _roofline(work, args)}
    if args.json:
        print_json(document)
    else:
        from draftmark.report.terminal import print_plan

        print_plan(document, result_console())
    return 0


def describe(work: Planned, field: Field | None = None) -> dict[str, Any]:
    """The `draftmark.plan/1` document."""
    info = work.info
    demo = work.target.embedded
    start_s, request_s, stop_s = (
        (_EMBEDDED_START_S, _EMBEDDED_REQUEST_S, _EMBEDDED_STOP_S) if demo else (_START_S, _REQUEST_S, _STOP_S)
    )
    measure_s = sum(
        request_s * axis.repeat * len(axis.workload.prompts) / axis.concurrency**0.5 for axis in work.axes
    )
    trials, most = _trials(work)
    busiest, lanes = trials, cast("Sequence[Sequence[str]]", ())
    if field is not None:
        trials, busiest, lanes = makespan(info, len(field.nodes))
        most = trials
    # A forecast takes the first and the last figures of what runs before as it runs, and starts it once in the end.
    spared = (2 if info.search == FORECAST else 0) - 1 if work.target.may_run else 0
    return {
        "schema": "draftmark.plan/1",
        "service": info.service,
        "engine": info.engine,
        "baseline": info.baseline.name,
        "command": info.command,
        "notes": info.notes,
        "calibrated_from": info.fit.calibrated_from if info.fit else None,
        "arms": [_arm(work, arm) for arm in info.arms],
        "schedule": [slot.arm.name for slot in info.schedule],
        "rounds": info.rounds,
        "concurrency": info.concurrency,
        "workloads": [w.name for w in info.workloads],
        "load_from": work.target.load_from if work.target.may_run else None,
        "search": info.search,
        **({"knobs": _knobs(work), "knob_restarts_most": info.budget} if info.knobs else {}),
        "restarts": max(trials - spared, 0),
        "restarts_most": max(most - spared, 0),
        "minutes": round(expected_minutes(start_s, measure_s, stop_s, busiest if field else trials), 1),
        "minutes_most": round(expected_minutes(start_s, measure_s, stop_s, busiest if field else most), 1),
        **({} if field is None else _nodes(field, lanes)),
        "assumed": {"start_s": start_s, "measure_s": round(measure_s, 1), "stop_s": stop_s},
    }


def _nodes(field: Field, lanes: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Which node would start what, if every trial took as long as any other."""
    starts = dict(zip(field.names, lanes, strict=False))
    nodes = [
        {"node": node.name, "gpus": node.gpus, "cpus": node.cpus, "starts": starts.get(node.name, ())}
        for node in field.nodes
    ]
    return {"cluster": field.cluster.address, "nodes": nodes}


def _trials(work: Planned) -> tuple[int, int]:
    """As expected, and the most."""
    info = work.info
    if info.search != FORECAST:
        return expected_restarts(info.schedule), expected_restarts(info.schedule)
    others = [arm for arm in info.arms if arm != info.baseline and arm.name not in info.refused]
    least, most = forecast_trials(len(others), info.rounds)
    if not info.knobs:
        return least, most
    ends = sum(len(knob.probes) for knob in info.knobs)
    if not others:
        # The baseline again, and the choice once more with the baseline after it.
        least, most = (3 if info.rounds > 1 else 2), 2 * info.rounds
    settings = min(Space(info.knobs).size - 1, info.budget)  # beside what runs
    return least + min(ends + 3, settings), most + settings


def _knobs(work: Planned) -> list[dict[str, Any]]:
    """Of each knob what is tried alone at first, at the depth that runs today, with its flags."""
    info, space = work.info, Space(work.info.knobs)
    vetting = Vetting(work.target, info.baseline)
    sources = {spec.name: spec.source for spec in work.target.engine.knobs(work.target.command)}
    found = []
    for i, knob in enumerate(info.knobs):
        arms = [space.arm(space.with_level(i, level), info.baseline.depth) for level in knob.probes]
        found.append(
            {
                "knob": knob.name,
                "flag": knob.flag,
                "values": [value for value in knob.levels if value is not None],
                "runs": knob.levels[knob.runs],
                "source": sources.get(knob.name),
                "first": [_setting(work, arm, vetting.refusal(arm)) for arm in arms],
            }
        )
    return found


def _setting(work: Planned, arm: Arm, refusal: Refusal | None) -> dict[str, Any]:
    hide = work.target.redactor.command
    return {
        "arm": arm.name,
        "label": arm.label,
        "verdict": "refused" if refusal else "start",
        "because": refusal.because if refusal else None,
        "command_diff": []
        if refusal
        else _difference(hide(work.target.command), hide(work.target.engine.with_arm(work.target.command, arm))),
    }


def _roofline(work: Planned, args: argparse.Namespace) -> dict[str, Any] | None:
    """What the cards bound of the arms that can be started."""
    depths = [arm.depth for arm in work.info.arms if arm.name not in work.info.refused]
    return roofline.described(
        work.target, args.measured, depths=depths, levels=work.info.concurrency, gpus=gpus.named(args)
    )


def _arm(work: Planned, arm: Arm) -> dict[str, Any]:
    refusal = work.info.refused.get(arm.name)
    fit = work.info.fit.of(arm) if work.info.fit else None
    hide = work.target.redactor.command
    original = hide(work.target.command)
    command = hide(work.target.engine.with_arm(work.target.command, arm))
    return {
        "arm": arm.name,
        "label": arm.label,
        "verdict": "refused" if refusal else "start",
        "because": refusal.because if refusal else None,
        "fit": arm_document(fit) if fit else None,
        "command": command,
        "command_diff": [] if refusal or command == original else _difference(original, command),
        **({} if refusal else work.target.change(work.target.engine.with_arm(work.target.command, arm))),
    }


def _difference(old: tuple[str, ...], new: tuple[str, ...]) -> list[str]:
    """Words taken out and put in, one a line, a flag with its value."""
    import difflib

    lines = difflib.ndiff(_pairs(old), _pairs(new))
    return [line for line in lines if line[:2] in ("- ", "+ ")]


def _pairs(words: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and not word.startswith("-") and lines[-1].startswith("-") and " " not in lines[-1]:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
