"""One pass over a log: the last start in it, what it served, and how it ended.

Memory is bounded whatever the log's size: figures are kept, lines are not. Nothing that a file can hold raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from draftmark.engines.sglang.log.booting import BootReader
from draftmark.engines.sglang.log.grammar import Rule, grammar
from draftmark.engines.sglang.log.nouns import BootLog
from draftmark.engines.sglang.log.records import Record, Records, chunks_of
from draftmark.engines.sglang.log.serving import ServingReader, ServingStats
from draftmark.engines.sglang.log.shutdown import Ending, EndingReader
from draftmark.engines.sglang.log.skim import Chunk, Skimmer

_SAMPLES: Final = 10
_LONGEST_SAMPLE: Final = 200
_CHUNK_LINES: Final = 512

# `Name: text` or a bare `Name` at the margin, as Python ends a traceback.
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")


@dataclass(frozen=True, slots=True)
class LineCount:
    """How much of a log the grammar knows, in records: a line may hold several."""

    total: int
    known: int
    unknown: int
    samples: tuple[str, ...]
    """Unknown ones, at most ten, of different beginnings."""


@dataclass(frozen=True, slots=True)
class SglangLog:
    """What a log says of the last start in it; `lines` counts the whole log."""

    boot: BootLog
    serving: ServingStats
    ending: Ending
    lines: LineCount


def read_log(lines: Iterable[str]) -> SglangLog:
    """Read a log, with or without line ends. Lines that are gone through once may come from a pipe."""
    reader = _LogReader()
    whole: list[str] = []
    for line in lines:
        if line and line.find("\n") == len(line) - 1:
            whole.append(line)
        else:
            reader.chunk("".join(whole))
            whole.clear()
            reader.line(line)
        if len(whole) >= _CHUNK_LINES:
            reader.chunk("".join(whole))
            whole.clear()
    reader.chunk("".join(whole))
    return reader.result()


def read_log_file(path: Path) -> SglangLog:
    """Read a log file of any size and content.

    Raises:
        OSError: It cannot be opened or read.
    """
    reader = _LogReader()
    with path.open("rb") as file:
        for chunk in chunks_of(file):
            if chunk.endswith("\n"):
                reader.chunk(chunk)
            else:
                reader.line(chunk)
    return reader.result()


class _LogReader:
    def __init__(self) -> None:
        self.grammar = grammar()
        self.boot = BootReader(self.grammar)
        self.serving = ServingReader()
        self.ending = EndingReader()
        self.records = Records()
        self.skimmer = Skimmer()
        self.skimmed: Chunk | None = None
        self.reached = self.counted = 0  # rows of it
        self.number = self.total = self.unknown = 0
        self.cut = self.in_traceback = False
        self.samples: dict[str, str] = {}

    def chunk(self, text: str) -> None:
        """Read whole lines, each with its end."""
        if not text:
            return
        self.records.ends = True
        chunk = self.skimmed = self.skimmer.read(text)
        self.reached = self.counted = 0
        for row in chunk.left_over():
            self._skim(row, text)
            line = chunk.others[row]
            self.skimmer.learn(line)
            self.line(line)
            self.reached = row + 1
        self._skim(len(chunk.others), text)
        self._settle()
        self.skimmed = None

    def _skim(self, end: int, text: str) -> None:
        """The rows up to this one are batches and requests, like many before."""
        start, self.reached = self.reached, end
        if start == end or self.skimmed is None:
            return
        if self.records.held:  # the first of them goes on with a line that was begun
            self.reached = start
            self._settle()
            for line in text.split("\n")[start:end]:
                self.line(line + "\n")
            self.reached = self.counted = end
            return
        self.in_traceback = False
        self.number += end - start
        self.total += end - start
        for rank in dict.fromkeys(self.skimmed.ranks[start:end]):
            self.serving.hears(rank[1:])

    def _settle(self) -> None:
        """Count what was skimmed so far: something else is about to change the figures, or whose they are."""
        if self.skimmed is not None and self.counted < self.reached:
            self.skimmed.count(self.serving, self.counted, self.reached)
            self.counted = self.reached

    def line(self, line: str) -> None:
        """Read one line."""
        self.number += 1
        for record in self.records.of(self.number, line):
            self.take(record)

    def take(self, record: Record) -> None:
        """Read one record."""
        self.total += 1
        if record.cut:
            self.cut = True
        found = self.grammar.find(record.text)
        if self.in_traceback and self._traceback(record, named=found is not None):
            return
        if found is None:
            self._unknown(record)
            return
        rule, match = found
        if rule.name == "exception" and "Traceback" in record.text:
            self.in_traceback = True
        if not (record.cut and rule.open):
            self._known(record, rule, match)

    def _known(self, record: Record, rule: Rule, match: re.Match[str]) -> None:
        if rule.use == "serving":
            self._settle()
            self.serving.take(record, rule.name, match)
            return
        if rule.use == "noise":
            return
        if self.boot.begins(rule):
            self._settle()
            self.boot.begin(record, rule)
            self.serving, self.ending = ServingReader(), EndingReader()
        self.boot.take(record, rule, match)
        if rule.use in ("ending", "failure"):
            self.ending.take(record, rule, match)

    def _traceback(self, record: Record, *, named: bool) -> bool:
        """Whether this is one more line of a traceback. A line at the margin is the exception, and ends it."""
        if record.time is None and (record.text[:1].isspace() or record.text.startswith(_LINKS)):
            return True
        self.in_traceback = record.text.startswith("Traceback (most recent call last)")
        if self.in_traceback:
            return True
        if named or record.time is not None or _EXCEPTION.match(record.text) is None:
            return False
        self.boot.fail(record, "error")
        return True

    def _unknown(self, record: Record) -> None:
        if record.text.endswith("Traceback (most recent call last):"):
            self.in_traceback = True
            return
        self.unknown += 1
        self.boot.unknown(record)
        start = record.text[:24]
        if len(self.samples) < _SAMPLES and start not in self.samples:
            self.samples[start] = record.text[:_LONGEST_SAMPLE]

    def result(self) -> SglangLog:
        """When all was read."""
        for record in self.records.rest():
            self.take(record)
        count = LineCount(self.total, self.total - self.unknown, self.unknown, tuple(self.samples.values()))
        boot = self.boot.result(unknown=self.unknown, cut=self.cut)
        return SglangLog(boot, self.serving.result(), self.ending.result(), count)
