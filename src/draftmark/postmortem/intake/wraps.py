"""Lines that a terminal cut at its width, put together again: only where a source leaves no doubt of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from draftmark.postmortem.intake.clean import clean
from draftmark.postmortem.intake.clock import Calendar
from draftmark.postmortem.intake.head import Head
from draftmark.postmortem.intake.peel import Layers, peel

NumberedLines = Sequence[tuple[int, str]]

_LEAST = 8  # full lines
_DIFFERENT = 4  # of them that have a prefix, with what follows, figures apart
_SURE = 0.9  # of the full lines go on in a line without a prefix
_APART = 0.5  # at most, of the others do
_MOST_ROWS = 200
_SEEN = 2000
_FIGURES = re.compile(r"\d+|\^+")
_DRAWN = re.compile(r"\s*[|+*=#~_<>\u2500-\u259f-]{1,3}(?:[\s|+*=#~_<>\u2500-\u259f-]|$)|\s*$")
_OWN = re.compile(r" {2}|\t|Traceback \(most recent|During handling of|The above exception|\s*$")


def unwrapped(lines: NumberedLines, most: int, carriers: Layers) -> tuple[NumberedLines, Mapping[int, str]]:
    """The lines as they were before a terminal of width `most` cut them, or as they are where none may have.

    Returns:
        The lines, and by number the first row of each that was put together.
    """
    return _joined(lines, most, carriers) if _goes_on(lines, most, carriers) else (lines, {})


def _goes_on(lines: NumberedLines, most: int, carriers: Layers) -> bool:
    """Whether nearly all lines of that length have a successor without a prefix, where others have one."""
    pairs = [(lines[i][1], lines[i + 1][1]) for i in range(len(lines) - 1) if lines[i + 1][0] == lines[i][0] + 1]
    full = [(raw, after) for raw, after in pairs if len(raw) == most and not _DRAWN.match(raw)][:_SEEN]
    begun = [(_FIGURES.sub("0", raw), _FIGURES.sub("0", after)) for raw, after in full if _prefixed(raw, carriers)]
    if len(full) < _LEAST or len(set(begun)) < _DIFFERENT or len({raw for raw, _ in begun}) < 2:
        return False
    # Ranks write the same line at once, and it may chance to be as long: figures apart, each counts once.
    goes_on = {_FIGURES.sub("0", raw): not _prefixed(after, carriers) for raw, after in full}
    if sum(goes_on.values()) < _SURE * len(goes_on):
        return False
    others = [after for raw, after in pairs[:_SEEN] if len(raw) < most and _prefixed(raw, carriers)]
    bare = sum(not _prefixed(after, carriers) for after in others)
    return len(others) + len(set(begun)) >= _LEAST and bare <= _APART * len(others)


def _prefixed(raw: str, carriers: Layers) -> bool:
    return peel(clean(raw), Head(Calendar(0.0)), carriers) > 0


def _joined(lines: NumberedLines, most: int, carriers: Layers) -> tuple[NumberedLines, Mapping[int, str]]:
    whole: list[tuple[int, str]] = []
    firsts: dict[int, str] = {}
    rows = 0
    for number, raw in lines:
        if 0 < rows < _MOST_ROWS and number == whole[-1][0] + rows and not _own(raw, carriers):
            start, text = whole[-1]
            firsts.setdefault(start, text)
            whole[-1] = start, text.rstrip("\r") + raw
            rows += 1
        else:
            whole.append((number, raw))
            rows = 0 if _DRAWN.match(raw) else 1
        if len(raw) < most:
            rows = 0
    return whole, firsts


def _own(raw: str, carriers: Layers) -> bool:
    """Whether a line begins as none does that goes on with the one above."""
    return _OWN.match(raw) is not None or _prefixed(raw, carriers)
