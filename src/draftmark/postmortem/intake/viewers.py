"""What log viewers and exports put around a line: Kibana, Grafana, CloudWatch, tables with bars, quoted cells."""

from __future__ import annotations

import re

from draftmark.postmortem.intake.clock import day_start, fraction, month_number, seconds_of_day
from draftmark.postmortem.intake.head import LEVELS, Head
from draftmark.postmortem.intake.layer import Layer, Lazy

_OPEN_BAR = Lazy(r"[ \t]{1,3}\|(?: |$)")
_LEVEL_COLUMN = Lazy(r"(TRACE|DEBUG|INFO|NOTICE|SUCCESS|WARNING|WARN|ERROR|CRITICAL|FATAL) {0,8}\|(?: |$)")
_PLACE = Lazy(r"[\w.<>/-]{1,200}:[\w.<>]{1,200}:\d{1,6} - ")  # loguru's name:function:line
_QUOTED_CELL = Lazy(r'"?,"')
_BARE_CELL = Lazy(r'"?,(?=[^\s\d"])')
_STREAM = Lazy(r" ([\w.-]{1,200}/[\w.-]{1,200}/[0-9a-f]{32})(?: |$)")


def bars(line: str, at: int, head: Head) -> int:
    """` | ` after a date, and the level and place that loguru writes behind it; -1 when there is no bar."""
    match = _OPEN_BAR.match(line, at)
    if match is None:
        return -1
    head.around = "|"
    after = match.end()
    if level := _LEVEL_COLUMN.match(line, after):
        head.level = LEVELS.get(level[1], "I")
        after = level.end()
    place = _PLACE.match(line, after)
    return place.end() if place else after


def cell(line: str, at: int, head: Head) -> int:
    """The comma of a CSV export between a date and the text; -1 when there is none."""
    if match := _QUOTED_CELL.match(line, at):
        head.around = '"'
        return match.end()
    match = _BARE_CELL.match(line, at)
    return match.end() if match else -1


def unquoted(text: str) -> str:
    """A quoted cell's content."""
    return text.rstrip().removesuffix('"').replace('""', '"')


def tabbed(line: str, at: int) -> int:
    """Behind a tab. A blank behind it is the viewer's, unless it belongs to an indentation, which is even."""
    after = at + 1
    return after + _blanks(line, after) % 2


def _blanks(line: str, at: int) -> int:
    end = at
    while line[end : end + 1] == " ":
        end += 1
    return end - at


def stream(line: str, at: int, head: Head) -> int:
    """The name of an ECS task's log stream, as `aws logs tail` writes it between date and text; -1 without one."""
    match = _STREAM.match(line, at)
    if match is None:
        return -1
    head.writer(match[1])
    return match.end()


def _spelled(match: re.Match[str], head: Head) -> int:
    month, within = month_number(match[1]), seconds_of_day(match[4])
    start = day_start(int(match[3]), month, int(match[2])) if month else None
    if start is None or within is None:
        return -1
    head.wall(start + within + fraction(match[5]), match[0])
    line, at = match.string, match.end()
    if (after := cell(line, at, head)) >= 0:
        return after
    if line[at : at + 1] == "\t":
        return tabbed(line, at)
    blanks = _blanks(line, at)  # a tab that became four, or one; the rest is the text's indentation, which is even
    return at + (1 if blanks % 2 else min(blanks, 4))


def _quote(match: re.Match[str], _head: Head) -> int:
    return match.end()


def _millis(match: re.Match[str], head: Head) -> int:
    after = cell(match.string, match.end(), head)
    if after >= 0:
        head.wall(int(match[0]) / 1e3, match[0])
    return after


SPELLED = Layer(
    r"([A-Z][a-z]{2,8}) (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})(?: @|,) (\d\d:\d\d:\d\d)(\.\d{1,9})?",
    _spelled,
)
QUOTE = Layer(r'"(?=\d{4}-\d\d-\d\d[T ]\d\d:|[A-Z][a-z]{2,8} \d{1,2}[a-z,]|1\d{12}",)', _quote)
MILLIS = Layer(r"1\d{12}(?=\"?,)", _millis)
BAR = Layer(r"\| {0,3}(?=\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:)", _quote)
