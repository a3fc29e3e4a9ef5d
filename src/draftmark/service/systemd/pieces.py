"""Text that knows how it is spelled: which characters of a raw word became which characters of its value.

A word of a unit file goes through quoting, `%` specifiers and `$` variables before a process sees it, and a script
inside such a word goes through a shell's quoting as well. To change three characters of what the process sees, and
leave all the rest as the user wrote it, every step keeps the way back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate


class UnreadableError(ValueError):
    """A command line that cannot be understood, or not be changed safely.

    Args:
        what: Why.
        next_step: What the user may do about it.
    """

    def __init__(
        self,
        what: str,
        next_step: str = "write the server's command line into ExecStart=, with its flags as words of it",
    ) -> None:
        super().__init__(what)
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a raw word and what it becomes.

    Attributes:
        start: Offset in the raw word.
        end: Behind its last character there.
        value: What it becomes; may be empty or longer than the stretch.
        context: The quotes that are open around it: "" for none, else as they were opened.
        known: Whether `value` is what it becomes, and not only a stand-in, the raw text itself.
    """

    start: int
    end: int
    value: str
    context: str = ""
    known: bool = True


@dataclass(frozen=True, slots=True)
class Slot:
    """One word as it is written, and the words that the process gets for it.

    Attributes:
        start: Offset of its first character in the text it stands in.
        end: Behind its last one.
        raw: As written.
        values: One, as a rule; none or several for a variable that is split at whitespace.
        pieces: How the only value came to be; empty where the word was split.
        known: Whether the values are certain; else the only one is the raw text.
        source: What stands for the values, where that is not the word itself: `$LLAMA_ARGS`.
    """

    start: int
    end: int
    raw: str
    values: tuple[str, ...]
    pieces: tuple[Piece, ...] = ()
    known: bool = True
    source: str = ""


Encode = Callable[[str, str], str]
"""Spells a text so that it is read back as it is, inside the quotes given as in `Piece.context`."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A stretch of a text, and what comes in its place."""

    start: int
    end: int
    text: str


def text_of(pieces: Iterable[Piece]) -> str:
    """The value that the pieces make up."""
    return "".join(piece.value for piece in pieces)


def merged(pieces: Sequence[Piece], value: str, *, known: bool = True) -> Piece:
    """One piece in place of several."""
    return Piece(pieces[0].start, pieces[-1].end, value, pieces[0].context, known)


def joined(edits: Iterable[Edit]) -> list[Edit]:
    """In order, and those that touch made one."""
    out: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if out and edit.start <= out[-1].end:
            last = out.pop()
            edit = Edit(last.start, max(last.end, edit.end), last.text + edit.text)
        out.append(edit)
    return out


def applied(text: str, edits: Iterable[Edit]) -> str:
    """The text after the edits."""
    out, at = [], 0
    for edit in joined(edits):
        out += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*out, text[at:]])


def respelled(raw: str, pieces: Sequence[Piece], edits: Iterable[Edit], encode: Encode) -> str:
    """The raw word whose value has been edited, everything else in it spelled as before.

    Args:
        raw: The word as written.
        pieces: How its value came to be.
        edits: Offsets are of the value.
        encode: Spells what is new.

    Raises:
        UnreadableError: An edit would cut an expansion in two.
    """
    if not pieces:
        return encode(applied("", edits), "")
    offsets = list(accumulate((len(piece.value) for piece in pieces), initial=0))
    changes = []
    for edit in joined(edits):
        first, last = bisect_left(offsets, edit.start), bisect_left(offsets, edit.end)
        if offsets[first] != edit.start or offsets[last] != edit.end:
            raise UnreadableError(f"the change would cut through an expansion in {raw}")
        changes.append(_change(pieces, first, last, edit.text, encode))
    return applied(raw, changes) or encode("", "")


def _change(pieces: Sequence[Piece], first: int, last: int, text: str, encode: Encode) -> Edit:
    if first == last:
        anchor = pieces[first - 1] if first else pieces[0]
        at = anchor.end if first else anchor.start
        return Edit(at, at, encode(text, anchor.context) if text else "")
    opened, closed = pieces[first].context, pieces[last - 1].context
    if opened == closed:
        new = encode(text, opened) if text else ""
    else:  # it begins inside one pair of quotes and ends inside another: close the one, open the other
        new = opened[-1:] + (encode(text, "") if text else "") + closed
    return Edit(pieces[first].start, pieces[last - 1].end, new)
