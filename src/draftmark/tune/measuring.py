"""What a trial measures, and when that counts for nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from draftmark.model import Counters, Workload

_START_TIMES, _START_MORE_S = 5.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a start is given up, and when a measurement is void.

    Attributes:
        start_timeout_s: Longest wait for ready.
        as_baseline_starts: Once the baseline has started, its own start says how long to wait, if that is less.
        request_timeout_s: Longest single request.
        max_error_rate: Share of failed requests above which a measurement is void.
        max_loop_lag_ms: p99 lag of our own event loop above which our clock is not to be trusted.
        max_foreign_cores: CPU cores that others may use beside a CPU-bound server; None: not looked at.
        quiet_timeout_s: How long a start waits for a busy host to become quiet.
    """

    start_timeout_s: float = 600.0
    as_baseline_starts: bool = False
    request_timeout_s: float = 120.0
    max_error_rate: float = 0.05
    max_loop_lag_ms: float = 100.0
    max_foreign_cores: float | None = None
    quiet_timeout_s: float = 12.0

    def start_s(self, baseline_s: float | None) -> float:
        """How long an arm may take to start when the slowest start of the baseline took `baseline_s`.

        A deeper draft loads a drafter, captures more CUDA graphs and compiles: several times as long is no fault.
        """
        if baseline_s is None or not self.as_baseline_starts:
            return self.start_timeout_s
        return min(self.start_timeout_s, _START_TIMES * baseline_s + _START_MORE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing that is measured in every trial: a workload at a concurrency."""

    workload: Workload
    concurrency: int
    warmup: int
    repeat: int

    @property
    def key(self) -> str:
        """`copy@4`."""
        return f"{self.workload.name}@{self.concurrency}"


def counters_between(before: Counters, after: Counters) -> Counters:
    """What happened between two readings of an engine's counters."""

    def minus(name: str) -> int | None:
        old, new = getattr(before, name), getattr(after, name)
        # Counters that appear with the first event count from nothing.
        return None if new is None else new - (old or 0)

    return Counters(
        drafts=minus("drafts"),
        drafted_tokens=minus("drafted_tokens"),
        accepted_tokens=minus("accepted_tokens"),
        output_tokens=minus("output_tokens"),
        by_position=tuple(
            new - old for new, old in zip_longest(after.by_position, before.by_position, fillvalue=0)
        ),
    )
