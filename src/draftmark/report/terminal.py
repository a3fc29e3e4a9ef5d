"""The reports on the terminal. The verdict comes last, because the last line is what stays in view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from draftmark.errors import DraftmarkError, UnrestoredError
from draftmark.report import figures
from draftmark.report.bench_table import print_bench
from draftmark.report.console import hanging, heading, line, raw_line
from draftmark.report.figures import plural, visible
from draftmark.report.knob_table import knobs_in, sentences
from draftmark.report.reading import read_result
from draftmark.report.result_table import result_table
from draftmark.report.terminal_documents import print_compare, print_inspect, print_plan
from draftmark.report.view import ResultView
from draftmark.report.words import outcome, proof, reason, restored, status, trial_note

__all__ = ["print_bench", "print_compare", "print_error", "print_inspect", "print_plan", "print_result"]

# More notes than this push the table off the screen; the HTML report has them all.
MOST_NOTES = 4


def print_result(result: Mapping[str, Any], console: Console, *, paths: str | None = None) -> None:
    """A run: header, table, what was not measured, warnings, where the records are, verdict.

    Args:
        result: The result document of `tune`.
        console: Where to print.
        paths: One line naming the files written, printed whole.

    Raises:
        BadInputError: The document is of another kind.
    """
    view = read_result(result)
    _print_header(view, console)
    for place, row in enumerate(result_table(view, console.width)):
        if place == 0:
            console.print()
        raw_line(console, row.text, row.style)
    _print_knobs(result, console)
    _print_unmeasured(view, console)
    _print_notes(view, console)
    if paths:
        console.print()
        raw_line(console, paths)
    console.print()
    line(console, view.verdict_sentence, "bold")


def print_error(error: DraftmarkError, console: Console) -> None:
    """What happened, the lines that show it, what to do next. Unwrapped where there is no terminal."""
    if console.is_terminal:
        hanging(console, "error: ", visible(error.what), "bold red", whole_words=True)
    else:
        raw_line(console, f"error: {visible(error.what)}")
    for evidence in error.evidence:
        for part in evidence.splitlines() or [""]:
            raw_line(console, f"  | {visible(part)}")
    steps = [visible(part) for part in error.next_step.splitlines()]
    if not steps:
        return
    if len(steps) == 1 and not isinstance(error, UnrestoredError):
        if console.is_terminal:
            hanging(console, "next: ", steps[0], "bold", whole_words=True)
        else:
            raw_line(console, f"next: {steps[0]}")
        return
    line(console, "next:", "bold")  # commands to copy: left whole
    for step in steps:
        raw_line(console, f"  {step.strip()}")


def _print_header(view: ResultView, console: Console) -> None:
    engine = " ".join(part for part in (view.engine, view.engine_version) if part)
    workloads = ", ".join(workload.name for workload in view.workloads)
    slots = ", ".join(str(slots) for slots in view.concurrency)
    line(console, view.service, "bold")
    hanging(console, "  engine     ", engine or figures.UNKNOWN, "dim")
    hanging(
        console, "  workloads  ", f"{workloads or figures.UNKNOWN} · concurrency {slots or figures.UNKNOWN}", "dim"
    )
    trials = f"{plural(view.rounds, 'round')}, {plural(len(view.trials), 'trial')}"
    if view.set_aside:
        trials += f" ({len(view.set_aside)} void, failed or disturbed)"
    hanging(console, "  trials     ", trials, "dim")
    downtime = None if view.downtime_s is None else f"{figures.duration(view.downtime_s)} of downtime"
    restarts = None if view.restarts is None else plural(view.restarts, "restart")
    stops = [part for part in (restarts, downtime, restored(view)) if part]
    hanging(console, "  service    ", ", ".join(stops), "dim")
    hanging(console, "  outcome    ", outcome(view), "dim")


def _print_knobs(result: Mapping[str, Any], console: Console) -> None:
    knobs = knobs_in(result)
    if not knobs:
        return
    heading(console, "knobs")
    width = max(len(knob.name) for knob in knobs)
    for knob in knobs:
        for place, said in enumerate(sentences(knob)):
            hanging(console, f"  {'' if place else visible(knob.name):<{width}}  ", visible(said))


def _print_unmeasured(view: ResultView, console: Console) -> None:
    if not view.unmeasured:
        return
    heading(console, "not measured")
    width = min(24, max(len(arm.label) for arm in view.unmeasured))
    for arm in view.unmeasured:
        said = ": ".join(part for part in (status(arm.status), reason(arm, view)) if part)
        shown = proof(arm, view)
        if arm.why and not shown:
            said += f" ({arm.why})"
        hanging(console, f"  {arm.label:<{width}}  ", said)
        for further in (shown, arm.why) if shown else ():
            hanging(console, " " * (width + 4), further or "")


def _print_notes(view: ResultView, console: Console) -> None:
    notes = [trial_note(trial, view) for trial in view.set_aside if trial.status != "did-not-start"]
    if not notes and not view.warnings:
        return
    console.print()
    for note in notes[:MOST_NOTES]:
        hanging(console, "note: ", note, "dim")
    if len(notes) > MOST_NOTES:
        hanging(
            console, "note: ", f"{plural(len(notes) - MOST_NOTES, 'more trial')} of that kind, in the report", "dim"
        )
    for warning in view.warnings:
        hanging(console, "warning: ", warning, "yellow")
