"""An EnvironmentFile= as systemd reads it, which is not how a shell would."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from draftmark.service.systemd.quoting import BLANKS


class _State(Enum):
    BEFORE_KEY = auto()
    KEY = auto()
    BEFORE_VALUE = auto()
    VALUE = auto()
    ESCAPE = auto()
    SINGLE = auto()
    DOUBLE = auto()
    DOUBLE_ESCAPE = auto()
    COMMENT = auto()
    COMMENT_ESCAPE = auto()


class _EnvFileReader:
    """The automaton of an EnvironmentFile: not a shell's, though it looks like one.

    Quotes count only where a value begins or right behind other quotes; inside of a value they are characters.
    """

    def __init__(self, text: str, version: int | None) -> None:
        self._text = text
        # Before 254, a comment that ends in a backslash goes on in the next line.
        self._comment_goes_on = version is not None and version < 254
        self._key, self._value = "", ""
        self._solid = 0  # length of the value without blanks at its end that were not quoted
        self._line = self._begun = 1
        self._done: list[tuple[str, str, int]] = []

    def read(self) -> list[tuple[str, str, int]]:
        steps: dict[_State, Callable[[str], _State]] = {
            _State.BEFORE_KEY: self._before_key,
            _State.KEY: self._in_key,
            _State.BEFORE_VALUE: self._before_value,
            _State.VALUE: self._in_value,
            _State.ESCAPE: self._escape,
            _State.SINGLE: self._single,
            _State.DOUBLE: self._double,
            _State.DOUBLE_ESCAPE: self._double_escape,
            _State.COMMENT: lambda c: (
                _State.COMMENT_ESCAPE if c == "\\" else _State.BEFORE_KEY if c in "\n\r" else _State.COMMENT
            ),
            _State.COMMENT_ESCAPE: lambda c: (
                _State.BEFORE_KEY if c in "\n\r" and not self._comment_goes_on else _State.COMMENT
            ),
        }
        state = _State.BEFORE_KEY
        for char in self._text.partition("\0")[0]:
            state = steps[state](char)
            self._line += char == "\n"
        if state not in {_State.BEFORE_KEY, _State.KEY, _State.COMMENT, _State.COMMENT_ESCAPE}:
            self._finish(chomp=state is _State.VALUE)
        return self._done

    def _finish(self, *, chomp: bool) -> _State:
        value = self._value[: self._solid] if chomp else self._value
        self._done.append((self._key.rstrip(BLANKS), value, self._begun))
        self._key = self._value = ""
        self._solid = 0
        return _State.BEFORE_KEY

    def _before_key(self, char: str) -> _State:
        if char in "#;":
            return _State.COMMENT
        if char in BLANKS:
            return _State.BEFORE_KEY
        self._key, self._begun = char, self._line
        return _State.KEY

    def _in_key(self, char: str) -> _State:
        if char in "\n\r":
            self._key = ""
            return _State.BEFORE_KEY
        if char == "=":
            return _State.BEFORE_VALUE
        self._key += char
        return _State.KEY

    def _before_value(self, char: str) -> _State:
        if char in "\n\r":
            return self._finish(chomp=False)
        opened = {"'": _State.SINGLE, '"': _State.DOUBLE, "\\": _State.ESCAPE}
        if char in opened:
            return opened[char]
        return _State.BEFORE_VALUE if char in BLANKS else self._in_value(char)

    def _in_value(self, char: str) -> _State:
        if char in "\n\r":
            return self._finish(chomp=True)
        if char == "\\":
            self._solid = len(self._value)
            return _State.ESCAPE
        self._value += char
        if char not in BLANKS:
            self._solid = len(self._value)
        return _State.VALUE

    def _escape(self, char: str) -> _State:
        if char not in "\n\r":
            self._value += char
            self._solid = len(self._value)
        return _State.VALUE

    def _single(self, char: str) -> _State:
        if char == "'":
            return _State.BEFORE_VALUE
        self._value += char
        return _State.SINGLE

    def _double(self, char: str) -> _State:
        if char == '"':
            return _State.BEFORE_VALUE
        if char == "\\":
            return _State.DOUBLE_ESCAPE
        self._value += char
        return _State.DOUBLE

    def _double_escape(self, char: str) -> _State:
        if char in '"\\`$':
            self._value += char
        elif char != "\n":
            self._value += "\\" + char
        return _State.DOUBLE


def parse_env_file(text: str, *, version: int | None = None) -> list[tuple[str, str, int]]:
    """Name, value and line of each assignment of an EnvironmentFile, in order; names that are none included."""
    return _EnvFileReader(text, version).read()
