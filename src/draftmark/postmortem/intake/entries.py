"""Log records that span several lines of a file: JSON arrays, pretty-printed JSON, journald's export format."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

from draftmark.postmortem.intake.clock import epoch, fraction

Entry: TypeAlias = tuple[int, str, Mapping[str, Any]]
"""Line number, that line, and the record's fields."""

_SPACE = re.compile(r"[\s,\x1e]*")
_FIELD = re.compile(r"([A-Z_][A-Z0-9_]{0,63})=(.*)")
_MESSAGE_KEY = re.compile(r'"(?:MESSAGE|message|msg|log)"\s*:')
_START = re.compile(r"__CURSOR=|__REALTIME_TIMESTAMP=")
_VERBOSE = re.compile(r"[^\W\d_]{1,12} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) (\S{1,8}) \[s=")
_NEAR = 2000
_decoder = json.JSONDecoder()


def json_entries(text: str) -> Iterator[Entry]:
    """Of a JSON array, or of objects one after the other; ends at what is none."""
    at = _skip(text, 0)
    if text[at : at + 1] == "[":
        at = _skip(text, at + 1)
    number, counted = 1, 0
    while at < len(text):
        try:
            value, end = _decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if not isinstance(value, dict):
            return
        found = _MESSAGE_KEY.search(text, at, end)
        shown = found.start() if found else at
        number, counted = number + text.count("\n", counted, shown), shown
        yield number, _line_around(text, shown), value
        at = _skip(text, end)


def _line_around(text: str, at: int) -> str:
    """The line that holds a place, or some of it: an array may be one endless line."""
    near = max(at - _NEAR, 0)
    start = max(text.rfind("\n", near, at) + 1, near)
    end = text.find("\n", at, at + _NEAR)
    return text[start : end if end >= 0 else at + _NEAR]


def bounded(entries: Iterable[Entry], most: int) -> tuple[Entry, ...]:
    """The first and the last of a multitude."""
    stream = iter(entries)
    first = list(islice(stream, most // 2))
    return (*first, *deque(stream, maxlen=most // 2))


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _micros(stamp: str) -> str:
    seconds = epoch(stamp)
    return "" if seconds is None else str(round((seconds + fraction(stamp[19:])) * 1e6))


def is_export(lines: list[str]) -> bool:
    """Whether a text is `journalctl -o export` or `-o verbose`."""
    first = next((line for line in lines if line.strip()), "")
    return _START.match(first) is not None or _VERBOSE.match(first) is not None


def export_entries(lines: tuple[tuple[int, str], ...]) -> Iterator[Entry]:
    """Of journald's export or verbose format. Fields with binary values lose them."""
    entry: dict[str, str] = {}
    number, shown = 0, ""
    for at, raw in lines:
        line = raw.strip()
        verbose = _VERBOSE.match(line)
        if (not line or verbose) and entry:
            yield number, shown, entry
            entry, number, shown = {}, 0, ""
        if match := _FIELD.match(line):
            entry[match[1]] = match[2]
            if match[1] == "MESSAGE" or not number:
                number, shown = at, raw
        elif verbose:
            entry["__REALTIME_TIMESTAMP"] = _micros(verbose[1])
    if entry:
        yield number, shown, entry
