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
from draftmark.engines.sglang.log.records import Record, lines_of, records
from draftmark.engines.sglang.log.serving import ServingReader, ServingStats
from draftmark.engines.sglang.log.shutdown import Ending, EndingReader

_SAMPLES: Final = 10
_LONGEST_SAMPLE: Final = 200

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
    for record in records(lines):
        reader.take(record)
    return reader.result()


def read_log_file(path: Path) -> SglangLog:
    """Read a log file of any size and content.

    Raises:
        OSError: It cannot be opened or read.
    """
    with path.open("rb") as file:
        return read_log(lines_of(file))


class _LogReader:
    def __init__(self) -> None:
        self.grammar = grammar()
        self.boot = BootReader(self.grammar)
        self.serving = ServingReader()
        self.ending = EndingReader()
        self.total = self.unknown = 0
        self.cut = self.in_traceback = False
        self.samples: dict[str, str] = {}

    def take(self, record: Record) -> None:
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
            self.serving.take(record, rule.name, match)
            return
        if rule.use == "noise":
            return
        if self.boot.begins(rule):
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
        count = LineCount(self.total, self.total - self.unknown, self.unknown, tuple(self.samples.values()))
        boot = self.boot.result(unknown=self.unknown, cut=self.cut)
        return SglangLog(boot, self.serving.result(), self.ending.result(), count)
