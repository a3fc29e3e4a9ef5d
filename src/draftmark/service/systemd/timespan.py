"""Time spans as systemd writes and reads them: `1min 30s`, `2.5h`, `infinity` (systemd.time(7))."""

from __future__ import annotations

import math
import re

_YEAR_S = 365.25 * 86400
_UNITS = {
    1e-6: ("usec", "us", "µs", "μs"),
    1e-3: ("msec", "ms"),
    1.0: ("seconds", "second", "sec", "s", ""),
    60.0: ("minutes", "minute", "min", "m"),
    3600.0: ("hours", "hour", "hr", "h"),
    86400.0: ("days", "day", "d"),
    7 * 86400.0: ("weeks", "week", "w"),
    _YEAR_S / 12: ("months", "month", "M"),
    _YEAR_S: ("years", "year", "y"),
}
_SECONDS = {name: seconds for seconds, names in _UNITS.items() for name in names}
_PART = re.compile(r"\s*(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})\s*([A-Za-zµμ]*)", re.ASCII)
_NEVER = 2**64 - 1


def seconds(text: str) -> float:
    """A time span in seconds, `math.inf` for `infinity`; a bare number is seconds, as in a unit file.

    Raises:
        ValueError: It is none.
    """
    return _parsed(text, bare="s")


def seconds_of_property(text: str) -> float:
    """The value of a property whose name ends in `USec`: a bare number is microseconds, as on the bus.

    Raises:
        ValueError: It is none: empty, or `[not set]`.
    """
    return _parsed(text, bare="us")


def span(duration_s: float) -> str:
    """A time span for a unit file, rounded up to whole seconds."""
    return "infinity" if math.isinf(duration_s) else f"{math.ceil(duration_s)}s"


def _parsed(text: str, *, bare: str) -> float:
    text = text.strip()
    if text == "infinity" or text == str(_NEVER):
        return math.inf
    total, at = 0.0, 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or match.end() == at:
            raise ValueError(f"not a time span: {text[:60]!r}")
        number, unit = match.groups()
        if (unit or bare) not in _SECONDS:
            raise ValueError(f"not a unit of time: {unit[:20]!r}")
        total += float(number) * _SECONDS[unit or bare]
        at = match.end()
    if not text:
        raise ValueError("an empty time span")
    return total
