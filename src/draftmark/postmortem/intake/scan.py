"""Reads the bytes of one source once and keeps the lines that matter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftmark.postmortem.intake.limits import Hints, Limits
from draftmark.postmortem.intake.matcher import matcher

OPENING = b"Traceback (most recent call last)"
_LINE_BYTES = 1 << 15
_RECORD_BYTES = 1 << 18
_PIECE = 1 << 14
_BEFORE, _AFTER = 500, 4000


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was kept of a source's bytes.

    Attributes:
        lines: Numbered, decoded, in order. A line too long to be kept whole gives several pieces of one number.
        flooded: Hints that came so often that only their first and last lines were kept.
    """

    lines: tuple[tuple[int, str], ...]
    total_lines: int
    size_bytes: int
    flooded: tuple[str, ...] = ()


def scan(blocks: Iterable[bytes], hints: Hints, limits: Limits) -> Scanned:
    """Keeps all of a small source; of a large one head, tail, the lines with a hint, and what belongs to them."""
    blocks = iter(blocks)
    start: list[bytes] = []
    size = 0
    for block in blocks:
        start.append(block)
        size += len(block)
        if size > limits.whole_bytes:
            return _selected(b"".join(start), blocks, hints, limits)
    data = b"".join(start)
    if data.count(b"\n") > limits.whole_lines:
        return _selected(data, blocks, hints, limits)
    texts = data.decode("utf-8", "replace").split("\n")
    if not texts[-1]:
        texts.pop()
    if max(map(len, texts), default=0) <= _LINE_BYTES:
        return Scanned(tuple(enumerate(texts, 1)), len(texts), size)
    literals = literals_of(hints)
    lines = tuple((number, piece) for number, text in enumerate(texts, 1) for piece in _pieces(text, literals))
    return Scanned(lines, len(texts), size)


def _selected(start: bytes, rest: Iterable[bytes], hints: Hints, limits: Limits) -> Scanned:
    from draftmark.postmortem.intake.selection import Selection

    literals = literals_of(hints)
    selection = Selection(literals, limits)
    selection.read(start)
    for block in rest:
        selection.read(block)
    lines = tuple(
        (number, piece.decode("utf-8", "replace")) for number, pieces in selection.finish() for piece in pieces
    )
    flooded = tuple(literal.decode() for literal in selection.flooded())
    return Scanned(lines, selection.total_lines, selection.size_bytes, flooded)


def literals_of(hints: Hints) -> tuple[bytes, ...]:
    """The hints as bytes, and the head of a traceback, which is always one."""
    words = (OPENING, *(literal.encode("utf-8", "replace") for literal in hints.literals if literal))
    return tuple(dict.fromkeys(word for word in words if b"\n" not in word))


def _pieces(text: str, literals: tuple[bytes, ...]) -> list[str]:
    if len(text) <= _LINE_BYTES:
        return [text]
    return [piece.decode("utf-8", "replace") for piece in clipped(text.encode(), literals)]


def clipped(line: bytes, literals: tuple[bytes, ...]) -> list[bytes]:
    """A line, in pieces where it is too long: its start, what surrounds the hints in it, its end.

    A JSON record is left whole up to a larger size, for it cannot be read in pieces.
    """
    if len(line) <= _LINE_BYTES or (len(line) <= _RECORD_BYTES and b'{"' in line[:200]):
        return [line]
    middle = surroundings(line, _PIECE, len(line) - _PIECE, literals)
    return [line[:_PIECE], *middle, line[-_PIECE:]]


def surroundings(line: bytes, start: int, end: int, literals: tuple[bytes, ...], most: int = 20) -> list[bytes]:
    """Up to `most` windows around the literals in a part of a long line."""
    places: set[int] = set()
    # One pass says which of the hundreds stand in it at all.
    for literal in (literals[index] for index in matcher(literals)(memoryview(line)[start:end])):
        at = line.find(literal, start, end)
        while at >= 0 and len(places) < 1000:
            places.add(at)
            at = line.find(literal, at + _AFTER, end)
    pieces: list[bytes] = []
    reached = start
    for at in sorted(places):
        if at >= reached and len(pieces) < most:
            pieces.append(line[max(at - _BEFORE, reached) : at + _AFTER])
            reached = at + _AFTER
    return pieces


class LongLine:
    """A line that does not end: its start, its end, and what surrounds the hints between them."""

    def __init__(self, literals: tuple[bytes, ...]) -> None:
        self._literals = literals
        self._overlap = max((len(literal) for literal in literals), default=1)
        self._start = b""
        self._end = b""
        self._middle: list[bytes] = []

    def add(self, part: bytes) -> None:
        """The next bytes of the line."""
        if len(self._start) < _PIECE:
            taken = _PIECE - len(self._start)
            self._start += part[:taken]
            part = part[taken:]
        room = 20 - len(self._middle)
        if room > 0:
            seen = self._end[-self._overlap :] + part
            self._middle += surroundings(seen, 0, len(seen), self._literals, room)
        self._end = (self._end + part)[-_PIECE:]

    def pieces(self) -> list[bytes]:
        """What is kept of it."""
        return [piece for piece in (self._start, *self._middle, self._end) if piece]
