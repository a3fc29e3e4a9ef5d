"""What the HTML report's plots draw: plain data for the script in the page, which only places it.

Every number here stands in the result document; nothing is estimated anew. Text is final: it is shown as text.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from draftmark.report import figures
from draftmark.report.view import ArmView, AxisView, ResultView
from draftmark.report.words import against_baseline, at_once, axis_title, figure_on, role, status, trial_note

Data = dict[str, Any]

# A longer label does not fit beside a plot on a phone; the tick stands in for it.
LONGEST_NAME = 10


def plot_data(view: ResultView) -> Data:
    """All plots, with the arms in the order of their depth as the shared ordinal axis."""
    return {
        "arms": [
            {"arm": arm.name, "tick": tick, "name": arm.label if len(arm.label) <= LONGEST_NAME else tick}
            for arm, tick in ticks(view)
        ],
        "speed": [_speed(view, axis) for axis in view.own_axes if _has_figures(view, axis)],
        "ratio": [_ratio(view, axis) for axis in view.shown_axes if axis.ratios],
        "acceptance": _acceptance(view),
        "timeline": _timeline(view),
    }


def ticks(view: ResultView) -> list[tuple[ArmView, str]]:
    """A short label per arm for an axis: its depth, with a letter where two arms share one."""
    depths = Counter(arm.depth for arm in view.arms)
    seen: Counter[float | None] = Counter()
    named = []
    for arm in view.arms:
        short = "off" if arm.depth == 0 else "?" if arm.depth is None else f"{arm.depth:g}"
        if depths[arm.depth] > 1:
            short += chr(ord("a") + seen[arm.depth] % 26)
            seen[arm.depth] += 1
        named.append((arm, short))
    return named


def _has_figures(view: ResultView, axis: AxisView) -> bool:
    return any(figure_on(arm, axis) for arm in view.arms)


def _speed(view: ResultView, axis: AxisView) -> Data:
    """tok/s per arm on one axis. The interval is that of the ratio, in tok/s of the baseline."""
    points: list[Data] = []
    for arm in view.arms:
        figure = figure_on(arm, axis)
        if figure is None or figure.tok_s is None:
            points.append({"arm": arm.name, "absent": status(arm.status), "because": arm.because})
            continue
        base = None if figure.ratio is None else figure.tok_s / figure.ratio.ratio
        low = figure.ratio.low if figure.ratio else None
        high = figure.ratio.high if figure.ratio else None
        points.append(
            {
                "arm": arm.name,
                "tok_s": figure.tok_s,
                "low": None if base is None or low is None else base * low,
                "high": None if base is None or high is None else base * high,
                "values": list(figure.values),
                "role": role(axis, arm.name, view.baseline),
                "baseline": arm.name == view.baseline,
                "text": _tip(arm, figures.rate(figure.tok_s), against_baseline(figure.ratio)),
            }
        )
    return {
        "axis": axis.name,
        "title": axis_title(axis),
        "concurrency": axis.concurrency,
        "points": points,
        "baseline": _baseline_band(view, axis),
        "tie": _tie_band(view, axis),
    }


def _baseline_band(view: ResultView, axis: AxisView) -> Data | None:
    """The baseline's figure, and the lowest and highest of its own trials."""
    arm = view.arm(view.baseline) if view.baseline else None
    figure = figure_on(arm, axis) if arm else None
    if figure is None:
        return None
    values = figure.values or (figure.tok_s,)
    return {"tok_s": figure.tok_s, "low": min(v for v in values if v), "high": max(v for v in values if v)}


def _tie_band(view: ResultView, axis: AxisView) -> Data | None:
    """From the lowest tied figure, or the margin below the best, up to the best."""
    best = axis.values.get(axis.best) if axis.best else None
    if best is None or axis.verdict == "inconclusive":
        return None
    tied = [axis.values[arm] for arm in axis.ties if arm in axis.values]
    return {"low": min([*tied, best / (1 + (view.tie_margin or 0))]), "high": best}


def _ratio(view: ResultView, axis: AxisView) -> Data:
    rows = []
    for arm in view.arms:
        against = axis.ratios.get(arm.name)
        if against is None or arm.name == view.baseline:
            continue
        rows.append(
            {
                "arm": arm.name,
                "ratio": against.ratio,
                "low": against.low,
                "high": against.high,
                "reading": against.reading,
                "role": role(axis, arm.name, view.baseline),
                "text": against_baseline(against),
            }
        )
    return {"axis": axis.name, "title": axis_title(axis), "rows": rows}


def _acceptance(view: ResultView) -> list[Data]:
    """Accept length and tokens per step per workload, at the lowest concurrency that has them."""
    panels = []
    for workload in view.workloads:
        for axis in view.own_axes:
            if axis.workload != workload.name:
                continue
            found = [
                {
                    "arm": arm.name,
                    "depth": arm.depth,
                    "accept_len": figure.accept_len,
                    "tokens_per_step": figure.tokens_per_step,
                }
                for arm in view.arms
                if (figure := arm.axes.get(axis.name))
                and (figure.accept_len is not None or figure.tokens_per_step is not None)
            ]
            if found:
                title = f"{workload.name}, {at_once(axis.concurrency)}"
                panels.append({"title": title, "points": found})
                break
    return panels


def _timeline(view: ResultView) -> Data | None:
    """Trials as spans of seconds since the start of the run."""
    spans: list[Data] = []
    for trial in view.trials:
        if trial.at_s is None or trial.total_s is None:
            continue
        end = trial.at_s + trial.total_s
        start = trial.total_s if trial.start_s is None else trial.start_s
        phases = [{"phase": "start", "from": trial.at_s, "to": min(end, trial.at_s + start)}]
        if trial.measure_s:
            begin = trial.at_s + start
            phases.append({"phase": "measure", "from": begin, "to": min(end, begin + trial.measure_s)})
        if trial.stop_s:
            phases.append({"phase": "stop", "from": max(trial.at_s, end - trial.stop_s), "to": end})
        good = trial.counts and not trial.disturbed
        spans.append(
            {
                "number": trial.number,
                "round": trial.round,
                "arm": trial.arm,
                "from": trial.at_s,
                "to": end,
                "status": "disturbed" if trial.counts and trial.disturbed else trial.status,
                "phases": phases,
                "text": f"trial {trial.number} ({view.label(trial.arm)})" if good else trial_note(trial, view),
            }
        )
    return {"trials": spans} if spans else None


def _tip(arm: ArmView, rate: str, against: str | None) -> str:
    lines = [arm.label, f"{rate} tok/s"]
    if against:
        lines.append(f"{against} the baseline")
    return "\n".join(lines)
