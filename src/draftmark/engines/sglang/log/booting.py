"""Gathers one start of a server from its records, and forgets it when the next one begins."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Final

from draftmark.engines.sglang.log.grammar import Grammar, Rule, VersionRange
from draftmark.engines.sglang.log.literals import Arguments, read_arguments
from draftmark.engines.sglang.log.nouns import BootLog, Failure, RankDifference, RankLog, Warned
from draftmark.engines.sglang.log.rank import differences, order, take
from draftmark.engines.sglang.log.records import Record

_MOST_RANKS: Final = 4096
_MOST_KEPT: Final = 64  # warnings, and failures at either end
_LONGEST_TEXT: Final = 500
_MASK: Final = "***"
# Failures that a server goes on after.
_SURVIVED: Final = frozenset({"health-failed", "disaggregation", "nan", "capture-failed", "watchdog-soft"})

# `sglang==0.5.14`, `sglang:v0.5.14` (an image), `sglang-0.5.14.dist-info`, `SGLang version 0.5.14`
_VERSION = re.compile(
    r"(?i)\bsglang(?:\[\w+\])?(?: ?==|:v|-v?| version[ :=]*| v|: )(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)"
)


class BootReader:
    """Takes the records of a log one by one; `result` is the last start in it."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.boots = 0
        self._held: list[Warned] = []
        self._named: str | None = None
        self._warnings: list[Warned] = []
        self._begin(None)

    def begins(self, rule: Rule) -> bool:
        """Whether this line is the first of another start: new arguments, or the launcher's words after an end."""
        if rule.name.startswith("server-args"):
            return self._begun
        return rule.starts and self._over

    def begin(self, record: Record, rule: Rule) -> None:
        """Forget the start so far. What the launcher said just before the arguments belongs to the new one."""
        held = self._held if not rule.starts else []
        self._begin(held[0].line if held else record.line)
        self._warnings = list(held)

    def _begin(self, line: int | None) -> None:
        self._begun = self._over = self._ready = self._http_up = self._replayssm = False
        self._first_line = line
        self._arguments = Arguments()
        self._seen: set[str] = set()
        self._range = VersionRange()
        self._version, self._named = self._named, None
        self._ranks: dict[str, RankLog] = {}
        self._warnings = []
        self._failures: list[Failure] = []
        self._late: deque[Failure] = deque(maxlen=_MOST_KEPT)
        self._count = 0
        self._timings: dict[str, float] = {}
        self.boots += line is not None

    def take(self, record: Record, rule: Rule, match: re.Match[str]) -> None:
        """Note a record that the grammar knows."""
        if self._first_line is None:
            self._first_line, self.boots = record.line, 1
        if rule.name not in self._seen and (rule.since or rule.until):
            self._seen.add(rule.name)
            self._range = self._range.narrowed(rule.since, rule.until)
        if rule.use == "failure":
            self.fail(record, rule.name)
            self._over = self._over or rule.name not in _SURVIVED
        elif rule.use == "warning":
            self._warn(record, rule, match)
        elif rule.use == "ending":
            self._over = True
        elif rule.use == "boot":
            self._boot(record, rule, match)

    def fail(self, record: Record, kind: str) -> None:
        """Note a line that says that something failed."""
        failure = Failure(record.line, kind, record.text.strip()[:_LONGEST_TEXT])
        self._count += 1
        if len(self._failures) < _MOST_KEPT:
            self._failures.append(failure)
        else:
            self._late.append(failure)

    def unknown(self, record: Record) -> None:
        """Look for the version in a line that the grammar does not know."""
        if "sglang" in record.text or "SGLang" in record.text:
            match = _VERSION.search(record.text)
            if match is not None:
                self._named = match[1]
                self._version = self._version or match[1]

    def _warn(self, record: Record, rule: Rule, match: re.Match[str]) -> None:
        values = {name: value for name, value in match.groupdict().items() if value is not None}
        warned = Warned(record.line, rule.name, record.text.strip()[:_LONGEST_TEXT], values)
        if len(self._warnings) < _MOST_KEPT:
            self._warnings.append(warned)
        if rule.starts and self._begun and len(self._held) < _MOST_KEPT:
            self._held.append(warned)

    def _boot(self, record: Record, rule: Rule, match: re.Match[str]) -> None:
        self._begun = True
        self._held.clear()
        self._named = None
        if rule.name.startswith("server-args"):
            self._arguments = self._masked(read_arguments(match["args"]))
            known = self.grammar.versions_of(self._arguments.values, complete=self._arguments.complete)
            self._range = self._range.narrowed(known.since, known.until)
        elif rule.name == "ready":
            self._ready = True
        elif rule.name == "http-up":
            self._http_up = True
        elif rule.name == "replayssm":
            self._replayssm = True
        elif rule.name == "timings":
            self._timings = _timings(match["timings"])
        else:
            self._memory(record, rule, match)

    def _masked(self, arguments: Arguments) -> Arguments:
        hidden = {name: _MASK for name, value in arguments.values.items() if value and name in self.grammar.secrets}
        return Arguments({**arguments.values, **hidden}, arguments.complete)

    def _memory(self, record: Record, rule: Rule, match: re.Match[str]) -> None:
        rank = self._ranks.get(record.rank)
        if rank is None:
            if len(self._ranks) >= _MOST_RANKS:
                return
            rank = self._ranks[record.rank] = RankLog(record.rank)
        take(rank, rule.name, match, speculative=bool(self._arguments.values.get("speculative_algorithm")))

    def result(self, *, unknown: int, cut: bool) -> BootLog:
        """The last start, as far as the records say."""
        ranks = sorted(self._ranks.values(), key=lambda rank: order(rank.rank))
        first = ranks[0] if ranks else RankLog()
        kept = [*self._failures, *self._late]
        return BootLog(
            version=self._version,
            version_range=self._range,
            server_args=dict(self._arguments.values),
            server_args_complete=self._arguments.complete,
            gpu_avail_before_weights_gib=first.gpu_avail_before_weights_gib,
            weights_begins=tuple(first.weights_begins),
            weights=tuple(first.weights),
            mamba=first.mamba,
            kv=tuple(first.kv),
            kv_upper_bound=tuple(first.kv_upper_bound),
            swa=tuple(first.swa),
            pool_end_avail_gib=first.pool_ends[-1] if first.pool_ends else None,
            pool_ends_gib=tuple(first.pool_ends),
            graphs=tuple(first.graphs),
            summary=first.summary,
            timings_s=self._timings,
            replayssm=self._replayssm,
            http_up=self._http_up,
            ready=self._ready,
            warnings=tuple(self._warnings),
            failures=tuple(kept),
            failures_left_out=self._count - len(kept),
            ranks=tuple(ranks),
            differences=tuple(_differences(first, ranks[1:])),
            boots=self.boots,
            first_line=self._first_line,
            unknown_lines=unknown,
            cut=cut,
        )


def _differences(first: RankLog, others: Iterable[RankLog]) -> list[RankDifference]:
    return list(chain.from_iterable(differences(first, other) for other in others))


def _timings(text: str) -> dict[str, float]:
    """`load_weight=0.19, cuda_graph={prefill=25.65, …}, …` in seconds, the inner ones as `cuda_graph.prefill`."""
    found: dict[str, float] = {}
    group = ""
    for part in text.split(", "):
        name, _, value = part.partition("=")
        if value.startswith("{"):
            group, (name, _, value) = name + ".", value[1:].partition("=")
        key, closes = group + name, value.endswith("}")
        try:
            found[key] = float(value.rstrip("}"))
        except ValueError:
            break
        group = "" if closes else group
    return found
