"""Takes the prefixes off a line, layer by layer, whoever put them there."""

from __future__ import annotations

from draftmark.postmortem.intake import carriers as c
from draftmark.postmortem.intake import loggers as g
from draftmark.postmortem.intake import viewers as v
from draftmark.postmortem.intake.head import Head
from draftmark.postmortem.intake.layer import Layer

MAX_LAYERS = 10
Layers = tuple[Layer, ...]

_DIGIT: Layers = (c.ISO, g.LLAMA, c.UNIX, c.MONTH_FIRST, c.KERNEL_RECORD, v.MILLIS)
_BRACKET_DIGIT: Layers = (g.BRACKET_DATE, c.KERNEL_SECONDS, g.AMERICAN, c.MPI)
_BRACKET_BLANK: Layers = (c.KERNEL_SECONDS, c.KERNEL_DELTA)
_BRACKET_WORD: Layers = (
    *(g.RANK, g.C10D, c.KERNEL_DATE, g.TENSORRT, c.KUBECTL, g.BRACKET_WORD, c.KERNEL_MINUTE, g.GIN, c.MPI),
)
_ANGLE: Layers = (c.RFC5424, c.PRIORITY)
_ROUND: Layers = (g.PROCESS, g.RAY, g.RAYLET)
_LEVEL: Layers = (c.CLOUD, g.VLLM, g.UVICORN, g.BASIC)
_GLOG: Layers = (g.GLOG,)
_DATE: Layers = (c.MONTH_FIRST, c.WEEKDAY_ISO)
_SPELLED: Layers = (v.SPELLED, *_DATE)
_QUOTE: Layers = (v.QUOTE,)
_BAR: Layers = (v.BAR,)
_FACILITY: Layers = (c.KERNEL_FACILITY,)
_NAMED: Layers = (g.NCCL, c.COMPOSE)
_LEVELS = frozenset(("TRA", "DEB", "INF", "NOT", "WAR", "ERR", "CRI", "FAT", "DEF", "ALE", "EME"))
_FACILITIES = frozenset(("ker", "use", "dae", "sys", "aut", "loc"))

AMBIGUOUS = {"compose": c.COMPOSE_ANY, "task": c.TASK, "stern": c.STERN}
"""Prefixes that look like ordinary text: they count as such only where most lines of a source have them."""


def _layers(text: str, at: int) -> Layers:
    """The layers that may start here, by the first characters."""
    first = text[at]
    if "0" <= first <= "9":
        return _DIGIT
    if first == "[":
        second = text[at + 1 : at + 2]
        if "0" <= second <= "9":
            return _BRACKET_DIGIT
        return _BRACKET_BLANK if second == " " else _BRACKET_WORD
    if first == "(":
        return _ROUND
    if first == "<":
        return _ANGLE
    if first == " ":
        return _DATE if text[at + 1 : at + 3].strip()[:1].isdigit() else ()
    if first == '"':
        return _QUOTE
    if first == "|":
        return _BAR
    return _word_layers(text, at, first) if first.isalpha() else ()


def _word_layers(text: str, at: int, first: str) -> Layers:
    start = text[at : at + 3]
    if start in _LEVELS:
        return _LEVEL
    if first in "EWIF" and start[1:2].isdigit():
        return _GLOG
    if start in _FACILITIES:
        return _FACILITY
    blank = text.find(" ", at, at + 14)
    if blank < 0 or not text[blank + 1 : blank + 3].strip()[:1].isdigit():
        return ()
    return _SPELLED if " 20" in text[blank + 2 : blank + 9] else _DATE


def peel(text: str, head: Head, ambiguous: Layers = ()) -> int:
    """Where the text itself starts; what the prefixes say is noted in `head`."""
    at, end = 0, len(text)
    named: Layers = _NAMED if "|" in text or "NCCL " in text else ()
    for _ in range(MAX_LAYERS):
        if at >= end:
            return end
        for layer in _layers(text, at) + named + ambiguous:
            match = layer.match(text, at)
            if match and (after := layer.note(match, head)) > at:
                at = after
                break
        else:
            return at
        if layer in ambiguous:
            ambiguous = ()
    return min(at, end)


def looks_like(text: str) -> set[str]:
    """Which of the ambiguous carriers a line could be from."""
    found = set()
    for name, layer in AMBIGUOUS.items():
        match = layer.match(text, 0)
        if match and (name != "stern" or ("-" in match[1] and any(map(str.isdigit, match[1])))):
            found.add(name)
    return found
