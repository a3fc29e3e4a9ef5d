"""Reads what Python prints of a value (`repr`), without running any of it: the arguments a server was started with.

Up to 0.5.17 the line holds the repr of a dataclass, `ServerArgs(model_path='…', …)`, with other dataclasses inside;
from 0.5.20 a dict, with those expanded. Both come out as the same dict of plain values. A line that was cut (by the
journal's or the container runtime's longest line, or by a copy) gives the values that were read whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_DEEPEST = 40
_NUMBER = re.compile(r"[-+]?(?:(?:\d[\d_]*+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?+|inf|nan)(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_SPACE = re.compile(r"\s*")
_STRING = re.compile(r"""[bBrRuU]{0,2}('(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")""", re.DOTALL)
_OPENS_STRING = re.compile(r"[bBrRuU]{0,2}['\"]")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NAMES: Mapping[str, object] = {
    "None": None,
    "True": True,
    "False": False,
    "nan": float("nan"),
    "inf": float("inf"),
}
_CLOSES = {"(": ")", "[": "]", "{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class Arguments:
    """A server's arguments, and whether all of them were there (`complete`) or the text was cut."""

    values: dict[str, object] = field(default_factory=dict)
    complete: bool = False


class _CutError(Exception):
    """The text ends inside a value."""


def read_arguments(text: str) -> Arguments:
    """The arguments in `ServerArgs(…)` or `{…}`; what follows the closing bracket is not read. Never raises."""
    reader = _Reader(text)
    values: dict[str, object] = {}
    try:
        if not text.startswith("{"):
            reader.word()
        opening = reader.peek()
        if opening not in ("(", "{"):
            return Arguments()
        reader.place += 1
        entries = reader.entries(_CLOSES[opening], ":" if opening == "{" else "=", 0)
        values.update((key, value) for key, value in entries if isinstance(key, str))
    except _CutError:
        return Arguments(values, complete=False)
    return Arguments(values, complete=True)


class _Reader:
    """A place in the text that moves on. Every method raises `_CutError` at the end of the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def peek(self) -> str:
        space = _SPACE.match(self.text, self.place)
        if space is not None:
            self.place = space.end()
        if self.place >= len(self.text):
            raise _CutError
        return self.text[self.place]

    def word(self) -> str:
        match = _WORD.match(self.text, self.place)
        if match is None:
            return ""
        self.place = match.end()
        return match[0]

    def entries(self, closing: str, link: str, depth: int) -> Iterator[tuple[object, object]]:
        """The entries up to `closing`: (key, value), or (None, value) where an entry has no key."""
        while self.peek() != closing:
            key, start, value = None, self.place, self.value(depth + 1, stops=f",{link}{closing}")
            if self.peek() == link:
                self.place += 1
                key, start, value = value, self.place, self.value(depth + 1, stops=f",{closing}")
            if self.peek() not in (",", closing):  # something follows the value: then all of it is text
                value = self.raw(start, stops=f",{closing}")
            if self.peek() == ",":
                self.place += 1
            yield key, value
        self.place += 1

    def value(self, depth: int, stops: str) -> object:
        """One value. What is none of the known kinds comes as its text."""
        start, first = self.place, self.peek()
        if depth > _DEEPEST:
            return self.raw(start, stops)
        if first in "'\"" or _OPENS_STRING.match(self.text, self.place):
            return self.string()
        if first in "([{":
            return self.container(first, depth)
        number = _NUMBER.match(self.text, self.place)
        if number is not None:
            self.place = number.end()
            return self.whole(_number(number[0]))
        if first.isalpha() or first == "_":
            return self.named(start, depth, stops)
        return self.raw(start, stops)

    def whole(self, value: object) -> object:
        """The value, if something follows: `48` at the end of a cut line may be the beginning of `4800`."""
        self.peek()
        return value

    def string(self) -> str:
        match = _STRING.match(self.text, self.place)
        if match is None:
            raise _CutError
        self.place = match.end()
        return _ESCAPE.sub(_unescaped, match[1][1:-1]) if "\\" in match[1] else match[1][1:-1]

    def container(self, opening: str, depth: int) -> object:
        self.place += 1
        entries = list(self.entries(_CLOSES[opening], ":" if opening == "{" else "\0", depth))
        if opening != "{":
            items = [value for _, value in entries]
            return items if opening == "[" else tuple(items)
        if entries and all(key is None for key, _ in entries):
            return [value for _, value in entries]
        return {str(key): value for key, value in entries if key is not None}

    def named(self, start: int, depth: int, stops: str) -> object:
        """A name (`None`), a call (`PhaseConfig(…)` as a dict, `PosixPath('…')` as its argument), or other text."""
        word = self.word()
        if self.peek() != "(":
            return self.whole(_NAMES[word]) if word in _NAMES else self.raw(start, stops)
        self.place += 1
        entries = list(self.entries(")", "=", depth))
        named = {str(key): value for key, value in entries if key is not None}
        unnamed = [value for key, value in entries if key is None]
        return named if named or not unnamed else unnamed[0] if len(unnamed) == 1 else unnamed

    def raw(self, start: int, stops: str) -> str:
        self.skip_to(stops)
        return self.text[start : self.place].strip()

    def skip_to(self, stops: str) -> None:
        """Go to the next of `stops` outside brackets and strings."""
        inside: list[str] = []
        while True:
            first = self.peek()
            if not inside and first in stops:
                return
            if first in "'\"":
                self.string()
                continue
            if inside and first == inside[-1]:
                inside.pop()
            elif first in _CLOSES:
                inside.append(_CLOSES[first])
            self.place += 1


def _number(text: str) -> int | float:
    digits = text.replace("_", "")
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else match[0]
    return _PLAIN.get(code, code)
