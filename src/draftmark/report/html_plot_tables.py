"""The tables behind the HTML report's plots: every figure that a plot shows, and those it has no room for."""

from __future__ import annotations

from draftmark.report import figures
from draftmark.report.figures import percent
from draftmark.report.html_tables import Column, table
from draftmark.report.tags import Markup
from draftmark.report.view import ResultView
from draftmark.report.words import against_baseline, axis_title, figure_on, role

ROLE = {"choice": "choice", "tie": "tie", "baseline": "", "other": ""}


def figures_table(view: ResultView) -> Markup:
    """Behind the speed plots."""
    rows = []
    for axis in view.shown_axes:
        for arm in view.arms:
            figure = figure_on(arm, axis)
            if figure is None:
                continue
            rows.append(
                (
                    axis_title(axis),
                    arm.label,
                    figures.rate(figure.tok_s),
                    "baseline" if arm.name == view.baseline else against_baseline(figure.ratio),
                    ROLE[role(axis, arm.name, view.baseline)],
                    "  ".join(figures.rate(value) for value in figure.values) or figures.UNKNOWN,
                    figures.millis(figure.ttft_ms_p50),
                    figures.millis(figure.tpot_ms_p50),
                )
            )
    return table(
        "Figures of every arm on every axis",
        (
            Column("Axis"),
            Column("Arm"),
            Column("tok/s", number=True),
            Column("Ratio (interval)", number=True),
            Column("Mark"),
            Column("Trials, tok/s", number=True),
            Column("TTFT p50, ms", number=True),
            Column("TPOT p50, ms", number=True),
        ),
        rows,
    )


def decisions_table(view: ResultView) -> Markup:
    """Behind the ratio plots."""
    rows = [
        (
            axis_title(axis),
            figures.rate(axis.baseline),
            view.label(axis.best),
            view.label(axis.choice),
            ", ".join(view.label(tie) for tie in axis.ties) or figures.UNKNOWN,
            axis.verdict or figures.UNKNOWN,
            percent(axis.noise),
            against_baseline(axis.drift),
            axis.because or figures.UNKNOWN,
        )
        for axis in view.shown_axes
    ]
    return table(
        "The decision on every axis",
        (
            Column("Axis"),
            Column("Baseline, tok/s", number=True),
            Column("Best"),
            Column("Choice"),
            Column("Ties"),
            Column("Verdict"),
            Column("Noise of a trial", number=True),
            Column("Drift of the baseline", number=True),
            Column("Because", prose=True),
        ),
        rows,
    )


def acceptance_table(view: ResultView) -> Markup:
    """Behind the acceptance plots."""
    rows = [
        (
            axis_title(axis),
            arm.label,
            figures.length(figure.accept_len),
            figures.length(figure.tokens_per_step),
            figures.count(figure.drafted_tokens),
            figures.count(figure.accepted_tokens),
        )
        for axis in view.own_axes
        for arm in view.arms
        if (figure := arm.axes.get(axis.name)) and figure.tok_s is not None
    ]
    return table(
        "Acceptance of every arm on every axis",
        (
            Column("Axis"),
            Column("Arm"),
            Column("Accept length", number=True),
            Column("Tokens per step", number=True),
            Column("Drafted", number=True),
            Column("Accepted", number=True),
        ),
        rows,
    )
