"""The Markdown report: what one pastes into a ticket."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from draftmark.report import figures
from draftmark.report.figures import duration, plural
from draftmark.report.knob_table import ABOUT, HEADS, KnobView, knobs_in, rows
from draftmark.report.reading import read_result
from draftmark.report.view import ResultView
from draftmark.report.words import (
    against_baseline,
    axis_title,
    figure_on,
    host_fact,
    outcome,
    proof,
    reason,
    restored,
    role,
    status,
    tie_rule,
    trial_note,
)

# Characters that mean something to some dialect of Markdown, HTML included.
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&@])")


def render_markdown(result: Mapping[str, Any]) -> str:
    """Verdict, table, choice, arms without figures, warnings, provenance.

    Raises:
        BadInputError: The document is of another kind.
    """
    view = read_result(result)
    parts = [
        f"## Draftmark: {code(view.service)}",
        f"**{text(view.verdict_sentence)}**",
        text(f"{outcome(view)}. {_run(view)}."),
        _table(view),
        _choice(view),
        _knobs(knobs_in(result)),
        _unmeasured(view),
        _warnings(view),
        _provenance(view),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def text(said: str) -> str:
    """Foreign text as text: nothing in it is markup, a mention or a cell's end."""
    return SPECIAL.sub(r"\\\1", " ".join(said.split()))


def code(said: str) -> str:
    """Foreign text as code, fenced by more backticks than it has in a row; the pipe is safe inside tables too."""
    said = " ".join(said.split()).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", said)), default=0))
    space = " " if said.startswith("`") or said.endswith("`") else ""
    return f"{fence}{space}{said}{space}{fence}"


def _run(view: ResultView) -> str:
    parts = [f"{plural(len(view.trials), 'trial')} in {plural(view.rounds, 'round')}"]
    if view.restarts is not None:
        parts.append(plural(view.restarts, "restart"))
    if view.downtime_s is not None:
        parts.append(f"{duration(view.downtime_s)} of downtime")
    return ", ".join([*parts, restored(view)])


def _table(view: ResultView) -> str | None:
    axes = [axis for axis in view.shown_axes if any(figure_on(arm, axis) for arm in view.measured)]
    if not axes:
        return None
    limited = ["requests at once"] if view.limited else []
    rows = [["arm", *(axis_title(axis) for axis in axes), "accept length", *limited]]
    for arm in view.measured:
        cells = [arm.label]
        for axis in axes:
            figure = figure_on(arm, axis)
            mark = {"choice": " ✔", "tie": " ="}.get(role(axis, arm.name, view.baseline), "")
            against = (
                "baseline" if arm.name == view.baseline else against_baseline(figure.ratio if figure else None)
            )
            cells.append(f"{figures.rate(figure.tok_s)}, {against}{mark}" if figure else figures.UNKNOWN)
        rows.append([*cells, figures.length(arm.accept_len), *(figures.count(arm.max_running) for _ in limited)])
    return "\n".join(
        [*_grid(rows), "", f"tok/s and ratio to the baseline (interval); ✔ choice, = {text(tie_rule(view))}"]
    )


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(text(cell) for cell in row)} |" for row in rows]
    return [lines[0], "|" + " --- |" + " ---: |" * (len(rows[0]) - 1), *lines[1:]]


def _choice(view: ResultView) -> str | None:
    choice = view.choice
    named = [
        ("Recommended", choice.recommended),
        ("Latency", choice.latency),
        ("Throughput", choice.throughput),
        *((f"On {workload}", arm) for workload, arm in choice.by_workload.items()),
    ]
    if not view.measured:
        return None
    return "\n".join(
        f"- {text(name)}: {text(view.label(arm)) if arm else 'no choice, the figures settle nothing'}"
        for name, arm in named
    )


def _knobs(knobs: tuple[KnobView, ...]) -> str | None:
    if not knobs:
        return None
    return "\n".join(["Knobs:", "", *_grid([HEADS, *rows(knobs)]), "", text(ABOUT)])


def _unmeasured(view: ResultView) -> str | None:
    if not view.unmeasured:
        return None
    lines = []
    for arm in view.unmeasured:
        said = f"- {text(arm.label)}, {text(status(arm.status))}"
        because, shown = reason(arm, view), proof(arm, view)
        lines.append(said + (f": {text(because)}" if because else "") + (f" ({code(arm.why)})" if arm.why else ""))
        lines += [f"  - {code(shown)}"] if shown else []
    return "\n".join(["Not measured:", "", *lines])


def _warnings(view: ResultView) -> str | None:
    notes = [trial_note(trial, view) for trial in view.set_aside]
    if not notes and not view.warnings:
        return None
    return "\n".join(["Warnings and notes:", "", *(f"- {text(said)}" for said in [*view.warnings, *notes])])


def _provenance(view: ResultView) -> str:
    engine = " ".join(part for part in (view.engine, view.engine_version) if part)
    facts = [
        ("Draftmark", text(view.draftmark or figures.UNKNOWN)),
        ("Engine", text(engine or figures.UNKNOWN)),
        ("Command line", code(shlex.join(view.command)) if view.command else figures.UNKNOWN),
        *((f"Host, {host_fact(key)}", text(value)) for key, value in view.host.items()),
        ("Started", text(view.started_at or figures.UNKNOWN)),
        ("Finished", text(view.finished_at or figures.UNKNOWN)),
        *((f"Workload {w.name}", f"sha256 {code(w.sha256 or figures.UNKNOWN)}") for w in view.workloads),
    ]
    return "\n".join(["Provenance:", "", *(f"- {text(name)}: {said}" for name, said in facts)])
