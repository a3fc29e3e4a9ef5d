"""From the lines of a log to SGLang's records, one at a time and in bounded memory.

A record begins with `[2026-11-29 16:50:45 DP0 TP1] `, or is a line without such a stamp. What else a line may hold:
what the journal or a container runtime put before it, colour codes, and the updates of a progress bar, separated by
carriage returns, with a record of another process begun in the middle of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import BinaryIO, Final, NamedTuple

LONGEST_LINE = 1 << 20
"""Characters of a line that are looked at, and bytes that are held: a file may be one line of a gigabyte."""

_BLOCK: Final = 1 << 17

_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)((?: [A-Z_]+\d+)*)\] ")
# The usual line: a stamp, and nothing more that would divide it.
_USUAL = re.compile(_STAMP.pattern + r"([^\r\n\x1b\[]*+)\n?\Z")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# journalctl short and ISO, `docker compose`, `docker logs -t`, CRI, Ray: what stands before the message.
_CARRIER = re.compile(
    r"(?:\w{3} +\d+ \d\d:\d\d:\d\d(?:\.\d+)? \S+ [^\s:\[]+(?:\[\d+\])?: "
    r"|\d{4}-\d\d-\d\dT\S+ \S+ [^\s:\[]+\[\d+\]: "
    r"|[\w.-]+ +\| "
    r"|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (?:(?P<cri>std(?:out|err)) (?P<part>[PF]) )?"
    r"|\(\w+ pid=\d+(?:, ip=[\d.]+)?\) )"
)


class Record(NamedTuple):
    """One record. `line` counts from 1; `rank` is "" or what the stamp says, such as "DP0 TP1"."""

    line: int
    time: str | None
    rank: str
    text: str
    cut: bool
    """Whether this is the end of a file that stops in the middle of a line."""


def chunks_of(file: BinaryIO) -> Iterator[str]:
    """An open file in chunks of whole lines; a line that is longer than a chunk in pieces, broken bytes as U+FFFD.

    A chunk without a line end at its end is one such piece, or the end of the file.
    """
    rest = b""
    while block := file.read(_BLOCK):
        rest += block
        while len(rest) >= LONGEST_LINE and b"\n" not in rest[:LONGEST_LINE]:
            yield rest[:LONGEST_LINE].decode("utf-8", "replace")
            rest = rest[LONGEST_LINE:]
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end].decode("utf-8", "replace")
            rest = rest[end:]
    if rest:
        yield rest.decode("utf-8", "replace")


def lines_of(file: BinaryIO) -> Iterator[str]:
    """The lines of an open file with their line ends; longer ones in pieces, broken bytes as U+FFFD."""
    for chunk in chunks_of(file):
        yield from StringIO(chunk, newline="\n")


class Records:
    """Makes records of lines, as they are given. `held`: a part of a line whose other parts are to come."""

    def __init__(self) -> None:
        self.held = ""
        self._first = 0
        self.ends = False
        """Whether the lines have line ends, so that one without is cut."""

    def of(self, number: int, line: str) -> Iterable[Record]:
        """The records of one line, blank ones left out."""
        if line[:1] != "[" or self.held:
            text, partial = _unpacked(line)
            number = self._first = self._first if self.held else number
            if partial and len(self.held) < LONGEST_LINE:
                self.held += text
                return ()
            line, self.held = self.held + text, ""
        complete = line[-1:] == "\n"
        self.ends = self.ends or complete
        usual = _USUAL.match(line) if complete or not self.ends else None
        if usual is not None:
            time, rank, text = usual.groups()
            return (Record(number, time, rank[1:], text, cut=False),)
        return _divided(number, line, cut=self.ends and not complete)

    def rest(self) -> Iterable[Record]:
        """When all lines were given: what was held."""
        line, self.held = self.held, ""
        return _divided(self._first, line, cut=self.ends) if line else ()


def records(lines: Iterable[str]) -> Iterator[Record]:
    """The records of a log, blank ones left out."""
    reader = Records()
    for number, line in enumerate(lines, start=1):
        yield from reader.of(number, line)
    yield from reader.rest()


def _divided(number: int, line: str, *, cut: bool) -> Iterator[Record]:
    line = line[:LONGEST_LINE].rstrip("\r\n")
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    pieces = line.split("\r")
    for piece in pieces:
        if piece and not piece.isspace():
            yield from _stamped(number, piece, cut=cut and piece is pieces[-1])


def _stamped(number: int, piece: str, *, cut: bool) -> Iterator[Record]:
    """What stands before the first stamp, and from each stamp to the next."""
    time, rank, start = None, "", 0
    carrier = _CARRIER.match(piece)
    if carrier is not None:
        start = carrier.end()
    for stamp in _STAMP.finditer(piece, start):
        before = piece[start : stamp.start()]
        if before and (time is not None or not before.isspace()):
            yield Record(number, time, rank, before, cut=False)
        time, rank, start = stamp[1], stamp[2][1:], stamp.end()
    if piece[start:] or time is not None:
        yield Record(number, time, rank, piece[start:], cut)


def _unpacked(line: str) -> tuple[str, bool]:
    """A line's text, and whether the runtime says that the next line goes on with it."""
    if line.startswith('{"'):
        return _from_json(line)
    if " std" in line[:60]:
        carrier = _CARRIER.match(line)
        if carrier is not None and carrier["part"]:
            text, partial = line[carrier.end() :], carrier["part"] == "P"
            return (text.rstrip("\r\n") if partial else text), partial
    return line, False


def _from_json(line: str) -> tuple[str, bool]:
    """`docker`'s json-file ({"log": …}, without a line end where it was divided) or `journalctl -o json`."""
    if '"log":' not in line and '"MESSAGE":' not in line:
        return line, False
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return line, False
    if isinstance(entry, dict):
        if isinstance(entry.get("log"), str):
            return entry["log"], not entry["log"].endswith("\n")
        if isinstance(entry.get("MESSAGE"), str):
            return entry["MESSAGE"] + "\n", False
    return line, False
