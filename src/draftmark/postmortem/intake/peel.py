"""Takes the prefixes off a line, layer by layer, whoever put them there."""

from __future__ import annotations

from enum import Flag, auto

from draftmark.postmortem.intake import carriers as c
from draftmark.postmortem.intake import loggers as g
from draftmark.postmortem.intake.carriers import Layer
from draftmark.postmortem.intake.head import Head

MAX_LAYERS = 10


class Carrier(Flag):
    """Prefixes that look like ordinary text: they count as such only where most lines of a source have them."""

    NONE = 0
    COMPOSE = auto()
    STERN = auto()
    TASK = auto()


_DIGIT = (c.ISO, g.LLAMA, c.UNIX, c.MONTH_FIRST, c.KERNEL_RECORD)
_BLANK = (c.MONTH_FIRST,)
_BRACKET_DIGIT = (g.BRACKET_DATE, c.KERNEL_SECONDS, g.AMERICAN, c.MPI)
_BRACKET_BLANK = (c.KERNEL_SECONDS, c.KERNEL_DELTA)
_BRACKET_WORD = (g.RANK, g.C10D, c.KERNEL_DATE, g.TENSORRT, c.KUBECTL, g.BRACKET_WORD, c.KERNEL_MINUTE, g.GIN)
_ANGLE = (c.RFC5424, c.PRIORITY)
_ROUND = (g.PROCESS, g.RAYLET)
_CAPITAL = (g.VLLM, g.UVICORN, g.BASIC, g.GLOG, c.MONTH_FIRST, c.WEEKDAY_ISO)
_LETTER = (c.MONTH_FIRST, c.WEEKDAY_ISO, c.KERNEL_FACILITY)
_NAMED = (g.NCCL, c.COMPOSE)


def _layers(text: str, at: int) -> tuple[Layer, ...]:
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
        return _BLANK if text[at + 1 : at + 2].isdigit() or text[at + 2 : at + 3].isdigit() else ()
    if "A" <= first <= "Z":
        return _CAPITAL
    return _LETTER if first.isalpha() else ()


def peel(text: str, head: Head, ambiguous: Carrier = Carrier.NONE) -> int:
    """Where the text itself starts; what the prefixes say is noted in `head`."""
    at, end = 0, len(text)
    for _ in range(MAX_LAYERS):
        if at >= end:
            break
        after = _step(text, at, head, ambiguous)
        if after <= at:
            break
        at = after
    return min(at, end)


def _step(text: str, at: int, head: Head, ambiguous: Carrier) -> int:
    for pattern, note in _layers(text, at):
        if (match := pattern.match(text, at)) and (after := note(match, head)) > at:
            return after
    window = text[at : at + 120]
    if "NCCL " in window or "|" in window:
        for pattern, note in _NAMED:
            if (match := pattern.match(text, at)) and (after := note(match, head)) > at:
                return after
    return _ambiguous(text, at, head, ambiguous) if ambiguous else -1


_AMBIGUOUS = ((Carrier.COMPOSE, c.COMPOSE_ANY), (Carrier.TASK, c.TASK), (Carrier.STERN, c.STERN))


def _ambiguous(text: str, at: int, head: Head, allowed: Carrier) -> int:
    for carrier, (pattern, note) in _AMBIGUOUS:
        if carrier in allowed and (match := pattern.match(text, at)):
            return note(match, head)
    return -1


def looks_like(text: str) -> Carrier:
    """Which of the ambiguous carriers a line could be from."""
    found = Carrier.NONE
    for carrier, (pattern, _) in _AMBIGUOUS:
        if match := pattern.match(text):
            stern = carrier is Carrier.STERN
            if not stern or ("-" in match[1] and any(map(str.isdigit, match[1]))):
                found |= carrier
    return found
