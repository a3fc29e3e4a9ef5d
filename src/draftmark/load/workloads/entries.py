"""JSON Lines, or one JSON list, as entries with their places; read as it goes, whatever the file's size."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from draftmark.errors import BadInputError
from draftmark.load.files import MAX_LINE_BYTES, Purpose, bad_line, lines


@dataclass(frozen=True, slots=True)
class Entry:
    """One parsed entry of a file.

    Attributes:
        line: Where it begins, from 1.
        number: Which entry it is, from 1; for JSON Lines its line.
        value: As parsed.
        raw: As written.
    """

    line: int
    number: int
    value: object
    raw: str


def entries(path: Path, pieces: Iterator[str], purpose: Purpose) -> Iterator[Entry]:
    """The entries of a file's text.

    Raises:
        BadInputError: Something in it is no JSON, or over 8 MiB; with its line.
    """
    next_step = f"each entry should be {purpose.forms}"
    blank = []
    for piece in pieces:
        if not piece.strip():
            blank.append(piece)
            continue
        text = _again("".join(blank) + piece, pieces)
        if piece.lstrip().startswith("["):
            yield from _List(path, text, next_step).entries()
        else:
            yield from _line_entries(path, lines(path, text), next_step)
        return


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _line_entries(path: Path, numbered: Iterator[tuple[int, str]], next_step: str) -> Iterator[Entry]:
    for number, line in numbered:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise bad_line(path, number, _why(error), line, next_step) from None
        yield Entry(number, number, value, line)


class _List:
    """A JSON list, of which only the entry being read is held."""

    def __init__(self, path: Path, pieces: Iterator[str], next_step: str) -> None:
        self._path = path
        self._pieces = pieces
        self._next_step = next_step
        self._text = ""
        self._at = 0
        self._line = 1  # of `_text[_counted]`
        self._counted = 0
        self._whole = True  # `_text` begins where the file does

    def entries(self) -> Iterator[Entry]:
        """Entry by entry, to the end of the list."""
        self._expect("[")
        number = 0
        while self._peek() != "]":
            if number:
                self._expect(",", "',' or ']' expected")
                self._peek()
            number += 1
            yield self._entry(number)
        self._at += 1
        if self._peek():
            raise self._wrong("not JSON: text after the end of the list")

    def _entry(self, number: int) -> Entry:
        decoder = json.JSONDecoder()
        while True:
            begin = self._at
            line = self._line_here()
            try:
                value, end = decoder.raw_decode(self._text, begin)
            except json.JSONDecodeError as error:
                # it may only be that the rest of the entry was not read yet
                if len(self._text) - begin <= MAX_LINE_BYTES and self._more():
                    continue
                raise self._wrong(self._why(error, begin), error.pos) from None
            except (ValueError, RecursionError) as error:
                raise self._wrong(_why(error)) from None
            if end == len(self._text) and isinstance(value, int | float) and self._more():
                continue  # a number, whose last digits may not be read yet
            if end - begin > MAX_LINE_BYTES:
                raise self._wrong("an entry over the limit of 8 MiB", raw=False)
            self._at = end
            return Entry(line, number, value, self._text[begin:end])

    def _peek(self) -> str:
        """The next character that is no space; empty at the end of the file."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in " \t\r\n":
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def _expect(self, character: str, why: str = "") -> None:
        if self._peek() != character:
            raise self._wrong(f"not JSON: {why}")
        self._at += 1

    def _more(self) -> bool:
        """Read on, at least as much again as is held, and let go of what was used."""
        self._line_here()
        held = [self._text[self._at :]]
        wanted = max(1, len(held[0]))
        for piece in self._pieces:
            held.append(piece)
            wanted -= len(piece)
            if wanted <= 0:
                break
        self._whole = self._whole and self._at == 0
        self._text = "".join(held)
        self._at = self._counted = 0
        return len(held) > 1

    def _why(self, error: json.JSONDecodeError, begin: int) -> str:
        if error.pos - begin > MAX_LINE_BYTES:
            return "an entry over the limit of 8 MiB"
        # where the beginning of the line is not held any more, its columns cannot be counted
        return _why(error) if self._whole or "\n" in self._text[: error.pos] else f"not JSON: {error.msg}"

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _wrong(self, why: str, at: int | None = None, *, raw: bool = True) -> BadInputError:
        place = self._at if at is None else at
        line = self._line_here() + self._text.count("\n", self._at, place)
        begin = self._text.rfind("\n", 0, place) + 1
        shown = self._text[begin : begin + 400].split("\n")[0]
        return bad_line(self._path, line, why, shown if raw else "", self._next_step)


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "not JSON: nested too deeply"
    return f"a number of more than {sys.get_int_max_str_digits()} digits"
