"""The top of the HTML report: verdict, choices, facts, and what the reader must be warned of."""

from __future__ import annotations

from draftmark.report import figures
from draftmark.report.figures import duration, plural
from draftmark.report.tags import Markup, Node, tag
from draftmark.report.view import Figure, ResultView
from draftmark.report.words import against_baseline, at_once, in_headline, outcome, restored, trial_note

# Exit statuses that are neither good news nor a neutral answer.
ALARMING = {50, 51}
CAUTIOUS = {20, 30, 40}


def head_sections(view: ResultView, title: str) -> list[Markup | None]:
    """Header with the verdict, cards, warnings, notes on trials that were set aside."""
    return [_header(view, title), _cards(view), _facts(view), _warnings(view)]


def _header(view: ResultView, title: str) -> Markup:
    tone = "neutral"
    if view.exit_status in ALARMING or (view.restored is False and view.kept is None):
        tone = "alarm"
    elif view.exit_status in CAUTIOUS or view.complete is False or view.exit_status is None:
        tone = "caution"
    elif view.exit_status == 10:
        tone = "good"
    return tag(
        "header",
        tag(
            "p",
            tag("span", title, class_="doc-title"),
            tag("span", outcome(view), class_=f"chip {tone}"),
            class_="eyebrow",
        ),
        tag("h1", view.verdict_sentence, id="verdict"),
        tag("noscript", tag("p", NO_SCRIPT, class_="note")),
    )


NO_SCRIPT = "The plots need JavaScript, which is off. Every figure is in the tables."


def _cards(view: ResultView) -> Markup | None:
    if not view.measured:
        return None
    choice = view.choice
    slots = sorted(view.concurrency) or [1]
    cards = [_card(view, "Recommended", choice.recommended, None, choice.because, main=True)]
    chosen = {choice.recommended, choice.latency, choice.throughput, *choice.by_workload.values()}
    if chosen == {None}:
        return tag("section", *cards, class_="cards", aria_label="Choices")
    if len(slots) > 1 or choice.latency != choice.recommended:
        cards.append(_card(view, "Latency", choice.latency, "latency", at_once(slots[0])))
    if len(slots) > 1:
        cards.append(_card(view, "Throughput", choice.throughput, "throughput", at_once(slots[-1])))
    if len(choice.by_workload) > 1:
        cards += [_workload_card(view, workload, arm) for workload, arm in choice.by_workload.items()]
    return tag("section", *cards, class_="cards", aria_label="Choices")


def _card(
    view: ResultView, name: str, chosen: str | None, kind: str | None, note: str | None, *, main: bool = False
) -> Markup:
    arm = view.arm(chosen) if chosen else None
    figure = None if arm is None else arm.throughput if kind == "throughput" else arm.latency
    ties = [view.label(tie) for tie in view.choice.ties if tie != chosen] if main else []
    return tag(
        "article",
        tag("h2", name, tag("span", None if main else note)),
        tag("p", view.label(chosen) if chosen else "no choice", class_="pick" if chosen else "pick none"),
        _gain(view, chosen, figure),
        tag("p", f"level with it: {', '.join(ties)}", class_="sub") if ties else None,
        tag("p", note, class_="sub") if main and note and not in_headline(view, note) else None,
        class_="card main" if main and chosen else "card",
    )


def _workload_card(view: ResultView, workload: str, chosen: str | None) -> Markup:
    axis = next((axis for axis in view.own_axes if axis.workload == workload and axis.choice == chosen), None)
    arm = view.arm(chosen) if chosen else None
    figure = arm.axes.get(axis.name) if arm and axis else None
    return tag(
        "article",
        tag("h2", f"On {workload}", tag("span", at_once(axis.concurrency) if axis else None)),
        tag("p", view.label(chosen) if chosen else "no choice", class_="pick" if chosen else "pick none"),
        _gain(view, chosen, figure),
        class_="card",
    )


def _gain(view: ResultView, chosen: str | None, figure: Figure | None) -> Markup | None:
    """The ratio and the rate behind a choice."""
    if chosen is None:
        return tag("p", "the figures settle nothing", class_="sub")
    if figure is None or figure.tok_s is None:
        return None
    rate = f"{figures.rate(figure.tok_s)} tok/s"
    if chosen == view.baseline:
        return tag("p", "the baseline", tag("span", rate), class_="gain")
    return tag("p", against_baseline(figure.ratio), tag("span", rate), class_="gain")


def _facts(view: ResultView) -> Markup:
    engine = " ".join(part for part in (view.engine, view.engine_version) if part)
    counted = f"{len(view.trials)} in {plural(view.rounds, 'round')}"
    aside = len(view.set_aside)
    facts: list[tuple[str, Node]] = [
        ("Service", tag("code", view.service)),
        ("Engine", engine or figures.UNKNOWN),
        ("Trials", f"{counted}, {aside} with notes" if aside else counted),
        ("Restarts", figures.count(view.restarts)),
        ("Downtime", duration(view.downtime_s)),
        ("Afterwards", "not recorded" if view.restored is None else restored(view)),
        ("Started", _moment(view.started_at)),
    ]
    return tag(
        "dl",
        *(tag("div", tag("dt", term), tag("dd", fact)) for term, fact in facts),
        class_="facts",
        aria_label="Facts",
    )


def _moment(iso: str | None) -> Node:
    """`2026-11-29 17:50 UTC`, the full text kept for machines."""
    if iso is None:
        return figures.UNKNOWN
    short = iso[:16].replace("T", " ") + " UTC" if len(iso) > 16 and iso.endswith("Z") else iso
    return tag("time", short, datetime=iso)


def _warnings(view: ResultView) -> Markup | None:
    notes = [trial_note(trial, view) for trial in view.set_aside]
    if not view.warnings and not notes:
        return None
    aside = tag(
        "details",
        tag("summary", f"{plural(len(notes), 'trial')} void, failed or disturbed"),
        tag("ul", *(tag("li", note) for note in notes)),
    )
    return tag(
        "section",
        tag("h2", "Warnings") if view.warnings else None,
        tag("ul", *(tag("li", warning) for warning in view.warnings)) if view.warnings else None,
        aside if notes else None,
        class_="warnings" if view.warnings else "warnings quiet",
        aria_label="Warnings and notes",
    )
