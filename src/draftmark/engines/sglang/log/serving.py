"""What a running SGLang says of its batches: requests, how full the pools are, how much of the draft is accepted.

A batch line is a list of `name: value`; versions add names and change their order, and all are read alike.
The accept rate is left alone: its meaning changed between 0.5.10 and 0.5.12, that of the accept length never did.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from struct import pack, unpack
from typing import Final, NamedTuple

from draftmark.engines.sglang.log.records import Record

_EXACT: Final = 4096
"""Different values that a median keeps apart; beyond, they are rounded."""
_MOST_RANKS: Final = 4096
_WIDEST: Final = 1e12  # no figure of a batch is larger; what is, is damage


class Figure(NamedTuple):
    """A figure over the batches that had it: how many, the last, the median, the largest."""

    batches: int
    last: float
    median: float
    largest: float


class Streaming:
    """The median of a stream of printed numbers, in bounded memory: exact up to 4096 different, else to 0.2 %."""

    def __init__(self) -> None:
        self.tally: Counter[str] = Counter()
        self.bins: Counter[int] | None = None
        """Instead of `tally`, once there were too many to keep apart."""
        self.last = ""
        self.largest = float("-inf")

    def add(self, text: str) -> None:
        """Take one more. A text that was seen before is a number; a new one has to be."""
        if text not in self.tally:
            value = _number(text)
            if value is None:
                return
            self.largest = max(self.largest, value)
        self.last = text
        if self.bins is None:
            self.tally[text] += 1
            self._bound()
        else:
            self.bins[_bins([float(text)])[0]] += 1

    def add_column(self, texts: Sequence[str]) -> None:
        """Take many, numbers all of them, "" left out. The last of them is for the caller to tell."""
        if self.bins is not None:
            values = list(map(float, filter(None, texts)))
            if values:
                self.largest = max(self.largest, *values)
                self.bins.update(_bins(values))
            return
        before = len(self.tally)
        self.tally.update(texts)
        del self.tally[""]
        new = islice(reversed(self.tally), len(self.tally) - before)
        self.largest = max(self.largest, *map(float, new), self.largest)
        self._bound()

    def _bound(self) -> None:
        if len(self.tally) > _EXACT:
            self.bins = Counter()
            for key, times in zip(_bins(list(map(float, self.tally))), self.tally.values(), strict=True):
                self.bins[key] += times
            self.tally = Counter()

    def figure(self) -> Figure | None:
        """The figure so far; None without a value. Of an even number of values, the lower of the middle two."""
        exact = ((float(text), times) for text, times in self.tally.items())
        values = sorted(exact if self.bins is None else ((_of_bin(key), n) for key, n in self.bins.items()))
        count = sum(times for _, times in values)
        middle, passed = (count + 1) // 2, 0
        for value, times in values:
            passed += times
            if passed >= middle:
                return Figure(count, float(self.last), value, self.largest)
        return None


_DROPPED: Final = 44  # binary digits of a float's 52 after the first


def _bins(values: list[float]) -> list[int]:
    """Each rounded to nine binary digits, which is within 0.2 %, as an integer."""
    half = 1 << (_DROPPED - 1)
    bits = memoryview(array("d", values)).cast("B").cast("q")
    return [(each + half) >> _DROPPED for each in bits]


def _of_bin(key: int) -> float:
    value: float = unpack("d", pack("q", key << _DROPPED))[0]
    return value


class AdaptiveStep(NamedTuple):
    """`--speculative-adaptive` changed the number of draft steps."""

    line: int
    old: int
    new: int
    accept_len: float


@dataclass(frozen=True, slots=True)
class ServingStats:
    """The batches of one server, from its start, all its replicas' (DP). A figure is None if no batch line had it.

    Shares (`…_usage`) are 0 to 1. `accept_len` counts accepted draft tokens and the bonus token per verify round.
    """

    prefill_batches: int
    decode_lines: int
    """One is printed every `--decode-log-interval` decode steps, 40 by default."""
    new_tokens: int
    cached_tokens: int
    running: Figure | None
    queue: Figure | None
    token_usage: Figure | None
    swa_usage: Figure | None
    mamba_usage: Figure | None
    accept_len: Figure | None
    gen_throughput: Figure | None
    input_throughput: Figure | None
    decode_with_graph: int
    decode_without_graph: int
    """Decode lines whose batch ran without a CUDA graph: larger than the largest captured one."""
    retractions: int
    retracted_requests: int
    aborted_requests: int
    """Requests that did not fit even alone."""
    adaptive_steps: int
    last_adaptive_step: AdaptiveStep | None


# Where a figure stands, in decode lines. Full attention's share is the one where pools are divided.
_FIGURES: Final = {
    "#running-req": "running",
    "#queue-req": "queue",
    "token usage": "token_usage",
    "full token usage": "token_usage",
    "swa token usage": "swa_usage",
    "mamba usage": "mamba_usage",
    "accept len": "accept_len",
    "gen throughput (token/s)": "gen_throughput",
}
_IN_PREFILL: Final = {"#queue-req": "queue", "input throughput (token/s)": "input_throughput"}
_IN_PREFILL_TOO: Final = ("token usage", "full token usage", "swa token usage", "mamba usage")
_PREFILL_FIGURES: Final = {**_IN_PREFILL, **{name: _FIGURES[name] for name in _IN_PREFILL_TOO}}


_NEW, _CACHED = "#new-token", "#cached-token"
_GRAPH: Final = " graph"


def value_of(kind: str, name: str) -> str | None:
    """What a value that `ServingReader.take_columns` takes looks like: a pattern; None if nothing comes of it."""
    if kind == "Prefill":
        if name in (_NEW, _CACHED):
            return r"[0-9]{1,15}+"
        known = name in _PREFILL_FIGURES
    else:
        if name not in _FIGURES and name.endswith(_GRAPH):
            return "True|False"
        known = name in _FIGURES
    return r"[0-9]{1,12}+(?:\.[0-9]{1,12}+)?+" if known else None


class ServingReader:
    """Takes the matches of the rules for a running server."""

    def __init__(self) -> None:
        self._figures = {name: Streaming() for name in {*_FIGURES.values(), *_IN_PREFILL.values()}}
        self._decode = {key: self._figures[name] for key, name in _FIGURES.items()}
        self._prefill = {key: self._figures[name] for key, name in _PREFILL_FIGURES.items()}
        self._prefills = self._decodes = self._new = self._cached = 0
        self._graph = {"True": 0, "False": 0}
        self._retractions = self._retracted = self._aborted = self._steps = 0
        self._step: AdaptiveStep | None = None
        self._speakers: dict[str, str] = {}
        self._counts: dict[str, bool] = {"": True}

    def take(self, record: Record, name: str, match: re.Match[str]) -> None:
        """Note a line; `name` is its rule. Every rank of a replica may say the same: one of them is listened to."""
        if not self.hears(record.rank):
            return
        if name == "decode":
            self._take_decode(match["pairs"])
        elif name == "prefill":
            self._take_prefill(match["pairs"])
        elif name == "retract":
            self._retractions += 1
            self._retracted += _count(match["requests"])
        elif name == "retract-abort":
            self._aborted += match["rid"] is not None
        elif name == "adaptive-step":
            self._steps += 1
            accepted = _number(match["len"]) or 0.0
            self._step = AdaptiveStep(record.line, _count(match["old"]), _count(match["new"]), accepted)

    def hears(self, rank: str) -> bool:
        """Whether lines of this rank count, now that one of them was seen."""
        counts = self._counts.get(rank)
        return self._counted(rank) if counts is None else counts

    def take_columns(
        self, kind: str, names: Sequence[str], heads: Sequence[str], columns: Sequence[Sequence[str]]
    ) -> list[tuple[str, Sequence[str]]]:
        """Note many lines of one kind at once.

        Args:
            kind: "Decode" or "Prefill".
            names: Of values, each with a `value_of`.
            heads: A row a line, "" for one that is of another kind or has other names.
            columns: The values, for each of `names`.

        Returns:
            Figures and the columns that they are in, for `last`.
        """
        rows = len(heads) - heads.count("")
        if not rows:
            return []
        if kind == "Decode":
            self._decodes += rows
        else:
            self._prefills += rows
        where = _FIGURES if kind == "Decode" else _PREFILL_FIGURES
        figures = []
        for name, column in zip(names, columns, strict=True):
            figure = where.get(name)
            if figure is None:
                self._take_counts(name, column)
                continue
            self._figures[figure].add_column(column)
            figures.append((figure, column))
        return figures

    def _take_counts(self, name: str, column: Sequence[str]) -> None:
        if name == _NEW:
            self._new += sum(map(int, filter(None, column)))
        elif name == _CACHED:
            self._cached += sum(map(int, filter(None, column)))
        else:
            for value in self._graph:
                self._graph[value] += column.count(value)

    def last(self, figure: str, values: Iterable[str]) -> None:
        """Which of the values came last: the first among these."""
        self._figures[figure].last = next(filter(None, values))

    def _counted(self, rank: str) -> bool:
        """Whether this rank is the first of its replica (`DP1`) that said something."""
        if len(self._counts) >= _MOST_RANKS:
            return False
        replica = next((part for part in rank.split() if part.startswith("DP")), "")
        counted = self._speakers.setdefault(replica, rank) == rank
        self._counts[rank] = counted
        return counted

    def _take_decode(self, pairs: str) -> None:
        self._decodes += 1
        for pair in pairs.split(", "):
            key, _, value = pair.partition(": ")
            figure = self._decode.get(key)
            if figure is not None:
                figure.add(value)
            elif value in self._graph and key.endswith(_GRAPH):
                self._graph[value] += 1

    def _take_prefill(self, pairs: str) -> None:
        self._prefills += 1
        for pair in pairs.split(", "):
            key, _, value = pair.partition(": ")
            if key == _NEW:
                self._new += _count(value)
            elif key == _CACHED:
                self._cached += _count(value)
            else:
                figure = self._prefill.get(key)
                if figure is not None:
                    figure.add(value)

    def result(self) -> ServingStats:
        """The statistics so far."""
        figures = {name: stream.figure() for name, stream in self._figures.items()}
        return ServingStats(
            prefill_batches=self._prefills,
            decode_lines=self._decodes,
            new_tokens=self._new,
            cached_tokens=self._cached,
            **figures,
            decode_with_graph=self._graph["True"],
            decode_without_graph=self._graph["False"],
            retractions=self._retractions,
            retracted_requests=self._retracted,
            aborted_requests=self._aborted,
            adaptive_steps=self._steps,
            last_adaptive_step=self._step,
        )


def _number(text: str) -> float | None:
    """A figure of a batch, or None: damaged text, no number, or one that nothing here can reach."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if -_WIDEST < value < _WIDEST else None


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else 0
