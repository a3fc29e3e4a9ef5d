"""The words of a shell's script, with their spelling kept: for `sh`, `dash`, `bash` and `zsh`.

After POSIX.1-2024, "Shell Command Language", 2.2 to 2.6, and bash(1) for arrays and `$'…'`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from draftmark.service.systemd.pieces import UnreadableError

_BLANK = " \t"
_META = " \t\n;&|<>()"
_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|()\n]")
_REDIRECTION = re.compile(r"(?:[0-9]+|\{[A-Za-z_]\w*\})?(?:&>>|&>|<<<|<<-|<<|<>|>>|>\||>&|<&|<|>)")
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_CONTINUED = re.compile(r"(?:\\\n)+(?=[^\\])")
_CONTINUED_NAME = re.compile(r"\w*\\\n")
_BRACED = re.compile(
    r"(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?P<array>\[[@*]\])?(?:(?P<test>:?[-+])(?P<other>[^\"'`\\$]*))?"
)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\Z")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b"}


def names(text: str) -> frozenset[str]:
    """A set written as one text."""
    return frozenset(text.split())


class Kind(Enum):
    """What an atom of a word is."""

    TEXT = auto()  # characters, quotes and escapes done
    PARAMETER = auto()  # a variable
    OPAQUE = auto()  # anything whose result cannot be told: `$(…)`, `*`, `~`


@dataclass(frozen=True, slots=True)
class Atom:
    """A stretch of a word. Offsets are of the script.

    Attributes:
        start: Of its first character.
        end: Behind its last.
        kind: What it is.
        text: The characters; a parameter's name.
        context: The quotes open around it, as in `Piece.context`.
        array: `[@]` or `[*]` behind the name.
        test: `:-`, `-`, `:+` or `+` behind the name.
        other: What is taken instead.
    """

    start: int
    end: int
    kind: Kind
    text: str
    context: str = ""
    array: str = ""
    test: str = ""
    other: str = ""


@dataclass(frozen=True, slots=True)
class ShellWord:
    """A word as written.

    Attributes:
        start: Of its first character.
        end: Behind its last.
        raw: The text between.
        atoms: What it is made of.
        elements: The words of an array, when this is `NAME=(…)`.
    """

    start: int
    end: int
    raw: str
    atoms: tuple[Atom, ...]
    elements: tuple[ShellWord, ...] | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """`;`, `&&`, a newline, a parenthesis."""

    text: str


@dataclass(frozen=True, slots=True)
class Redirection:
    """`2>&1`, `> file`; it ends behind its target."""

    end: int


Token = ShellWord | Operator | Redirection


def tokens(script: str, shell: str = "bash") -> Iterator[Token]:
    """The tokens of a script, comments left out.

    Raises:
        UnreadableError: Quotes or parentheses that do not close, a here-document, or what no two shells agree on.
    """
    return _Lexer(script, dollar_quotes=shell in {"bash", "zsh", "ksh"}).tokens()


class _Lexer:
    def __init__(self, script: str, *, dollar_quotes: bool) -> None:
        self._text = script
        self._dollar_quotes = dollar_quotes
        self._at = 0
        self._atoms: list[Atom] = []
        self._quoting: dict[str, Callable[[], None]] = {
            "\\": self._backslash,
            "'": self._single,
            '"': self._double,
            "$": self._dollar,
            "`": self._backticks,
        }

    def tokens(self) -> Iterator[Token]:
        while (token := self._token()) is not None:
            yield token

    def _token(self) -> Token | None:
        self._skip_blanks()
        if self._at >= len(self._text):
            return None
        found = _REDIRECTION.match(self._text, self._at)
        if found and not self._text.startswith(("<(", ">("), found.end() - 1):
            return self._redirection(found)
        if found := _OPERATOR.match(self._text, self._at):
            self._at = found.end()
            self._refuse_continued("&|;<>")
            return Operator(found[0])
        word = self._word()
        if "\\\n" in word.raw and self._text[self._at : self._at + 1] in {"<", ">"}:
            raise UnreadableError("a redirection of the script may begin in the line before it")
        return word

    def _refuse_continued(self, following: str) -> None:
        """A shell takes a continued line for one before it looks for operators."""
        if (found := _CONTINUED.match(self._text, self._at)) and self._text[found.end()] in following:
            raise UnreadableError("an operator of the script goes on in the next line")

    def _skip_blanks(self) -> None:
        text = self._text
        while self._at < len(text):
            if text[self._at] in _BLANK:
                self._at += 1
            elif text.startswith("\\\n", self._at):
                self._at += 2
            elif text[self._at] == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            else:
                return

    def _redirection(self, found: re.Match[str]) -> Redirection:
        if found[0].lstrip("0123456789") in {"<<", "<<-"}:
            raise UnreadableError("the script has a here-document, which is not read here")
        self._at = found.end()
        self._refuse_continued("&|<>")
        self._skip_blanks()
        self._word()
        return Redirection(self._at)

    def _word(self) -> ShellWord:
        start, self._atoms = self._at, []
        elements = None
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in self._quoting:
                self._quoting[char]()
            elif self._text.startswith(("<(", ">("), self._at):
                self._at += 1
                self._opaque(self._at - 1, self._closing("(", ")"))
            elif char == "(" and _ARRAY.match(self._text[start : self._at]):
                elements = self._elements()
            elif char in _META:
                break
            else:
                self._bare(start, char)
        if self._at == start:
            raise UnreadableError(f"a word is missing in the script before {self._text[start : start + 20]!r}")
        word = ShellWord(start, self._at, self._text[start : self._at], tuple(self._atoms), elements)
        return _with_braces(word)

    def _elements(self) -> tuple[ShellWord, ...]:
        outer, begun = self._atoms, self._at
        self._at += 1
        found: list[ShellWord] = []
        while True:
            token = self._token()
            if isinstance(token, ShellWord):
                found.append(token)
            elif isinstance(token, Operator) and token.text == ")":
                break
            elif not (isinstance(token, Operator) and token.text == "\n"):
                raise UnreadableError(f"an array is not understood: {self._text[begun : begun + 40]}")
        self._atoms = outer
        return tuple(found)

    def _bare(self, start: int, char: str) -> None:
        opaque = char in "*?[" or (char == "~" and self._at == start)
        self._add(self._at, self._at + 1, Kind.OPAQUE if opaque else Kind.TEXT, char)

    def _add(self, start: int, end: int, kind: Kind, text: str, context: str = "") -> None:
        self._atoms.append(Atom(start, end, kind, text, context))
        self._at = end

    def _opaque(self, start: int, end: int, context: str = "") -> None:
        self._add(start, end, Kind.OPAQUE, self._text[start:end], context)

    def _backslash(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if not following:  # bash keeps it or drops it, by what stands before
            self._opaque(self._at, self._at + 1)
        else:
            self._add(self._at, self._at + 2, Kind.TEXT, "" if following == "\n" else following)

    def _single(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise UnreadableError("a quote ' is not closed in the script")
        self._add(self._at + 1, self._at + 1, Kind.TEXT, "", "'")  # an empty pair is a word, too
        for at in range(self._at, end):
            self._add(at, at + 1, Kind.TEXT, self._text[at], "'")
        self._at = end + 1

    def _double(self) -> None:
        self._add(self._at + 1, self._at + 1, Kind.TEXT, "", '"')
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return
            if char == "\\" and (following := self._text[self._at + 1 : self._at + 2]) in {*'$`"\\\n'}:
                self._add(self._at, self._at + 2, Kind.TEXT, "" if following == "\n" else following, '"')
            elif char == "$":
                self._dollar('"')
            elif char == "`":
                self._backticks('"')
            else:
                self._add(self._at, self._at + 1, Kind.TEXT, char, '"')
        raise UnreadableError('a quote " is not closed in the script')

    def _backticks(self, context: str = "") -> None:
        end = self._at + 1
        while end < len(self._text) and self._text[end] != "`":
            end += 2 if self._text[end] == "\\" else 1
        if end >= len(self._text):
            raise UnreadableError("a ` is not closed in the script")
        self._opaque(self._at, end + 1, context)

    def _dollar(self, context: str = "") -> None:
        start, text = self._at, self._text
        following = text[start + 1 : start + 2]
        if following in {"'", '"'} and not context and not self._dollar_quotes:
            raise UnreadableError(
                f"$ before a quote means different things in different shells: {text[start : start + 20]}"
            )
        if following == "'" and not context:
            self._ansi()
        elif following == '"' and not context:
            self._at += 1
            self._double()
        elif following in {"(", "{"}:
            self._at += 1
            end = self._closing(following, {"(": ")", "{": "}"}[following])
            if following == "{":
                self._braced(start, end, context)
            else:
                self._opaque(start, end, context)
        elif _CONTINUED_NAME.match(text, start + 1):  # the name goes on in the next line
            self._opaque(start, start + 1, context)
        elif found := _PARAMETER.match(text, start + 1):
            self._add(start, found.end(), Kind.PARAMETER, found[0], context)
        else:  # bash does not split a variable in the same word then
            self._add(start, start + 1, Kind.TEXT if context else Kind.OPAQUE, "$", context)

    def _braced(self, start: int, end: int, context: str) -> None:
        found = _BRACED.fullmatch(self._text, start + 2, end - 1)
        if found is None:
            self._opaque(start, end, context)
            return
        array, test, other = found["array"] or "", found["test"] or "", found["other"] or ""
        self._atoms.append(Atom(start, end, Kind.PARAMETER, found["name"], context, array, test, other))
        self._at = end

    def _ansi(self) -> None:
        self._add(self._at + 2, self._at + 2, Kind.TEXT, "", "$'")
        while self._at < len(self._text) and self._text[self._at] != "'":
            char, following = self._text[self._at], self._text[self._at + 1 : self._at + 2]
            if char != "\\":
                self._add(self._at, self._at + 1, Kind.TEXT, char, "$'")
            elif following in _ANSI or following in {*"\\'\"?"}:
                self._add(self._at, self._at + 2, Kind.TEXT, _ANSI.get(following, following), "$'")
            else:  # numbers: rare, and told apart differently by each shell
                self._opaque(self._at, self._at + 2, "$'")
        if self._at >= len(self._text):
            raise UnreadableError("a quote $' is not closed in the script")
        self._at += 1

    def _closing(self, opening: str, closing: str) -> int:
        """Behind the bracket that closes the one at the current place."""
        depth, at, text = 0, self._at, self._text
        while at < len(text):
            char = text[at]
            if char == "\\":
                at += 1
            elif char in "'\"":
                at = _quoted_end(text, at)
            elif char in {opening, closing}:
                depth += 1 if char == opening else -1
                if not depth:
                    return at + 1
            at += 1
        raise UnreadableError(f"a {opening} is not closed in the script")


def _quoted_end(text: str, at: int) -> int:
    """Offset of the quote that closes the one there; the last character where none does."""
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote == '"' else 1
    return min(at, len(text) - 1)


def _with_braces(word: ShellWord) -> ShellWord:
    """`{a,b}` outside of quotes becomes several words in some shells: nothing is certain then."""
    bare = "".join(atom.text if not atom.context else "x" for atom in word.atoms if atom.kind is Kind.TEXT)
    if not _BRACES.search(bare):
        return word
    return ShellWord(word.start, word.end, word.raw, (Atom(word.start, word.end, Kind.OPAQUE, word.raw),))


def quote(value: str) -> str:
    """A word that every shell reads back as this value."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", value) and not value.startswith("="):
        return value
    return encode(value, "")


def encode(text: str, context: str) -> str:
    """A text spelled for a place inside of quotes, or outside of any."""
    if context == '"':
        return re.sub(r'([\\"$`])', r"\\\1", text)
    if context == "$'":
        return text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    inner = text.replace("'", "'\\''")
    return inner if context == "'" else f"'{inner}'"
