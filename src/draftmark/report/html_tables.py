"""The tables of the HTML report: arms, trials, workloads, provenance, and how to read it all."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from draftmark.report import figures
from draftmark.report.figures import duration, percent
from draftmark.report.knob_table import ABOUT, HEADS, KnobView, rows
from draftmark.report.plots import ticks
from draftmark.report.tags import Markup, Node, join, tag
from draftmark.report.view import ResultView
from draftmark.report.words import against_baseline, at_once, glossary, host_fact, proof, reason, status

# A longer label wraps, so that it does not push the figures off the page.
LONG_LABEL = 24


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column. `number` is set right and in tabular figures, `prose` may wrap."""

    head: str
    number: bool = False
    prose: bool = False

    @property
    def css(self) -> str | None:
        """Class of its cells."""
        return "num" if self.number else "prose" if self.prose else None


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Node]]) -> Markup:
    """A table that scrolls by itself on a narrow page. The first cell of a row is its head."""
    heads = tag("tr", *(tag("th", column.head, scope="col", class_=column.css) for column in columns))
    body = []
    for row in rows:
        first, *rest = zip(columns, row, strict=True)
        cells = [tag("td", cell, class_=column.css) for column, cell in rest]
        body.append(tag("tr", tag("th", first[1], scope="row"), *cells))
    content = tag("table", tag("caption", caption), tag("thead", heads), tag("tbody", *body))
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=caption)


def table_sections(view: ResultView, knobs: tuple[KnobView, ...] = ()) -> list[Markup | None]:
    """Everything below the plots."""
    return [_knobs(knobs), _arms(view), _trials(view), _workloads(view), _reading(view), _provenance(view)]


def _knobs(knobs: tuple[KnobView, ...]) -> Markup | None:
    if not knobs:
        return None
    columns = [Column(head.capitalize()) for head in HEADS]
    return section("knobs", "Knobs", table("Knobs and what they do", columns, rows(knobs)), tag("p", ABOUT))


def _arms(view: ResultView) -> Markup | None:
    if not view.arms:
        return None
    slots = sorted(view.concurrency) or [1]
    short = {arm.name: tick for arm, tick in ticks(view)}
    several = len(slots) > 1
    columns = [
        Column("Arm"),
        Column("Status"),
        Column(f"tok/s, {at_once(slots[0])}", number=True),
        Column("Ratio (interval)", number=True),
        *([Column(f"tok/s, {at_once(slots[-1])}", number=True)] if several else []),
        *([Column("Ratio (interval)", number=True)] if several else []),
        Column("Accept length", number=True),
        Column("Tokens per step", number=True),
        Column("Start,\u00a0s", number=True),
        Column("Trials", number=True),
    ]
    if view.limited:
        columns += [Column("Requests at\u00a0once", number=True), Column("KV tokens", number=True)]
    fits = any(arm.fit for arm in view.arms)
    if fits:
        columns.append(Column("Memory"))
    rows: list[list[Node]] = []
    for arm in view.arms:
        marks = [word for word, name in _choices(view) if name == arm.name]
        label = f"{arm.label} ({short[arm.name]})" if short[arm.name][-1:].isalpha() and arm.depth else arm.label
        row: list[Node] = [
            tag(
                "span",
                label,
                *(tag("em", mark) for mark in marks),
                class_="arm long" if len(label) > LONG_LABEL else "arm",
            ),
            status(arm.status),
        ]
        for figure in (arm.latency, arm.throughput)[: 2 if several else 1]:
            ratio = "baseline" if arm.name == view.baseline and arm.measured else against_baseline(figure.ratio)
            row += [figures.rate(figure.tok_s), ratio]
        row += [
            figures.length(arm.accept_len),
            figures.length(arm.tokens_per_step),
            figures.seconds(arm.start_s),
            " ".join(f"{trial:g}" for trial in arm.trials) or figures.UNKNOWN,
        ]
        if view.limited:
            row += [figures.count(arm.max_running), figures.count(arm.kv_tokens)]
        rows.append([*row, arm.fit or figures.UNKNOWN] if fits else row)
    return section("arms", "Arms", table("Arms and what became of them", columns, rows), _unmeasured(view))


def _choices(view: ResultView) -> list[tuple[str, str | None]]:
    return [("recommended", view.choice.recommended), ("baseline", view.baseline)]


def _unmeasured(view: ResultView) -> Markup | None:
    """Arms without figures, with the reason and the path of the post-mortem."""
    told = [arm for arm in view.unmeasured if arm.because or arm.why]
    if not told:
        return None
    entries = []
    for arm in told:
        shown = proof(arm, view)
        line = tag("span", tag("code", shown), class_="sub") if shown else None
        path = tag("span", "post-mortem: ", tag("code", arm.why), class_="sub") if arm.why else None
        entries.append(tag("dt", arm.label, tag("span", status(arm.status))))
        entries.append(tag("dd", reason(arm, view), line, path))
    return tag("div", tag("h3", "Not measured, and why"), tag("dl", *entries, class_="reasons"))


def _trials(view: ResultView) -> Markup | None:
    if not view.trials:
        return section("trials", "Trials", tag("p", "No trial was started yet.", class_="lede"))
    rows: list[Sequence[Node]] = []
    for trial in view.trials:
        reasons = list(dict.fromkeys([*([trial.because] if trial.because else []), *trial.disturbed]))
        stop = " ".join(part for part in (trial.stop, figures.seconds(trial.stop_s) + " s") if part)
        rows.append(
            (
                str(trial.number),
                figures.count(trial.round),
                view.label(trial.arm),
                status(trial.status),
                figures.seconds(trial.at_s),
                figures.seconds(trial.start_s),
                figures.seconds(trial.measure_s),
                stop if trial.stop_s is not None else trial.stop or figures.UNKNOWN,
                figures.seconds(trial.total_s),
                *([figures.count(trial.max_running)] if view.limited else []),
                "; ".join(reasons),
            )
        )
    columns = (
        Column("Trial"),
        Column("Round", number=True),
        Column("Arm"),
        Column("Status"),
        Column("At,\u00a0s", number=True),
        Column("Start,\u00a0s", number=True),
        Column("Measure,\u00a0s", number=True),
        Column("Stop"),
        Column("Total,\u00a0s", number=True),
        *([Column("Requests at\u00a0once", number=True)] if view.limited else []),
        Column("Notes", prose=True),
    )
    return section("trials", "Trials", table("Trials in the order they ran", columns, rows))


def _workloads(view: ResultView) -> Markup | None:
    if not view.workloads:
        return None
    rows = [
        (
            workload.name,
            workload.about or figures.UNKNOWN,
            workload.source or figures.UNKNOWN,
            figures.count(workload.prompts),
            tag("code", workload.sha256 or figures.UNKNOWN),
        )
        for workload in view.workloads
    ]
    columns = (
        Column("Workload"),
        Column("What it is", prose=True),
        Column("Source"),
        Column("Prompts", number=True),
        Column("SHA-256 of what was sent"),
    )
    return section("workloads", "Workloads", table("Workloads", columns, rows))


def _reading(view: ResultView) -> Markup:
    entries = [node for term, meaning in glossary(view) for node in (tag("dt", term), tag("dd", meaning))]
    return section("reading", "How to read this", tag("dl", *entries, class_="glossary"))


def _command(command: Sequence[str]) -> Markup:
    """A command line that breaks between its arguments and copies as it was."""
    return tag("code", join((tag("span", shlex.quote(argument), class_="arg") for argument in command), " "))


def _provenance(view: ResultView) -> Markup:
    engine = " ".join(part for part in (view.engine, view.engine_version) if part)
    facts: list[tuple[str, Node]] = [
        ("Draftmark", view.draftmark or figures.UNKNOWN),
        ("Service", tag("code", view.service)),
        ("Engine", engine or figures.UNKNOWN),
        (
            "Command line",
            _command(view.command) if view.command else figures.UNKNOWN,
        ),
        *((f"Host: {host_fact(key)}", value) for key, value in view.host.items()),
        ("Started", view.started_at or figures.UNKNOWN),
        ("Finished", view.finished_at or figures.UNKNOWN),
        ("Concurrency", ", ".join(str(slots) for slots in view.concurrency) or figures.UNKNOWN),
        ("Rounds", figures.count(view.rounds)),
        ("Tie margin", percent(view.tie_margin)),
        *((f"Setting: {key.replace('_', ' ')}", value) for key, value in view.settings.items()),
        ("Downtime", duration(view.downtime_s)),
        ("Exit status", figures.count(view.exit_status)),
    ]
    entries = [tag("div", tag("dt", term), tag("dd", fact)) for term, fact in facts]
    return section("provenance", "Provenance", tag("dl", *entries, class_="provenance"))


def section(anchor: str, heading: str, *children: Node) -> Markup:
    """A section that names itself to a screen reader and can be linked to."""
    return tag(
        "section",
        tag("h2", heading, id=f"{anchor}-heading"),
        *children,
        id=anchor,
        aria_labelledby=f"{anchor}-heading",
    )
