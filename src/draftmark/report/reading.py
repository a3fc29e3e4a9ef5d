"""From the result document to records. Tolerant of what is missing, as a report must also show a broken run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from draftmark.errors import BadInputError
from draftmark.report.fields import (
    Document,
    flag,
    mapping,
    mappings,
    number,
    numbers,
    plain,
    text,
    texts,
    whole,
)
from draftmark.report.figures import UNKNOWN, count, visible
from draftmark.report.view import (
    ArmView,
    AxisView,
    ChoiceView,
    DeathView,
    Figure,
    Ratio,
    ResultView,
    TrialView,
    WorkloadView,
)


def read_result(document: Document) -> ResultView:
    """The result document of `tune` as records.

    Raises:
        BadInputError: It is a document of another kind.
    """
    schema = text(document, "schema")
    if schema is None or not schema.startswith("draftmark.tune/"):
        raise BadInputError(
            "this is not the result of a tuning run",
            evidence=(f"schema: {schema or 'absent'}",),
            next_step="give the run directory that `draftmark tune` wrote",
        )
    engine = mapping(document, "engine")
    arms = _arms(document)
    return ResultView(
        draftmark=text(document, "draftmark"),
        service=text(document, "service") or UNKNOWN,
        engine=text(engine, "name"),
        engine_version=text(engine, "version"),
        command=texts(engine, "command"),
        host=_facts(mapping(document, "host")),
        started_at=text(document, "started_at"),
        finished_at=text(document, "finished_at"),
        workloads=tuple(_workload(entry) for entry in mappings(document, "workloads")),
        concurrency=tuple(int(value) for value in numbers(document, "concurrency")),
        rounds=number(document, "rounds"),
        tie_margin=number(document, "tie_margin"),
        baseline=text(mapping(document, "baseline"), "arm"),
        arms=arms,
        axes=_axes(document, arms),
        front=texts(document, "front"),
        choice=_choice(mapping(document, "choice")),
        verdict=text(document, "verdict"),
        exit_status=whole(document, "exit_status"),
        restarts=number(document, "restarts"),
        downtime_s=number(document, "downtime_s"),
        restored=flag(document, "restored"),
        kept=text(document, "kept"),
        complete=flag(document, "complete"),
        trials=tuple(_trial(entry) for entry in mappings(document, "trials")),
        warnings=texts(document, "warnings"),
        settings=_facts(mapping(document, "settings")),
    )


# --- the nouns --------------------------------------------------------------------------------------------


def _facts(entry: Document) -> dict[str, str]:
    return {visible(str(key)): plain(value) for key, value in entry.items()}


def _arms(document: Document) -> tuple[ArmView, ...]:
    arms = [_arm(entry) for entry in mappings(document, "arms")]
    return tuple(sorted(arms, key=lambda arm: math.inf if arm.depth is None else arm.depth))


def _arm(entry: Document) -> ArmView:
    name = text(entry, "arm") or "?"
    axes = mapping(entry, "axes")
    return ArmView(
        name=name,
        depth=number(entry, "depth"),
        label=text(entry, "label") or name,
        status=text(entry, "status"),
        because=text(entry, "because"),
        fit=_fit(entry.get("fit")),
        why=text(entry, "why"),
        latency=_figure(mapping(entry, "latency")),
        throughput=_figure(mapping(entry, "throughput")),
        accept_len=number(entry, "accept_len"),
        tokens_per_step=number(entry, "tokens_per_step"),
        start_s=number(entry, "start_s"),
        trials=tuple(numbers(entry, "trials")),
        axes={visible(str(axis)): _figure(mapping(axes, axis)) for axis in axes},
        max_running=number(mapping(entry, "limits"), "max_running_requests"),
        kv_tokens=number(mapping(entry, "limits"), "kv_tokens"),
    )


def _figure(entry: Document) -> Figure:
    return Figure(
        tok_s=number(entry, "tok_s"),
        ratio=_ratio(entry),
        values=tuple(numbers(entry, "values")),
        ttft_ms_p50=number(entry, "ttft_ms_p50"),
        tpot_ms_p50=number(entry, "tpot_ms_p50"),
        accept_len=number(entry, "accept_len"),
        tokens_per_step=number(entry, "tokens_per_step"),
        drafted_tokens=number(entry, "drafted_tokens"),
        accepted_tokens=number(entry, "accepted_tokens"),
    )


def _ratio(entry: Document) -> Ratio | None:
    value = number(entry, "ratio")
    return None if value is None else Ratio(value, number(entry, "low"), number(entry, "high"))


def _axes(document: Document, arms: Sequence[ArmView]) -> tuple[AxisView, ...]:
    """The decisions; an axis that has figures but no decision yet, as in a run cut short, stands undecided."""
    decided = {axis.name: axis for axis in (_axis(entry) for entry in mappings(document, "axes"))}
    for arm in arms:
        for name, figure in arm.axes.items():
            if name not in decided and figure.tok_s is not None:
                decided[name] = _axis({"axis": name})
    return tuple(decided.values())


def _axis(entry: Document) -> AxisView:
    name = text(entry, "axis") or "?"
    workload, _, concurrency = name.rpartition("@")
    values, ratios = mapping(entry, "values"), mapping(entry, "ratios")
    slots = whole(entry, "concurrency")
    return AxisView(
        name=name,
        workload=text(entry, "workload") or workload,
        concurrency=slots if slots is not None else int(concurrency) if concurrency.isdecimal() else 1,
        baseline=number(entry, "baseline"),
        values={visible(arm): value for arm in values if (value := number(values, arm)) is not None},
        ratios={visible(arm): against for arm in ratios if (against := _ratio(mapping(ratios, arm))) is not None},
        best=text(entry, "best"),
        choice=text(entry, "choice"),
        ties=texts(entry, "ties"),
        verdict=text(entry, "verdict"),
        because=text(entry, "because"),
        noise=number(entry, "noise"),
        drift=_ratio(mapping(entry, "drift")),
    )


def _choice(entry: Document) -> ChoiceView:
    by_workload = mapping(entry, "by_workload")
    return ChoiceView(
        latency=text(entry, "latency"),
        throughput=text(entry, "throughput"),
        recommended=text(entry, "recommended"),
        ties=texts(entry, "ties"),
        because=text(entry, "because"),
        by_workload={visible(workload): text(by_workload, workload) for workload in by_workload},
    )


def _trial(entry: Document) -> TrialView:
    return TrialView(
        number=whole(entry, "number") or 0,
        round=whole(entry, "round"),
        arm=text(entry, "arm") or "?",
        status=text(entry, "status"),
        because=text(entry, "because"),
        at_s=number(entry, "at_s"),
        start_s=number(entry, "start_s"),
        measure_s=number(entry, "measure_s"),
        total_s=number(entry, "total_s"),
        stop=text(entry, "stop"),
        stop_s=number(entry, "stop_s"),
        disturbed=texts(entry, "disturbed"),
        death=_death(mapping(entry, "why")),
        max_running=number(mapping(entry, "limits"), "max_running_requests"),
    )


def _death(entry: Document) -> DeathView | None:
    cause = text(entry, "cause")
    if cause is None:
        return None
    line = mapping(entry, "evidence")
    place = text(line, "file")
    if place is not None and (at := whole(line, "line")) is not None:
        place = f"{place}:{at}"
    return DeathView(
        path=text(entry, "path"),
        cause=cause,
        confidence=text(entry, "confidence"),
        summary=text(entry, "summary"),
        evidence="  ".join(part for part in (place, text(line, "text")) if part) or None,
    )


def _workload(entry: Document) -> WorkloadView:
    return WorkloadView(
        name=text(entry, "name") or "?",
        about=text(entry, "about"),
        source=text(entry, "source"),
        prompts=number(entry, "prompts"),
        sha256=text(entry, "sha256"),
    )


def _fit(value: Any) -> str | None:
    """The memory verdict of an arm in words: `does not fit, 61,200 KV tokens`."""
    if not isinstance(value, Mapping):
        return None if value is None else plain(value)
    fits = value.get("fits")
    said = [] if fits is None else ["fits" if fits else "does not fit"]
    for key, unit in (("kv_tokens", "KV tokens"), ("max_running_requests", "requests")):
        if (amount := number(value, key)) is not None:
            said.append(f"{count(amount)} {unit}")
    if binding := text(value, "binding"):
        said.append(f"bound by {binding}")
    actual = mapping(value, "actual")
    had = [
        f"{count(amount)} {unit}"
        for key, unit in (("kv_tokens", "KV tokens"), ("max_running_requests", "requests"))
        if (amount := number(actual, key)) is not None
    ]
    if had:
        said.append(f"really {' and '.join(had)}")
    return ", ".join(said) or None
