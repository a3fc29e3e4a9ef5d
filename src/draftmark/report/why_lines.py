"""Log lines made short without losing what they prove."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.cells import cell_len

# What makes a line a proof, in the words of kernels, supervisors, runtimes and engines. Only for choosing which
# part of a long line is shown; what a line means is decided elsewhere.
_STRONG = (
    r"killed process \d+|out of memory|oom[-_ ]?kill\w*|oomkilled|CONSTRAINT_\w+|due to memory pressure",
    r"timed out|failed with result '[^']*'|status=\d+/\w+|code=\w+|too quickly|signal SIG\w+",
    r"\bsig(?:kill|term|quit|segv|abrt|bus|int)\b|\[Errno \d+\]|\bxid\b[^,;]{0,30}|\billegal \w+",
    r"cannot open shared object|undefined symbol|no space left|already in use|too many open files",
    r"memory leak detected|segmentation fault|bus error|core dumped|\babort\w*|\bassert\w*",
    r"\b(?:failed|will be restarted|evicted)\b|(?-i:\b\w[\w.]*(?:Error|Exception|Timeout|Refused)\b)",
)
_WEAK = (
    r"\b(?:kill\w*|timeout|error|exit\w*|signal|memory|not enough|larger than|unsupported|denied|refused|fatal)\b"
)
_TELLING = re.compile(f"(?P<strong>{'|'.join(_STRONG)})|(?P<weak>{_WEAK})", re.IGNORECASE)
Marker = Callable[[str], "tuple[int, int] | None"]
"""Where in a line the proof is, if the tables of signs know it."""

_Span = tuple[int, int, int]
_PROOF = 16
_WEIGHT = {"strong": 4, "weak": 1}
_SAID = re.compile(r"'([^']{4,})'|`([^`]{4,})`|\b(\d[\d.,_]*\d)\b")
_CLOCK = re.compile(r"\d{1,2}:\d{2}:\d{2}")
_LONG_WORD = re.compile(r"\S{36,}")
_HEAD, _TAIL = 14, 18
_STAMP_WITHIN = 80
"""Characters: a stamp further in belongs to the message."""


@dataclass(frozen=True, slots=True)
class Stamped:
    """A line taken apart for display.

    Attributes:
        date: What stands before the clock; empty if there is none.
        clock: `17:50:27`, or the whole stamp of another clock.
        text: The rest of the line, without the stamp.
    """

    date: str
    clock: str
    text: str


def without_stamp(text: str, stamp: str | None) -> Stamped:
    """The line's time and what else it says; the time only once."""
    text = text.strip()
    if not stamp:
        return Stamped("", "", text)
    found = _CLOCK.search(stamp)
    date, clock = (stamp[: found.start()].strip(" T[("), found[0]) if found else ("", stamp)
    at = text.find(stamp)
    if not 0 <= at <= _STAMP_WITHIN:
        return Stamped(date, clock, text)
    before, after = text[:at].strip(), text[at + len(stamp) :].lstrip()
    if before.endswith(("[", "(")):
        opening, before = before[-1], before[:-1].rstrip()
        closed = after.startswith(("]", ")"))
        after = after[1:].lstrip() if closed else f"{opening}{after}"
    return Stamped(date, clock, f"{before} {after.lstrip(' ,;')}".strip())


def said_in(sentence: str) -> tuple[str, ...]:
    """What a summary quotes: figures of two digits and more, and words in quotes."""
    return tuple({next(filter(None, match.groups())) for match in _SAID.finditer(sentence)})


def no_marker(_text: str) -> None:
    """Of a verdict that comes without tables."""
    return


def fitted(text: str, room: int, *, quoted: Iterable[str] = (), marker: Marker = no_marker, more: str = "…") -> str:
    """The text in at most `room` cells, its telling part kept.

    Args:
        text: One line.
        room: Cells.
        quoted: Further words that must not be cut away if they are there (`said_in` the summary).
        marker: Where the proof is: it stays whatever else goes.
        more: The sign for what was cut.
    """
    if cell_len(text) <= room:
        return text
    text = _LONG_WORD.sub(lambda word: _squeezed(word[0], quoted, more), text)
    if cell_len(text) <= room:
        return text
    # A wide character takes two cells; to be on the safe side each may. The sums alone do not tell: characters of
    # no width (control characters, combining marks) make up for wide ones.
    wide = not text.isascii() and any(cell_len(character) > 1 for character in set(text))
    room = max(len(more), (room - 2 * cell_len(more)) // 2 if wide else room)
    return _best(text, _telling(text, quoted, marker), room, more)


def _best(text: str, spans: list[_Span], room: int, more: str) -> str:
    """One window, or head and tail: whichever has more of what tells; the ends of a line if they have as much."""
    head = (room - len(more)) * 2 // 5
    tail = len(text) - (room - len(more) - head)
    ends = sum(w for a, b, w in spans if b <= head or a >= tail or (b - a > room and (a < head or b > tail)))
    start, weight = _window(text, spans, room - 2 * len(more))
    if ends >= weight:
        return f"{text[:head]}{more}{text[tail:]}"
    if start + room >= len(text):
        return more + text[len(text) - room + len(more) :]
    if start <= len(more):
        return text[: room - len(more)] + more
    return more + text[start : start + room - 2 * len(more)] + more


def _squeezed(word: str, quoted: Iterable[str], more: str) -> str:
    """A path, an address, a hash: its ends tell what it is. A word that tells of a failure is left whole."""
    if _TELLING.search(word) or any(said in word for said in quoted if 4 <= len(said) <= _HEAD):
        return word
    return f"{word[:_HEAD]}{more}{word[-_TAIL:]}"


def _telling(text: str, quoted: Iterable[str], marker: Marker) -> list[_Span]:
    """Start, end and weight of what must stay in view."""
    spans = [(*match.span(), _WEIGHT[match.lastgroup or "weak"]) for match in _TELLING.finditer(text)]
    for word in quoted:
        at = text.find(word)
        if at >= 0:
            spans.append((at, at + len(word), 2))
    if proof := marker(text):
        spans.append((*proof, _PROOF))
    return sorted(spans)


def _window(text: str, spans: list[_Span], room: int) -> tuple[int, int]:
    """Where to begin, so that the spans in view weigh most; as far left as that allows. And their weight."""
    best, start = 0, 0
    for begin, _, _ in [(0, 0, 0), *spans]:
        # Some of what stands before it, to be understood.
        first = max(0, begin - room // 4)
        weight = sum(w for a, b, w in spans if a >= first and min(b, a + room // 2) <= first + room)
        if weight > best:
            best, start = weight, first
    return min(start, max(0, len(text) - room)), best
