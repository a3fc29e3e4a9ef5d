r"""How systemd takes a command line apart into words, and how a word is written so that it comes back as it was.

After systemd.service(5) and systemd.syntax(7), and the parser itself where those are silent (`extract_first_word`,
`cunescape_one`, `config_parse_exec`), versions 249 to 257:

- words end at blanks outside of quotes; quotes may begin and end in the middle of a word; an empty pair is a word;
- C escapes count inside quotes and outside; an escape that is none stands for itself, backslash included;
- `\x` and octal escapes are bytes, which together may make up a character;
- a word `;` begins another command, `\;` as a word of its own is a semicolon;
- `@ - : + !` before the program are flags, quoted or not.

Values are str; bytes that are not UTF-8 are in them as lone surrogates, as in `os.fsdecode`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.service.systemd.pieces import Piece, UnreadableError, text_of

BLANKS = " \t\n\r"
LONGEST_WORD = 4095
"""Bytes of a word that every systemd takes; later ones take more."""

_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "s": " ",
}
_NUMBERED = re.compile(
    r"x(?P<hex>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})"
)
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./%$^~#-]+\Z")
_PREFIXES = "-@:+!"


@dataclass(frozen=True, slots=True)
class Word:
    """A word as written, before `%` and `$`."""

    start: int
    end: int
    raw: str
    pieces: tuple[Piece, ...]

    @property
    def value(self) -> str:
        """Without quotes and escapes."""
        return text_of(self.pieces)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a line.

    Attributes:
        prefix: The flags before the program, in the order written.
        words: All words; the first without its flags in `pieces`, but with them in `raw`.
        end: Behind its last word.
    """

    prefix: str
    words: tuple[Word, ...]
    end: int

    @property
    def expands(self) -> bool:
        """Whether `$` means anything."""
        return ":" not in self.prefix

    @property
    def arguments_from(self) -> int:
        """Index of the first word that is an argument: with `@`, the second one is only a name."""
        return 2 if "@" in self.prefix else 1


def split(line: str) -> tuple[Command, ...]:
    """The commands of a line; more than one only where `;` separates them.

    Raises:
        UnreadableError: Quotes that are not closed, or no program.
    """
    commands: list[Command] = []
    at = 0
    while (first := next_word(line, at)) is not None:
        if first.value == ";":
            at = first.end
            continue
        command, at = _command(line, first)
        commands.append(command)
    return tuple(commands)


def _command(line: str, first: Word) -> tuple[Command, int]:
    flags = prefix_length(first.value)
    words = [Word(first.start, first.end, first.raw, first.pieces[flags:])]
    if not words[0].value:
        raise UnreadableError("there is no program in it")
    at = first.end
    while True:
        at = _skip_blanks(line, at)
        lone = not line[at + 1 : at + 2].strip(BLANKS)
        if line[at : at + 1] == ";" and lone:
            return Command(first.value[:flags], tuple(words), words[-1].end), at + 1
        if line[at : at + 2] == "\\;" and not line[at + 2 : at + 3].strip(BLANKS):
            words.append(Word(at, at + 2, "\\;", (Piece(0, 2, ";"),)))
            at += 2
            continue
        word = next_word(line, at)
        if word is None:
            return Command(first.value[:flags], tuple(words), words[-1].end), len(line)
        words.append(word)
        at = word.end


def prefix_length(first: str) -> int:
    """How many characters of a line's first word are flags; each counts once, and of `+`, `!`, `!!` only one.

    Raises:
        UnreadableError: A flag of a systemd that is newer than what is read here.
    """
    seen = ""
    for char in first:
        if char == "|":
            raise UnreadableError("the prefix | hands the line to the user's own shell, which is not read here")
        privileged = any(c in seen for c in "+!")
        again = char in seen and not (char == "!" and seen.count("!") == 1 and "+" not in seen)
        if char not in _PREFIXES or again or (char == "+" and privileged) or (char == "!" and "+" in seen):
            break
        seen += char
    return len(seen)


def next_word(text: str, at: int) -> Word | None:
    """The word that begins at or behind an offset.

    Raises:
        UnreadableError: Its quotes are not closed.
    """
    start = at = _skip_blanks(text, at)
    if at >= len(text):
        return None
    pieces: list[Piece] = []
    quote = ""
    while at < len(text) and (quote or text[at] not in BLANKS):
        char = text[at]
        if char == "\\":
            pieces += _escape(text, at, start, quote)
            at = start + pieces[-1].end
            continue
        if quote and char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        else:
            pieces.append(Piece(at - start, at + 1 - start, char, quote))
        at += 1
    if quote:
        raise UnreadableError(f"a quote {quote} is not closed")
    return Word(start, at, text[start:at], _characters(pieces))


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at


def _escape(text: str, at: int, start: int, quote: str) -> list[Piece]:
    """What begins with a backslash; offsets are of the word, which begins at `start`."""
    here = at - start
    following = text[at + 1 : at + 2]
    if following and following in _SIMPLE:
        return [Piece(here, here + 2, _SIMPLE[following], quote)]
    if (found := _NUMBERED.match(text, at + 1)) and (value := _numbered(found)):
        return [Piece(here, found.end() - start, value, quote)]
    # No escape: systemd warns, and takes both as they stand. A `%` may begin a specifier all the same.
    literal = [Piece(here, here + 1, "\\", quote)]
    return [*literal, Piece(here + 1, here + 2, following, quote)] if following else literal


def _numbered(found: re.Match[str]) -> str:
    """Empty where the number is none that may stand there."""
    digits = next(group for group in found.groups() if group is not None)
    number = int(digits, 8 if found["octal"] else 16)
    if number == 0:
        return ""
    if found["hex"] or found["octal"]:
        return bytes([number]).decode("utf-8", "surrogateescape") if number < 256 else ""
    if found["long"] and not _is_character(number):
        return ""
    return chr(number).encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


def _is_character(number: int) -> bool:
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF or 0xFDD0 <= number <= 0xFDEF:
        return False
    return number & 0xFFFE != 0xFFFE


def _characters(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Bytes given one by one, made the characters that they are together."""
    out: list[Piece] = []
    for piece in pieces:
        if _is_bytes(piece.value) and out and _is_bytes(out[-1].value):
            last = out.pop()
            whole = (last.value + piece.value).encode("utf-8", "surrogateescape")
            piece = Piece(last.start, piece.end, whole.decode("utf-8", "surrogateescape"), last.context)
        out.append(piece)
    return tuple(out)


def _is_bytes(value: str) -> bool:
    return any("\udc80" <= char <= "\udcff" for char in value)


def quote(value: str, *, expands: bool = True) -> str:
    """A word that systemd reads back as this value: no more quotes than it takes.

    Args:
        value: What the process is to get.
        expands: Whether `$` means anything in this line.

    Raises:
        UnreadableError: It cannot be the word of a unit: a NUL, or bytes that are not UTF-8.
    """
    refuse_unwritable(value)
    if _PLAIN.match(value):
        return _doubled(value, expands)
    return encode(value, "", expands=expands)


def refuse_unwritable(value: str) -> None:
    """Raise for what no word of a unit can hold.

    Raises:
        UnreadableError: A NUL, or bytes that are not UTF-8.
    """
    if "\0" in value:
        raise UnreadableError("a word with a NUL byte cannot be given to a process")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise UnreadableError(f"a word that is not UTF-8 cannot stand in a unit: {value!a}")


def encode(text: str, context: str, *, expands: bool = True) -> str:
    """A text spelled for a place inside of quotes, or outside of any."""
    around = context or ("'" if '"' in text and "'" not in text else '"')
    inner = "".join(_spelled(char, around) for char in _doubled(text, expands))
    return inner if context else f"{around}{inner}{around}"


def _spelled(char: str, around: str) -> str:
    if char in {"\\", around}:
        return "\\" + char
    if char in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[char]
    return f"\\x{ord(char):02x}" if char < " " or char == "\x7f" else char


def _doubled(text: str, expands: bool) -> str:
    text = text.replace("%", "%%")
    return text.replace("$", "$$") if expands else text
