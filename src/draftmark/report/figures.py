"""Numbers and foreign text made fit to read, the same in every kind of report.

An unknown figure is a dash and never a 0: a 0 would be read as a measurement.
"""

from __future__ import annotations

import unicodedata

DASH = "\u2013"
UNKNOWN = DASH


def rate(tok_s: float | None) -> str:
    """Tokens per second: `44.1`, `1,234`, `0.35`."""
    if tok_s is None:
        return UNKNOWN
    if abs(tok_s) >= 1000:
        return f"{tok_s:,.0f}"
    return f"{tok_s:.1f}" if abs(tok_s) >= 1 or tok_s == 0 else f"{tok_s:.2g}"


def ratio(value: float | None) -> str:
    """A ratio to the baseline: `1.55x`."""
    return UNKNOWN if value is None else f"{value:.2f}x"


def span(low: float | None, high: float | None) -> str:
    """The bounds of an interval: `1.43` dash `1.68`."""
    return UNKNOWN if low is None or high is None else f"{_bound(low)}{DASH}{_bound(high)}"


def _bound(value: float) -> str:
    """Two decimals; more where rounding would put a bound on 1, since which side it lies on is what matters."""
    decimals = 2
    while value != 1 and float(f"{value:.{decimals}f}") == 1 and decimals < 6:
        decimals += 1
    return f"{value:.{decimals}f}"


def length(tokens: float | None) -> str:
    """Accept length, tokens per step: `3.50`."""
    return UNKNOWN if tokens is None else f"{tokens:.2f}"


def millis(ms: float | None) -> str:
    """Milliseconds without the unit, three figures or so: `23.2`, `410`."""
    if ms is None:
        return UNKNOWN
    if abs(ms) >= 100:
        return f"{ms:,.0f}"
    return f"{ms:.1f}" if abs(ms) >= 1 or ms == 0 else f"{ms:.2g}"


def seconds(value: float | None) -> str:
    """Seconds without the unit, to a tenth: `13.1`."""
    return UNKNOWN if value is None else f"{value:,.1f}"


def count(value: float | None) -> str:
    """A number of things: `13`, `12,345`."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """A share of one: `2 %`, `2.1 %`."""
    return UNKNOWN if share is None else f"{100 * share:.1f}".removesuffix(".0") + " %"


def duration(value: float | None) -> str:
    """Seconds for people: `8.4 s`, `3 min 30 s`, `1 h 05 min`."""
    if value is None:
        return UNKNOWN
    if value < 59.95:
        return f"{value:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def plural(number: float | None, noun: str) -> str:
    """`1 trial`, `3 trials`; a dash when the number is unknown."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def visible(text: str) -> str:
    r"""Foreign text with its invisible characters written out.

    Log lines and command lines come from elsewhere. An escape sequence would drive the reader's terminal, and
    a direction override would reorder the line on the page, so both are shown as `\x1b` and `\u202e`.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if char in "\t\n":
        return " "
    if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return char
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
