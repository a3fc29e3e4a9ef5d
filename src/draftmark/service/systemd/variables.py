"""How systemd puts variables into the words of a command line, after systemd.service(5) and `replace_env_argv`.

`$NAME` as a whole word is split at blanks, into no word at all where it is not set; `${NAME}` anywhere is replaced
as it is; `$$` is `$`; everything else, `${NAME:-x}` and `x$NAME` included, stays. Versions 249 to 257 agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from draftmark.service.systemd.environment import ServiceEnvironment
from draftmark.service.systemd.pieces import Piece, Slot, merged, text_of
from draftmark.service.systemd.quoting import BLANKS, Word

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def expanded(word: Word, pieces: Sequence[Piece], environment: ServiceEnvironment) -> Slot:
    """What a word of a command line becomes.

    Args:
        word: As written.
        pieces: Its own, specifiers replaced.
        environment: Of the service.
    """
    value = text_of(pieces)
    if value.startswith("$") and value[1:2] not in {"{", "$"}:
        name = value[1:]
        if name in environment.unknown and name not in environment:
            return Slot(word.start, word.end, word.raw, (value,), known=False)
        values = tuple(split_value(environment.get(name, ""))) if _NAME.match(name) else ()
        return Slot(word.start, word.end, word.raw, values, source=environment.described(name))
    found = _replaced(pieces, environment)
    known = all(piece.known for piece in found)
    return Slot(word.start, word.end, word.raw, (text_of(found),), found, known)


def split_value(value: str) -> Iterator[str]:
    """A variable's value taken apart for a lone `$NAME`: quotes and backslashes count, open ones are forgiven."""
    at = 0
    while at < len(value):
        if value[at] in BLANKS:
            at += 1
            continue
        word, at = _loose_word(value, at)
        yield word


def _loose_word(value: str, at: int) -> tuple[str, int]:
    out, quote = "", ""
    while at < len(value) and (quote or value[at] not in BLANKS):
        char = value[at]
        if char == "\\":
            at += 1
            out += value[at : at + 1]
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        else:
            out += char
        at += 1
    return out, at


def _replaced(pieces: Sequence[Piece], environment: ServiceEnvironment) -> tuple[Piece, ...]:
    if any(len(piece.value) > 1 and set("${}:") & set(piece.value) for piece in pieces):
        # A specifier's value is itself looked through for variables: the way back is lost, the value is not.
        single = [Piece(at, at + 1, char) for at, char in enumerate(text_of(pieces))]
        found = _replaced(single, environment)
        known = all(piece.known for piece in (*pieces, *found))
        return (merged(pieces, text_of(found), known=known),)
    out: list[Piece] = []
    at = 0
    while at < len(pieces):
        took, new = _variable(pieces, at, environment)
        out += new
        at += took
    return tuple(out)


def _variable(pieces: Sequence[Piece], at: int, environment: ServiceEnvironment) -> tuple[int, Iterable[Piece]]:
    """How many pieces the step at `at` takes, and what comes of them."""
    following = pieces[at + 1].value if at + 1 < len(pieces) else ""
    if pieces[at].value != "$" or not following:
        return 1, pieces[at : at + 1]
    if following == "$":
        return 2, (merged(pieces[at : at + 2], "$"),)
    if following != "{":
        return 2, pieces[at : at + 2]
    end = next((i for i in range(at + 2, len(pieces)) if pieces[i].value in {"}", ":"}), None)
    if end is None:
        return len(pieces) - at, pieces[at:]
    took = pieces[at : end + 1]
    if pieces[end].value == ":":  # no such syntax here: it stays
        return len(took), took
    name = text_of(took[2:-1])
    if name in environment.unknown and name not in environment:
        return len(took), (merged(took, text_of(took), known=False),)
    return len(took), (merged(took, environment.get(name, ""), known=all(p.known for p in took)),)
