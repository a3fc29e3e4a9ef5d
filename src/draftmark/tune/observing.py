"""From the records of a run to the figures that are decided by: per trial, workload and concurrency. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any

from draftmark.load.measurement import measure
from draftmark.model import Acceptance, Measurement, Trial, TrialStatus
from draftmark.run.records import RunInfo, TrialRecord
from draftmark.tune.decide import Observation

# Figures are printed to this many significant digits; more would only be noise in a diff.
_DIGITS = 5

Measured = dict[str, Measurement]


def measurements(record: TrialRecord, info: RunInfo) -> Measured:
    """Every axis of one trial, from its request records. Keys are `copy@4`; disturbed axes are included."""
    found: Measured = {}
    for workload in info.workloads:
        for concurrency in info.concurrency:
            key = f"{workload.name}@{concurrency}"
            requests = [r for r in record.requests if r.workload == workload.name and r.concurrency == concurrency]
            if key not in record.trial.counters or key not in record.trial.client or not requests:
                continue  # the trial ended before this axis had its figures
            found[key] = measure(
                requests,
                workload=workload.name,
                concurrency=concurrency,
                counters=record.trial.counters[key],
                client=record.trial.client[key],
                assumptions=(),
                disturbed=record.trial.disturbed.get(key, ()),
            )
    return found


def observations(
    trials: Sequence[Trial], measured: dict[int, Measured], info: RunInfo, steady: frozenset[str]
) -> list[Observation]:
    """What is decided by: a trial's undisturbed figures, one entry an axis.

    Args:
        trials: All of the run.
        measured: Their measurements, by number.
        info: The plan.
        steady: From `steady_axes`.
    """
    found = []
    for trial in trials:
        if trial.status is not TrialStatus.MEASURED:
            continue
        offset = seconds_between(info.started_at, trial.started_at) + (trial.start_s or 0.0)
        for m in measured[trial.number].values():
            middle, offset = offset + m.duration_s / 2, offset + m.duration_s
            values = values_of(m, steady)
            if m.disturbed or not values:
                continue
            found.append(
                Observation(
                    trial=trial.number,
                    round=trial.round,
                    position_s=middle,
                    arm=trial.arm.name,
                    depth=trial.arm.depth,
                    axis=m.key,
                    workload=m.workload,
                    concurrency=m.concurrency,
                    values=values,
                    block=trial.node or "",
                )
            )
    return found


def ceilings(info: RunInfo, trials: Sequence[Trial], measured: dict[int, Measured]) -> dict[tuple[str, str], float]:
    """Tokens per target pass of each arm and axis: the most that drafting alone can gain over no drafting.

    Only where the arm differs from the baseline by its depth and the baseline drafts nothing.
    """
    found: dict[tuple[str, str], float] = {}
    for arm in info.arms:
        if info.baseline.depth or not arm.depth or arm.knobs != info.baseline.knobs:
            continue
        good = [t for t in trials if t.arm == arm and t.status is TrialStatus.MEASURED]
        for key in {key for t in good for key in measured[t.number]}:
            used = [m for t in good if (m := measured[t.number].get(key)) is not None and m.acceptance]
            figures = acceptance_of(used)
            if figures["drafted_tokens"] is not None:
                found[key, arm.name] = figures["tokens_per_step"] or 1.0
    return found


def steady_axes(trials: Sequence[Trial], measured: dict[int, Measured]) -> frozenset[str]:
    """Axes whose throughput is taken from the steady window: those in which every trial has one.

    A window in one trial and the whole in another would be two different figures under one name.
    """
    good = [m for t in trials if t.status is TrialStatus.MEASURED for m in measured[t.number].values()]
    without = {m.key for m in good if m.window is None or m.window.whole}
    return frozenset(m.key for m in good) - without


def _throughput(m: Measurement, steady: frozenset[str]) -> float | None:
    if m.key in steady:
        return m.output_tok_s
    return m.output_tokens / m.duration_s if m.output_tokens and m.duration_s > 0 else None


def values_of(m: Measurement, steady: frozenset[str]) -> tuple[tuple[str, float], ...]:
    """Decode speed per prompt for a single request, so that prompts are paired; else the aggregate."""
    if m.concurrency == 1:
        return m.decode_tok_s
    aggregate = _throughput(m, steady)
    return () if aggregate is None else (("aggregate", aggregate),)


def acceptance_of(used: Sequence[Measurement]) -> dict[str, Any]:
    """Sums over measurements, then the two lengths; None where the engine told nothing or nothing was drafted."""

    def total(name: str) -> int | None:
        values = [getattr(m.acceptance, name) for m in used]
        known = [v for v in values if v is not None]
        return sum(known) if known and len(known) == len(values) else None

    drafts, drafted, accepted = total("drafts"), total("drafted_tokens"), total("accepted_tokens")
    output = total("output_tokens")
    if not drafted:
        length = steps = None
    else:
        length = 1 + accepted / drafts if drafts and accepted is not None else None
        passes = output - accepted if output is not None and accepted is not None else None
        steps = output / passes if output and passes and passes > 0 else None
    return {
        "accept_len": rounded(length),
        "tokens_per_step": rounded(steps),
        "drafted_tokens": drafted,
        "accepted_tokens": accepted,
    }


def seconds_between(start: str, end: str) -> float:
    """From one ISO 8601 time to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def rounded(value: float | None) -> float | None:
    """To the digits that are printed."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def pooled(used: Sequence[Measurement]) -> Acceptance | None:
    """What became of the drafts over several measurements, as if they were one; None where none told."""
    told = [m.acceptance for m in used if m.acceptance is not None]
    if not told:
        return None

    def total(values: Sequence[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    counted = all(each.histogram for each in told)
    columns = zip_longest(*(each.histogram for each in told), fillvalue=0) if counted else ()
    placed = all(each.by_position for each in told if each.accepted_tokens)
    positions = zip_longest(*(each.by_position for each in told), fillvalue=0) if placed else ()
    return Acceptance(
        drafts=total([each.drafts for each in told]),
        drafted_tokens=total([each.drafted_tokens for each in told]),
        accepted_tokens=total([each.accepted_tokens for each in told]),
        output_tokens=total([each.output_tokens for each in told]),
        source=told[0].source,
        histogram=tuple(sum(column) for column in columns),
        by_position=tuple(sum(column) for column in positions),
    )
