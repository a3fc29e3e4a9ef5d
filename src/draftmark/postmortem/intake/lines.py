"""Raw lines of a source → `Line`s: cleaned, split at carriage returns, joined where a runtime cut them, peeled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from draftmark.postmortem.intake.carriers import name_unit
from draftmark.postmortem.intake.clean import clean, parts, printable
from draftmark.postmortem.intake.clock import Calendar
from draftmark.postmortem.intake.entries import Entry
from draftmark.postmortem.intake.head import Head
from draftmark.postmortem.intake.layer import Lazy
from draftmark.postmortem.intake.limits import Hints, Limits
from draftmark.postmortem.intake.peel import AMBIGUOUS, Layers, looks_like, peel
from draftmark.postmortem.intake.structured import entry_texts, is_logfmt, logfmt, record
from draftmark.postmortem.intake.viewers import unquoted
from draftmark.postmortem.model import Line

NumberedLines = Sequence[tuple[int, str]]

_RECORD_STARTS = frozenset("{tl")
_RECORDS_DEEP = 3
_JOINED_CHARS = 1 << 18
_SAMPLE = 100
_DATES = 5000  # are enough to tell a year by
_NO_FIRSTS: Mapping[int, str] = {}
_WIDTHS = range(40, 400)  # of terminals
_FULL_LINES = 8
_NEAR = 4  # columns
_MOST = 0.6
_LABELLED = 0.3  # are enough where Slurm says that the step is its own
_SLURM = Lazy(r"(?:slurmstepd|slurmd|srun|sbatch|salloc)(?:-[\w.-]{1,64})?: ")
_RANK_AT_END = re.compile(r" rank=(\d{1,5})\s{0,4}\Z")


class Habits(NamedTuple):
    """What only counts as a prefix or an end because most lines of a source have it.

    Attributes:
        carriers: Ambiguous ones.
        closed: Lines that a bar stands before also end with one.
    """

    carriers: Layers = ()
    closed: bool = False


class LineReader:
    """Turns the raw lines of one source into `Line`s, in order.

    Args:
        name: Of the source.
        calendar: Guesses years.
        habits: What most lines of this source have (`habits_of`).
        hints: What must stay visible in a line that is too long to be shown whole.
        limits: Widths.
    """

    def __init__(self, name: str, calendar: Calendar, habits: Habits, hints: Hints, limits: Limits) -> None:
        self.name = name
        self.dates: list[float] = []
        self._calendar = calendar
        self._closed = habits.closed
        self._ambiguous = habits.carriers
        self._hints = hints.literals
        self._limits = limits
        self._width = limits.line_chars
        self._cut: dict[str, tuple[int, str, Head, str]] = {}  # per stream: number, raw, head, text so far
        self._out: list[Line] = []

    def read(self, lines: Iterable[tuple[int, str]], firsts: Mapping[int, str] = _NO_FIRSTS) -> tuple[Line, ...]:
        """Every `Line` of the numbered raw lines; those that were put together are shown by their `firsts` rows."""
        for number, raw in lines:
            for piece in parts(clean(raw)):
                shown = clean(firsts[number]) if firsts and number in firsts else piece
                self._piece(number, shown, piece, Head(self._calendar), 0)
        return self._all()

    def read_entries(self, entries: Iterable[Entry]) -> tuple[Line, ...]:
        """Every `Line` of records that were parsed already."""
        for number, raw, entry in entries:
            head = Head(self._calendar)
            texts = entry_texts(entry, head)
            if texts is not None:
                self._texts(number, clean(raw), texts, head, 0)
        return self._all()

    def _all(self) -> tuple[Line, ...]:
        for number, raw, head, text in self._cut.values():
            self._finished(number, raw, head, text)
        out, self._out, self._cut = self._out, [], {}
        return tuple(out)

    def _piece(self, number: int, raw: str, text: str, head: Head, depth: int) -> None:
        at = peel(text, head, self._ambiguous)
        rest = text[at:] if at else text
        if head.around:
            rest = self._inside(rest, head)
        if rest[:1] in _RECORD_STARTS and depth < _RECORDS_DEEP and (texts := _record(rest, head)) is not None:
            self._texts(number, raw, texts, head, depth)
        elif head.stream and (head.partial or head.stream in self._cut):
            self._join(number, raw, head, rest)
        else:
            self._finished(number, raw, head, rest)

    def _inside(self, text: str, head: Head) -> str:
        """Without the end of what a viewer put around a line."""
        if head.around == '"':
            return unquoted(text)
        return text.rstrip().removesuffix("|").rstrip(" ") if self._closed else text

    def _texts(self, number: int, raw: str, texts: list[str], head: Head, depth: int) -> None:
        """The texts of one record, each with what the record says of itself."""
        for inner in texts:
            for part in parts(clean(inner)):
                shown = part if part and part in raw else raw  # a JSON record as a whole is hard to read
                self._piece(number, shown, part, head.copy(), depth + 1)

    def _join(self, number: int, raw: str, head: Head, text: str) -> None:
        """A runtime cuts long lines: what it cut is put together again."""
        number, raw, first, before = self._cut.pop(head.stream, (number, raw, head, ""))
        whole = before + text
        if head.partial and len(whole) < _JOINED_CHARS:
            self._cut[head.stream] = (number, raw, first, whole)
        else:
            self._finished(number, raw, first, whole)

    def _finished(self, number: int, raw: str, head: Head, text: str) -> None:
        if head.dated is not None:
            self.dates.append(head.dated)
        if head.ident:
            name_unit(text, head)
        if not head.actor and " rank=" in text[-12:] and (match := _RANK_AT_END.search(text[-16:])):
            head.act(f"rank{match[1]}")
        raw = self._shown(raw)
        if len(text) <= self._width:
            self._add(number, raw, head, text)
            return
        self._add(number, raw, head, text[: self._width])
        for window in windows(text, self._width, self._hints, self._width):
            self._add(number, printable(window, self._limits.raw_chars), head, window)

    def _shown(self, raw: str) -> str:
        """The start of a raw line, and of a long one that has its first hint later, what surrounds that."""
        width = self._limits.raw_chars
        if len(raw) > width and not any(hint in raw[:width] for hint in self._hints):
            first = min((at for hint in self._hints if (at := raw.find(hint, width - 200)) >= 0), default=-1)
            if first >= 0:
                raw = f"{raw[:200]} … {raw[max(first - 200, 200) : first + width - 500]}"
        return printable(raw, width)

    def _add(self, number: int, raw: str, head: Head, text: str) -> None:
        self._out.append(
            Line(
                self.name,
                number,
                text,
                raw,
                head.time,
                head.clock,
                head.stamp,
                head.ident,
                head.actor,
                head.pid,
                head.level,
                head.unit,
                head.host,
                head.fields,
            )
        )


def _record(text: str, head: Head) -> list[str] | None:
    """The texts of a JSON or logfmt record; None when it is none."""
    if text[0] == "{":
        return record(text, head) if text.rstrip()[-1:] == "}" else None
    if is_logfmt(text):
        flat = logfmt(text, head)
        return None if flat is None else flat.split("\n")
    return None


def windows(text: str, start: int, hints: tuple[str, ...], width: int) -> list[str]:
    """What surrounds the hints that `text` holds after `start`: a few pieces of at most `width` characters."""
    before, after, most = 500, min(3000, width - 500), 20
    places: set[int] = set()
    for hint in hints:
        at = text.find(hint, start)
        while at >= 0 and len(places) < 1000:
            places.add(at)
            at = text.find(hint, at + after)
    pieces: list[str] = []
    reached = start
    for at in sorted(places):
        if at >= reached and len(pieces) < most:
            pieces.append(text[max(at - before, reached) : at + after])
            reached = at + after
    return pieces


def sample(lines: NumberedLines) -> NumberedLines:
    """Some lines of the beginning and of the end."""
    return lines if len(lines) <= 2 * _SAMPLE else [*lines[:_SAMPLE], *lines[-_SAMPLE:]]


def habits_of(lines: NumberedLines, calendar: Calendar) -> Habits:
    """What most of the lines have. Slurm's own have no label and are not counted."""
    counts = dict.fromkeys(AMBIGUOUS, 0)
    pods: set[str] = set()
    total = slurm = closed = 0
    for _, raw in sample(lines):
        text = clean(raw)
        rest = text[peel(text[:1000], Head(calendar)) :]
        if not rest.strip():
            continue
        if rest[0] == "s" and _SLURM.match(rest, 0):
            slurm += 1
            continue
        total += 1
        closed += rest.rstrip()[-1:] == "|"
        found = looks_like(rest[:1000])
        pods.update(rest.split(" ", 1)[:1] if "stern" in found else ())
        for carrier in found:
            counts[carrier] += 1
    least = {"task": _LABELLED} if slurm else {}
    common = [name for name, count in counts.items() if total >= 3 and count >= least.get(name, _MOST) * total]
    carriers = tuple(AMBIGUOUS[name] for name in common if name != "stern" or len(pods) <= 16)
    return Habits(carriers, closed=total >= 3 and closed >= _MOST * total)


def full_width(lines: NumberedLines) -> int:
    """The length that many lines have, none exceeds and few come near: a terminal's width, it may be; else 0."""
    lengths = [len(raw) for _, raw in lines]
    most = max(lengths, default=0)
    if most not in _WIDTHS:
        return 0
    full = lengths.count(most)
    if full < _FULL_LINES or len(lines) - full < _FULL_LINES:
        return 0
    return 0 if full <= 2 * sum(map(lengths.count, range(most - _NEAR, most))) else most


def anchor_of(sources: Iterable[NumberedLines], hints: Hints, limits: Limits) -> float | None:
    """A moment that some line of the sources was dated with in full: what other lines' years are guessed by."""
    dates: list[float] = []
    for lines in sources:
        reader = LineReader("", Calendar(), Habits(), hints, limits)
        reader.read(sample(lines))
        dates.extend(reader.dates)
        if len(dates) > _DATES:
            break
    return sorted(dates)[(len(dates) - 1) // 2] if dates else None
