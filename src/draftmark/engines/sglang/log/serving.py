"""What a running SGLang says of its batches: requests, how full the pools are, how much of the draft is accepted.

A batch line is a list of `name: value`; versions add names and change their order, and all are read alike.
The accept rate is left alone: its meaning changed between 0.5.10 and 0.5.12, that of the accept length never did.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import frexp, ldexp
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
        self.tally: dict[str | float, int] = {}
        self.last = ""
        self.largest = float("-inf")
        self.coarse = False

    def add(self, text: str) -> None:
        """Take one more. A text that was seen before is a number; a new one has to be."""
        seen = self.tally.get(text)
        if seen is not None:
            self.tally[text] = seen + 1
            self.last = text
        else:
            self._add_new(text)

    def _add_new(self, text: str) -> None:
        value = _number(text)
        if value is None:
            return
        self.last = text
        self.largest = max(self.largest, value)
        key = _rounded(value) if self.coarse else text
        self.tally[key] = self.tally.get(key, 0) + 1
        if not self.coarse and len(self.tally) > _EXACT:
            self.tally, self.coarse = self._values(_rounded), True

    def _values(self, key: Callable[[float], float]) -> dict[str | float, int]:
        values: dict[str | float, int] = {}
        for text, times in self.tally.items():
            value = key(float(text))
            values[value] = values.get(value, 0) + times
        return values

    def figure(self) -> Figure | None:
        """The figure so far; None without a value. Of an even number of values, the lower of the middle two."""
        values = sorted((float(value), times) for value, times in self._values(float).items())
        count = sum(times for _, times in values)
        middle, passed = (count + 1) // 2, 0
        for value, times in values:
            passed += times
            if passed >= middle:
                return Figure(count, float(self.last), value, self.largest)
        return None


def _rounded(value: float) -> float:
    """To nine binary digits, which is within 0.2 %."""
    digits, exponent = frexp(value)
    return ldexp(round(digits * 512), exponent - 9)


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


class ServingReader:
    """Takes the matches of the rules for a running server."""

    def __init__(self) -> None:
        self._figures = {name: Streaming() for name in {*_FIGURES.values(), *_IN_PREFILL.values()}}
        self._decode = {key: self._figures[name] for key, name in _FIGURES.items()}
        self._prefill = {key: self._figures[name] for key, name in _IN_PREFILL.items()}
        self._prefill.update({key: self._decode[key] for key in _IN_PREFILL_TOO})
        self._prefills = self._decodes = self._new = self._cached = 0
        self._graph = {"True": 0, "False": 0}
        self._retractions = self._retracted = self._aborted = self._steps = 0
        self._step: AdaptiveStep | None = None
        self._speakers: dict[str, str] = {}
        self._counts: dict[str, bool] = {"": True}

    def take(self, record: Record, name: str, match: re.Match[str]) -> None:
        """Note a line; `name` is its rule. Every rank of a replica may say the same: one of them is listened to."""
        counts = self._counts.get(record.rank)
        if not (self._counted(record.rank) if counts is None else counts):
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
            elif value in self._graph and key.endswith(" graph"):
                self._graph[value] += 1

    def _take_prefill(self, pairs: str) -> None:
        self._prefills += 1
        for pair in pairs.split(", "):
            key, _, value = pair.partition(": ")
            if key == "#new-token":
                self._new += _count(value)
            elif key == "#cached-token":
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
