"""Goodput: how many requests a second were served as well as was asked for. Pure.

A request counts when it completed and each of its own figures is within its limit; a failed one misses it. In an
open loop TTFT and E2E are those from the intended send: a user who waited for a slot has waited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from draftmark.errors import UsageError
from draftmark.load.timings import CUT, e2e_ms, intended_s, tokens_of, tpot_ms, ttft_ms
from draftmark.model import Goodput, RequestRecord

_NAMES = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e", "e2el": "e2e"}  # the last is vLLM's name
_LIMIT = re.compile(r"([a-z0-9]+):([0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Longest that a request may take, in milliseconds; None is no limit.

    Attributes:
        ttft_ms: To the first token.
        tpot_ms: Per token after the first.
        e2e_ms: To the end.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    @property
    def limits_ms(self) -> dict[str, float]:
        """The limits that there are, by name."""
        every = {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "e2e": self.e2e_ms}
        return {name: limit for name, limit in every.items() if limit is not None}

    @property
    def streamed(self) -> bool:
        """Whether it can only be judged of an answer that comes as a stream."""
        return self.ttft_ms is not None or self.tpot_ms is not None

    def met_by(self, record: RequestRecord) -> bool:
        """Whether a measured request was served so. What was not seen is not known to be within its limit."""
        if record.error is not None:
            return False
        first = ttft_ms(record, intended=True)
        if self.ttft_ms is not None and (first is None or first > self.ttft_ms):
            return False
        if self.tpot_ms is not None and tokens_of(record) > 1:
            per_token = tpot_ms(record)  # None where all tokens came at once, and took no time each
            if not record.chunks or (per_token is not None and per_token > self.tpot_ms):
                return False
        return self.e2e_ms is None or e2e_ms(record, intended=True) <= self.e2e_ms


def parse_slo(words: Iterable[str]) -> Slo:
    """`ttft:500,tpot:30,e2e:9000`, or the same in several words, in milliseconds.

    Raises:
        UsageError: It is something else.
    """
    found: dict[str, float] = {}
    for part in (part.strip() for word in words for part in word.split(",")):
        match = _LIMIT.fullmatch(part)
        name = _NAMES.get(match[1]) if match else None
        if match is None or name is None or name in found or not 0 < float(match[2]) < 1e9:
            raise UsageError(
                "a limit is NAME:MILLISECONDS, with each of the names ttft, tpot and e2e at most once",
                evidence=(part[:60] or "nothing between two commas",),
                next_step="--slo ttft:500,tpot:30,e2e:9000",
            )
        found[name] = float(match[2])
    return Slo(ttft_ms=found.get("ttft"), tpot_ms=found.get("tpot"), e2e_ms=found.get("e2e"))


def goodput(records: Sequence[RequestRecord], slo: Slo) -> Goodput:
    """Of the measured requests of one measurement.

    Args:
        records: Warm-up included; requests that we cut ourselves are not judged.
        slo: The limits.
    """
    measured = [r for r in records if not r.warmup]
    judged = [r for r in measured if r.error != CUT]
    good = sum(slo.met_by(r) for r in judged)
    seconds = max((r.end_at_s for r in measured), default=0.0) - min(map(intended_s, measured), default=0.0)
    return Goodput(
        limits_ms=slo.limits_ms,
        requests=len(judged),
        good=good,
        req_s=good / seconds if judged and seconds > 0 else None,
    )
