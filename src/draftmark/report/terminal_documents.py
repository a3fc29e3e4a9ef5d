"""The other verbs' documents on the terminal: inspect, plan, compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from draftmark.report import figures
from draftmark.report.console import fit_encoding, hanging, heading, line, raw_line
from draftmark.report.fields import Document, mapping, mappings, number, plain, text, texts
from draftmark.report.figures import plural, visible
from draftmark.report.terminal_tables import add_row, table_of


def print_inspect(document: Mapping[str, Any], console: Console) -> None:
    """Facts by section, then what would stop tuning from being safe."""
    for section, facts in document.items():
        if section in ("hazards", "roofline") or not isinstance(facts, Mapping):
            continue
        heading(console, visible(section))
        facts = {fact: value for fact, value in facts.items() if value not in ([], (), {}, "")}
        names = {fact: _fit(fact, console) for fact in facts}
        room = min(30, max((cell_len(name) for name in names.values()), default=0))
        for fact, value in facts.items():
            # Left whole, so that a command line or a path can be copied.
            shown = Text(f"  {set_cell_size(names[fact], room)}  ", "dim")
            console.print(shown.append(_fit(plain(value), console), "none"), soft_wrap=True)
    hazards = mappings(document, "hazards")
    console.print()
    _print_roofline(document, console)
    _print_load_from(document, console)
    for hazard in hazards:
        hanging(console, "hazard: ", text(hazard, "what") or figures.UNKNOWN, "bold yellow")
        for evidence in texts(hazard, "evidence"):
            raw_line(console, f"  | {evidence}")
        if step := text(hazard, "next_step"):
            hanging(console, "  next: ", step)
    line(
        console,
        f"{plural(len(hazards), 'hazard')} for tuning." if hazards else "No hazard for tuning was seen.",
        "bold",
    )


def print_plan(document: Mapping[str, Any], console: Console) -> None:
    """What every arm would change, and what the run would cost."""
    arms = mappings(document, "arms")
    for note in texts(document, "notes"):
        hanging(console, "note: ", note, "bold")
    for arm in arms:
        label = text(arm, "label") or text(arm, "arm") or figures.UNKNOWN
        said = ": ".join(part for part in (text(arm, "verdict"), text(arm, "because")) if part)
        hanging(console, f"{label}  ", said or figures.UNKNOWN, "bold")
        for entry in arm.get("command_diff") or []:
            raw_line(console, f"    {visible(str(entry))}", _diff_style(str(entry)))
    _print_knobs(document, console)
    _print_drop_ins(arms, console)
    schedule = texts(document, "schedule")
    console.print()
    _print_roofline(document, console)
    _print_load_from(document, console)
    if schedule:
        hanging(console, "order: ", " ".join(schedule), "dim")
    for node in mappings(document, "nodes"):
        starts = " ".join(texts(node, "starts")) or "nothing: there are more nodes than starts"
        hanging(console, f"{text(node, 'node')}: ", starts, "dim")
    started = sum(text(arm, "verdict") == "start" for arm in arms)
    restarts, minutes = number(document, "restarts"), number(document, "minutes")
    most, longest = number(document, "restarts_most"), number(document, "minutes_most")
    cost = f"{plural(restarts, 'restart')}, about {_minutes(minutes)}"
    if nodes := mappings(document, "nodes"):
        used = sum(bool(texts(node, "starts")) for node in nodes)
        cost = f"{plural(restarts, 'start')} on {plural(used, 'node')}, about {_minutes(minutes)}"
    elif most is not None and most != restarts:
        cost = f"about {cost.replace(', about', ',')}; at most {most:.0f}, {_minutes(longest)}"
        hanging(
            console,
            "order: ",
            "by forecast: the baseline first and last, between them what is worth a start",
            "dim",
        )
    line(console, f"{started} of {plural(len(arms), 'arm')} to start: {cost}.", "bold")
    assumed = mapping(document, "assumed")
    if assumed:
        start, measure = (figures.duration(number(assumed, key)) for key in ("start_s", "measure_s"))
        line(console, f"assumed: a start takes {start}, the measurements of a trial {measure}", "dim")


def _print_knobs(document: Document, console: Console) -> None:
    """What is tried of each knob at first: an end that does not fit gives way to the next value inwards."""
    for knob in mappings(document, "knobs"):
        values = texts(knob, "values")
        span = ", ".join(values) if len(values) <= 4 else f"{values[0]} to {values[-1]}, {len(values)} values"
        runs = text(knob, "runs") or "the engine's default"
        said = f"{span}; runs with {runs}; first its ends alone:"
        hanging(console, f"{text(knob, 'knob')}  ", said, "bold")
        for entry in mappings(knob, "first"):
            told = ": ".join(part for part in (text(entry, "verdict"), text(entry, "because")) if part)
            hanging(console, f"  {text(entry, 'label')}  ", told)
            for change in texts(entry, "command_diff"):
                raw_line(console, f"    {visible(change)}", _diff_style(change))


def _minutes(minutes: float | None) -> str:
    told = figures.UNKNOWN if minutes is None else f"{minutes:.0f}" if minutes >= 1 else "less than 1"
    return f"{told} min"


def _print_load_from(document: Document, console: Console) -> None:
    """Of a live service: the way to it is in the figures, or is not."""
    if load_from := text(document, "load_from"):
        hanging(console, "load: ", f"requests are sent from {load_from}", "dim")


def _print_roofline(document: Document, console: Console) -> None:
    """What the GPU bounds, where the model and the card are known."""
    found = mapping(document, "roofline")
    for sentence in texts(found, "sentences"):
        hanging(console, "roofline: ", sentence)
    for assumption in texts(found, "assumptions"):
        hanging(console, "  assumed: ", assumption, "dim")


def _print_drop_ins(arms: list[Document], console: Console) -> None:
    """The whole change to a unit: of one arm, since the others' differ in the flags shown above.

    And of the arm that is the service's own command line, where its drop-in sets something else.
    """
    changed = [arm for arm in arms if text(arm, "drop_in")]
    own = [arm for arm in changed if not arm.get("command_diff")]
    for arm in [*own[:1], *[arm for arm in changed if arm.get("command_diff")][-1:]]:
        heading(console, f"drop-in of {text(arm, 'label')}, for as long as it is tried")
        for entry in str(arm["drop_in"]).splitlines():
            raw_line(console, f"  {visible(entry)}")


def print_compare(document: Mapping[str, Any], console: Console) -> None:
    """Two runs side by side: the second over the first, per axis and arm."""
    runs = [*texts(document, "runs"), figures.UNKNOWN, figures.UNKNOWN][:2]
    for letter, run in zip("ab", runs, strict=True):
        raw_line(console, f"{letter}  {run}")
    table = table_of(("axis", "<"), ("arm", "<"), ("a tok/s", ">"), ("b tok/s", ">"), ("b / a (interval)", "<"))
    for entry in mappings(document, "axes"):
        bounds = figures.span(number(entry, "low"), number(entry, "high"))
        add_row(
            table,
            console,
            text(entry, "axis") or figures.UNKNOWN,
            text(entry, "arm") or figures.UNKNOWN,
            figures.rate(number(entry, "a_tok_s")),
            figures.rate(number(entry, "b_tok_s")),
            f"{figures.ratio(number(entry, 'ratio'))} ({bounds})",
        )
    console.print()
    console.print(table)
    line(console, text(document, "sentence") or "Nothing can be said of these runs.", "bold")


# --- parts ------------------------------------------------------------------------------------------------


def _diff_style(entry: str) -> str:
    return "green" if entry.startswith("+") else "red" if entry.startswith("-") else "dim"


def _fit(cell: str, console: Console) -> str:
    return fit_encoding(visible(cell), console)
