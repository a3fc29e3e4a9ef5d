"""The lines of the last start in a log of any size: all that `fit` needs of hours of serving. Bounded memory.

A log is gone through once, in chunks, by searches for literals; the grammar then reads some hundred lines instead
of millions. A start's lines go from its arguments, and what the launcher said just before, until it is ready.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Final

from draftmark.engines.sglang.log.grammar import grammar

_ARGUMENTS: Final = b"server_args="
_OPENS: Final = (b"S", b"{")  # ServerArgs(…, or a dict
_LOADS: Final = b"Load weight begin."
_LOADED: Final = b"Load weight end."
_READY: Final = b"The server is fired up and ready to roll!"
_SIZED: Final = b"max_total_num_tokens="

_MOST: Final = 8 << 20  # bytes from the arguments to ready: a start writes some 50 KB, a rank and a graph more
_AFTER: Final = 1 << 20  # bytes that are waited for `ready`, once the pools are told
_BEFORE: Final = 1 << 16
_LONGEST: Final = 4 << 20  # of a line that is kept whole
_TIME = re.compile(rb"\[([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})")
_NAMES = re.compile(rb"(?i)sglang.{0,24}\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class LastStart:
    """What was found.

    Attributes:
        text: Its lines.
        starts: How many starts there are in the log.
        passed_over: Later starts than this one: they ended before they said anything of memory.
    """

    text: bytes
    starts: int
    passed_over: int

    @property
    def told(self) -> bool:
        """Whether it says what its weights took, so that memory can be told from it."""
        return _LOADED in self.text

    @property
    def time(self) -> str | None:
        """When its arguments were printed, or its first line: as stamped."""
        arguments = self.text.find(_ARGUMENTS)
        stamp = _TIME.search(self.text, max(0, self.text.rfind(b"\n", 0, max(0, arguments))))
        return stamp[1].decode() if stamp else None

    def lines(self) -> Iterator[str]:
        """With their ends."""
        return iter(StringIO(self.text.decode("utf-8", "replace"), newline="\n"))


def last_start(blocks: Iterable[bytes]) -> LastStart:
    """The last start in a log that says what its weights took; the last of all where none does.

    A log without a start's beginning (it was cut off, or is of another program) gives its first lines, or those
    from where weights are loaded on.
    """
    search = _Search()
    for chunk in _whole_lines(blocks):
        search.take(chunk)
    return search.result()


def to_ready(blocks: Iterable[bytes], most: int) -> Iterator[bytes]:
    """The blocks of one start up to the one with which it is ready, `most` bytes at the outside."""
    last, given = b"", 0
    for block in blocks:
        yield block
        given += len(block)
        if given > most or _READY in last + block:
            return
        last = block[-len(_READY) :]


class _Search:
    def __init__(self) -> None:
        self.before = b""
        self.text = bytearray()
        self.open = True
        self.sized_at: int | None = None
        self.starts = self.passed_over = 0
        self.told: bytes | None = None  # an earlier start, one that says what its weights took
        rules = grammar().rules
        self.first_words = tuple(hint.encode() for rule in rules if rule.starts for hint in rule.hints)
        self.boot_words = tuple(hint.encode() for rule in rules if rule.use == "boot" for hint in rule.hints)

    def take(self, chunk: bytes) -> None:
        at = 0
        for begin in _arguments(chunk):
            self._add(chunk[at:begin])
            self._begin(chunk[:begin])
            self.starts += 1
            at = begin
        if not self.open and (begin := chunk.find(_LOADS, at)) >= 0:  # without arguments: lines were left out
            at = chunk.rfind(b"\n", 0, begin) + 1
            self._begin(chunk[:at])
        self._add(chunk[at:])
        self.before = (self.before + chunk)[-_BEFORE:] if len(chunk) < _BEFORE else chunk[-_BEFORE:]

    def _begin(self, before: bytes) -> None:
        self._close()
        self.text = bytearray(b"".join(self._of_launcher((self.before + before)[-_BEFORE:])))
        self.open, self.sized_at = True, None

    def _close(self) -> None:
        if _LOADED in self.text:
            self.told, self.passed_over = bytes(self.text), 0
        elif self.starts:
            self.passed_over += 1

    def _of_launcher(self, before: bytes) -> list[bytes]:
        """Of the lines before the arguments, what the launcher may have said of this start, and of no other."""
        found: list[bytes] = []
        for line in reversed(before.split(b"\n")[len(before) == _BEFORE : -1]):  # the first may be half a line
            if any(word in line for word in self.boot_words):
                break
            if any(word in line for word in self.first_words) or _NAMES.search(line):
                found.append(line + b"\n")
        return found[::-1]

    def _add(self, text: bytes) -> None:
        if not self.open or not text:
            return
        ready = text.find(_READY)
        if ready >= 0:
            end = text.find(b"\n", ready) + 1 or len(text)
            self.text += text[:end]
            self.open = False
            return
        if self.sized_at is None and (sized := text.find(_SIZED)) >= 0:
            self.sized_at = len(self.text) + sized
        self.text += text
        most = _MOST if self.sized_at is None else min(_MOST, self.sized_at + _AFTER)
        if len(self.text) > most:
            self.open = False
            del self.text[self.text.rfind(b"\n", 0, most) + 1 :]

    def result(self) -> LastStart:
        if _LOADED in self.text or self.told is None:
            return LastStart(bytes(self.text), self.starts, 0)
        return LastStart(self.told, self.starts, self.passed_over + 1)


def _arguments(chunk: bytes) -> Iterator[int]:
    """Where the lines begin that have a server's arguments."""
    found = chunk.find(_ARGUMENTS)
    while found >= 0:
        after = found + len(_ARGUMENTS)
        if chunk[after : after + 1] in _OPENS:
            yield chunk.rfind(b"\n", 0, found) + 1
        found = chunk.find(_ARGUMENTS, after)


def _whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end] if rest else block[:end]
            rest = block[end:]
        else:
            rest += block
        if len(rest) > _LONGEST:
            yield rest
            rest = b""
    if rest:
        yield rest
