"""`why --explain`: what a cause means, what proves it, and how it differs from what it is taken for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from rich.console import Console

from draftmark.errors import UsageError
from draftmark.postmortem.tables import Cause, Sign, Tables
from draftmark.report import why_words as words
from draftmark.report.console import hanging, heading, line, raw_line
from draftmark.report.figures import plural, visible

NOTHING = "-"
"""In the tables: nothing speaks against it."""

MOST_SIGNS = 8
_UNSETTLED = (
    "No line that was read proves a cause. It is an answer, not a failure: the candidates are named with the "
    "command that settles each, and every source that was not read with the command that reads it."
)
_PLACES = {"{unit}": "UNIT", "{pid}": "PID", "{pod}": "POD", "{container}": "CONTAINER"}


def print_explanation(name: str, tables: Tables, console: Console) -> None:
    """One cause in full.

    Raises:
        UsageError: There is no cause of that name.
    """
    if name == words.UNSETTLED and name not in tables.causes:
        line(console, name, "bold")
        line(console, _UNSETTLED)
        return
    cause = tables.causes.get(name)
    if cause is None:
        raise _unknown(name, tables.causes)
    line(console, name, "bold")
    line(console, _sentence(cause.title))
    if cause.memory:
        line(console, "It counts as out of memory.", "dim")
    _paragraph(console, "What proves it", cause.proves)
    if cause.against != NOTHING:
        _paragraph(console, "What speaks against it", cause.against)
    _print_confusions(cause, tables.causes, console)
    heading(console, words.ADVICE)
    for said in cause.advice:
        hanging(console, "  - ", _placed(said))
    if cause.settle:
        heading(console, "What settles it")
        raw_line(console, f"  {_placed(cause.settle)}", "cyan")
    _print_signs([sign for sign in tables.signs if sign.cause == name], console)


def print_causes(causes: Mapping[str, Cause], console: Console) -> None:
    """All names, by family."""
    families: dict[str, list[Cause]] = {}
    for cause in causes.values():
        families.setdefault(cause.family, []).append(cause)
    width = max(map(len, causes), default=0)
    for place, (family, members) in enumerate(families.items()):
        if place:
            console.print()
        line(console, family.replace("-", " "), "bold")
        for cause in members:
            hanging(console, f"  {cause.name:<{width}}  ", cause.title)
    console.print()
    line(console, f"{plural(len(causes), 'cause')}; draftmark why --explain NAME tells more of one", "dim")


def _sentence(said: str) -> str:
    return f"{said[:1].upper()}{said[1:]}" + ("" if said.endswith(".") else ".")


def _paragraph(console: Console, title: str, said: str) -> None:
    heading(console, title)
    hanging(console, "  ", _sentence(said))


def _print_confusions(cause: Cause, causes: Mapping[str, Cause], console: Console) -> None:
    """What it is taken for, each with what would be seen if it were that."""
    if not cause.confused_with:
        return
    heading(console, "What it is confused with")
    for name in cause.confused_with:
        other = causes.get(name)
        hanging(console, "  - ", f"{name}: {_sentence(other.title)} Proved by: {other.proves}" if other else name)


def _print_signs(signs: Iterable[Sign], console: Console) -> None:
    """The lines that name it, as the tables have them."""
    found = list(signs)
    if not found:
        return
    heading(console, "Lines that say so (regular expressions)")
    for sign in found[:MOST_SIGNS]:
        source = sign.engine or sign.voice
        raw_line(console, f"  {visible(source)}: {visible(sign.says)}", "dim")
    if len(found) > MOST_SIGNS:
        line(console, f"  … and {len(found) - MOST_SIGNS} more", "dim")


def _placed(command: str) -> str:
    for place, word in _PLACES.items():
        command = command.replace(place, word)
    return visible(command)


def _unknown(name: str, causes: Mapping[str, Cause]) -> UsageError:
    close = difflib.get_close_matches(name, causes, n=3, cutoff=0.5)
    close += [cause for cause in causes if name and name in cause and cause not in close][: 3 - len(close)]
    return UsageError(
        f'there is no cause "{name}"',
        next_step=f"did you mean {' or '.join(close)}?" if close else "draftmark why --explain list names all",
    )
