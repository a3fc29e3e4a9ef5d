"""From the records of a run to its result document. Pure: the same records give the same bytes, always."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import geometric_mean, median
from typing import Any

from draftmark.errors import FailedError
from draftmark.model import Arm, Measurement, Trial, TrialStatus
from draftmark.run.records import FINISH, Action, RunInfo, RunRecord
from draftmark.tune import by_node, deaths, meddling
from draftmark.tune.capacity import capacity_warnings, limits_document, limits_of, limits_of_arm
from draftmark.tune.decide import Conclusion, conclude, decide
from draftmark.tune.fitting import compared
from draftmark.tune.observing import (
    Measured,
    acceptance_of,
    ceilings,
    measurements,
    observations,
    rounded,
    seconds_between,
    steady_axes,
    values_of,
)
from draftmark.tune.predicted import Forecasts
from draftmark.tune.steering import stopped
from draftmark.tune.verdicts import AxisDecision, Interval


def derive(record: RunRecord) -> dict[str, Any]:
    """The `draftmark.tune/1` document of a run, finished or not."""
    if changed := meddling.altered(record):
        record = meddling.without_figures(record)
    info = record.info
    measured = {r.trial.number: measurements(r, info) for r in record.trials}
    trials = [r.trial for r in record.trials]
    steady = steady_axes(trials, measured)
    seen = observations(trials, measured, info, steady)
    crowd = by_node.Crowd.of(record, seen)
    labels = {arm.name: arm.label for arm in info.arms}
    forecasts = Forecasts.of(record)
    decisions = decide(
        seen,
        baseline=info.baseline.name,
        tie_margin=info.tie_margin,
        ceilings=ceilings(info, trials, measured),
        labels=labels,
        first=forecasts.preferred(),
    )
    conclusion = conclude(decisions, baseline=info.baseline.name, labels=labels)
    end = next((a for a in reversed(record.actions) if a.what == FINISH), None)
    missing = _missing(record)
    complete = end is not None and not missing
    return {
        "schema": "draftmark.tune/1",
        "draftmark": info.draftmark,
        "service": info.service,
        "engine": {"name": info.engine, "version": info.engine_version, "command": info.command},
        "host": info.host,
        "started_at": info.started_at,
        "finished_at": record.actions[-1].at if record.actions else None,
        "workloads": [
            {
                "name": w.name,
                "about": w.about,
                "source": w.source,
                "prompts": len(w.prompts),
                "sha256": w.sha256,
            }
            for w in info.workloads
        ],
        "concurrency": info.concurrency,
        "depths": list(dict.fromkeys(arm.depth for arm in info.arms)),
        "rounds": info.rounds,
        "tie_margin": info.tie_margin,
        "settings": info.settings,
        "baseline": {"arm": info.baseline.name, "depth": info.baseline.depth},
        "arms": [
            {
                **_arm(arm, info, trials, measured, decisions, steady, crowd),
                **forecasts.arm(arm),
                "why": deaths.latest(record.trials, arm),
            }
            for arm in info.arms
        ],
        "axes": [_axis(d) for d in decisions],
        "front": conclusion.front,
        "choice": {
            "latency": conclusion.latency,
            "throughput": conclusion.throughput,
            "recommended": conclusion.recommended,
            "ties": conclusion.ties,
            "because": conclusion.because,
            "by_workload": conclusion.by_workload,
        },
        "verdict": meddling.no_verdict(changed) if changed else conclusion.sentence,
        "exit_status": FailedError.exit_status if changed else exit_status(conclusion),
        "restarts": sum(1 for t in trials if t.start_s is not None or t.status is TrialStatus.DID_NOT_START)
        + sum(1 for action in record.actions if action.what == "kept" or _started_again(action)),
        "downtime_s": rounded(sum(known)) if (known := _downtimes(record)) else None,
        "restored": bool(end.detail.get("restored")) if end is not None else None,
        "kept": end.detail.get("kept") if end is not None else None,
        "altered": list(changed),
        "complete": complete,
        "search": info.search,
        "cluster": info.cluster,
        "nodes": crowd.document(),
        "steps": forecasts.steps(),
        **({} if (knobs := forecasts.knobs()) is None else {"knobs": knobs}),
        "stop": stopped(record.actions),
        "trials": [
            {**_trial(r.trial, info, measured[r.trial.number]), "why": deaths.told(r)} for r in record.trials
        ],
        "warnings": _warnings(record, decisions, crowd),
    }


def _downtimes(record: RunRecord) -> list[float]:
    """Seconds in which nobody was served: of the trials, of the first stop, and of putting the service back."""
    ends = [a for a in record.actions if a.what == "vacated" or _started_again(a)]
    found = [r.trial.downtime_s for r in record.trials if r.trial.downtime_s]
    return [*found, *(float(action.detail.get("seconds", 0.0)) for action in ends)]


def _started_again(action: Action) -> bool:
    """The service was put back by a start; one that was only measured as it ran was not."""
    return action.what == "restored" and bool(action.detail.get("serves") and action.detail.get("restarted", True))


def exit_status(conclusion: Conclusion) -> int:
    """0: keep what runs; 10: something better was found and not kept; 40: nothing is settled."""
    if conclusion.inconclusive:
        return 40
    return 10 if conclusion.better else 0


def _arm(
    arm: Arm,
    info: RunInfo,
    trials: Sequence[Trial],
    measured: dict[int, Measured],
    decisions: Sequence[AxisDecision],
    steady: frozenset[str],
    crowd: by_node.Crowd,
) -> dict[str, Any]:
    own = [t for t in trials if t.arm == arm]
    good = [t for t in own if t.status is TrialStatus.MEASURED]
    refusal = info.refused.get(arm.name)
    if refusal is not None:
        status, because = TrialStatus.REFUSED.value, refusal.because
    elif good:
        status, because = TrialStatus.MEASURED.value, None
    elif own:
        status, because = own[-1].status.value, own[-1].because
    else:
        status, because = None, "not tried yet"
    axes = {
        d.axis: _figures(
            arm, info.baseline, d, [(t.node, measured[t.number].get(d.axis)) for t in good], steady, crowd
        )
        for d in decisions
        if d.workload != "all" and arm.name in d.values
    }
    drafting = [m for t in good for m in measured[t.number].values() if m.acceptance]
    return {
        "arm": arm.name,
        "depth": arm.depth,
        "label": arm.label,
        "status": status,
        "because": because,
        "latency": _overall(arm, info, decisions, min(info.concurrency)),
        "throughput": _overall(arm, info, decisions, max(info.concurrency)),
        **acceptance_of(drafting),
        "fit": _fit(arm, info, own),
        "limits": limits_document(limits_of_arm(arm, own)),
        "start_s": rounded(median(starts)) if (starts := [t.start_s for t in own if t.start_s]) else None,
        "trials": [t.number for t in own],
        "axes": axes,
    }


def _fit(arm: Arm, info: RunInfo, own: Sequence[Trial]) -> dict[str, Any] | None:
    """As predicted, and what the last start of it had."""
    actual = next((t.figures for t in reversed(own) if t.figures is not None), None)
    tried = [t.status is not TrialStatus.DID_NOT_START for t in own]
    return compared(info.fit.of(arm) if info.fit else None, actual, started=any(tried) if tried else None)


def _overall(arm: Arm, info: RunInfo, decisions: Sequence[AxisDecision], concurrency: int) -> dict[str, Any] | None:
    of_level = [d for d in decisions if d.concurrency == concurrency]
    for d in sorted(of_level, key=lambda d: d.workload != "all"):
        if arm.name in d.values and (d.workload == "all" or len(info.workloads) == 1):
            return {"tok_s": rounded(d.values[arm.name]), **_ratio(arm, info.baseline, d)}
    return None


def _figures(
    arm: Arm,
    baseline: Arm,
    decision: AxisDecision,
    of_trials: Iterable[tuple[str | None, Measurement | None]],
    steady: frozenset[str],
    crowd: by_node.Crowd,
) -> dict[str, Any]:
    by = [(n, m) for n, m in of_trials if m is not None and not m.disturbed and values_of(m, steady)]
    by = [(n, m) for n, m in by if crowd.counts(n)]
    used = [m for _, m in by]
    return {
        "tok_s": rounded(decision.values[arm.name]),
        **_ratio(arm, baseline, decision),
        "values": [
            rounded(geometric_mean([value for _, value in values_of(m, steady)]) * crowd.scale(n, m.key))
            for n, m in by
        ],
        "window": "steady" if decision.axis in steady else "whole",
        "ttft_ms_p50": _median(m.ttft_ms.p50 for m in used),
        "tpot_ms_p50": _median(m.tpot_ms.p50 for m in used),
        **acceptance_of([m for m in used if m.acceptance]),
    }


def _ratio(arm: Arm, baseline: Arm, decision: AxisDecision) -> dict[str, float | None]:
    if arm == baseline:
        return {"ratio": 1.0, "low": 1.0, "high": 1.0}
    interval = decision.ratios.get(arm.name)
    return _interval(interval) if interval else {"ratio": None, "low": None, "high": None}


def _interval(interval: Interval) -> dict[str, float | None]:
    return {"ratio": rounded(interval.ratio), "low": rounded(interval.low), "high": rounded(interval.high)}


def _axis(d: AxisDecision) -> dict[str, Any]:
    return {
        "axis": d.axis,
        "workload": d.workload,
        "concurrency": d.concurrency,
        "unit": d.unit,
        "baseline": rounded(d.baseline),
        "values": {name: rounded(value) for name, value in d.values.items()},
        "ratios": {name: _interval(value) for name, value in d.ratios.items()},
        "best": d.best,
        "choice": d.choice,
        "ties": d.ties,
        "verdict": d.verdict.value,
        "because": d.because,
        "noise": rounded(d.noise),
        "drift": _interval(d.drift) if d.drift else None,
    }


def _trial(t: Trial, info: RunInfo, measured: Measured) -> dict[str, Any]:
    return {
        "number": t.number,
        "round": t.round,
        "arm": t.arm.name,
        "status": t.status.value,
        "because": t.because,
        "at_s": rounded(seconds_between(info.started_at, t.started_at)),
        "limits": limits_document(limits_of(t)),
        "start_s": t.start_s,
        **({"node": t.node} if t.node is not None else {}),
        "measure_s": rounded(sum(m.duration_s for m in measured.values())) if measured else None,
        "total_s": t.total_s,
        "stop": t.stop.outcome.value if t.stop else None,
        "stop_s": rounded(t.stop.seconds) if t.stop else None,
        "disturbed": [
            f"{key}: {reason}"
            for key, reasons in t.disturbed.items()
            for reason in reasons
            if reason not in (t.because or "")
        ],
    }


def _missing(record: RunRecord) -> list[int]:
    """Slots without a trial, those aside that were given up on purpose."""
    if any(action.what == "give-up" for action in record.actions):
        return []
    have = {r.trial.number for r in record.trials}
    gone = {r.trial.arm for r in record.trials if r.trial.status is TrialStatus.DID_NOT_START}
    return [slot.number for slot in record.info.schedule if slot.number not in have and slot.arm not in gone]


def _warnings(record: RunRecord, decisions: Sequence[AxisDecision], crowd: by_node.Crowd) -> list[str]:
    found = [*record.info.notes, *meddling.told(record)]
    if record.strays:
        found.append(f"not trials of this run, counted nowhere: {', '.join(record.strays)}")
    missing = _missing(record)
    if missing and any(action.what == FINISH for action in record.actions):
        found.append(f"the run finished, but the records of trial {', '.join(map(str, missing))} are gone")
    torn = [r.trial.directory for r in record.trials if r.torn]
    if torn:
        found.append(f"records are missing or doubled in {', '.join(torn)}; figures follow from what is there")
    given_up = next((a for a in record.actions if a.what == "give-up"), None)
    if given_up is not None:
        found.append(f"stopped early: {given_up.detail.get('because')}")
    found.extend(by_node.warnings(record, crowd))
    found.extend(_surprises(record))
    found.extend(capacity_warnings(record.info, [r.trial for r in record.trials]))
    found.extend(deaths.untold(record))
    killed = [r.trial.directory for r in record.trials if r.trial.stop and r.trial.stop.outcome == "killed"]
    if killed:
        found.append(f"the server had to be killed after {', '.join(killed)}: it did not end at two SIGTERMs")
    void = [r.trial for r in record.trials if r.trial.status is TrialStatus.VOID]
    if void:
        found.append(f"{len(void)} of {len(record.trials)} trials are void and count nowhere")
    part = sum(
        1 for r in record.trials if r.trial.status is TrialStatus.MEASURED and any(r.trial.disturbed.values())
    )
    if part:
        found.append(f"{part} trials were disturbed in part; those measurements count nowhere")
    found.extend(
        f"the baseline drifted by {d.drift.ratio - 1:+.1%} over the run ({d.axis})"
        for d in decisions
        if d.drift is not None and d.workload == "all" and not d.drift.low <= 1.0 <= d.drift.high
    )
    return found


def _surprises(record: RunRecord) -> list[str]:
    """What the memory prediction got wrong: the figures are in the arm's `fit`, side by side."""
    found = []
    for arm in record.info.arms:
        own = [r.trial for r in record.trials if r.trial.arm == arm]
        fit = _fit(arm, record.info, own)
        if fit is not None and fit["surprise"]:
            found.append(f"memory was predicted otherwise for {arm.label}: {fit['surprise']}")
    return found


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return rounded(median(known)) if known else None
