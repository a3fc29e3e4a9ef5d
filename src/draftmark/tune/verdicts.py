"""What a decision says: plain results of the statistics, one per axis."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio with its simultaneous confidence interval. Above 1 is better than the other."""

    ratio: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.ratio <= self.high:
            raise ValueError(f"{self.low} <= {self.ratio} <= {self.high} does not hold")


class Verdict(StrEnum):
    """What the figures allow to be said of one axis."""

    BETTER = "better"  # at least one arm is better than the baseline beyond noise
    KEEP = "keep"  # no arm is better: keep what you have
    INCONCLUSIVE = "inconclusive"  # noise or drift too large to say either


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisDecision:
    """The decision for one axis: a workload at a concurrency, or all workloads together.

    Attributes:
        axis: `copy@1`, `chat@4`, or `all@1`.
        workload: `copy`, or `all`.
        concurrency: Slots of the closed loop.
        unit: Always `tok/s`: decode speed of a single request at concurrency 1, aggregate output otherwise.
        baseline: Geometric mean of the baseline's figures.
        values: Per arm name: geometric mean of its figures.
        ratios: Per arm name: against the baseline.
        best: Arm with the highest figure; None when nothing was measured.
        choice: What to run: the shallowest of the ties, or the baseline.
        ties: Names of the arms within noise of the best, shallowest first.
        verdict: What can be said.
        because: One sentence.
        noise: Relative standard deviation of a trial, as estimated.
        drift: Baseline's end over its start; None when measured once.
    """

    axis: str
    workload: str
    concurrency: int
    unit: str
    baseline: float | None
    values: dict[str, float]
    ratios: dict[str, Interval]
    best: str | None
    choice: str | None
    ties: tuple[str, ...]
    verdict: Verdict
    because: str
    noise: float | None
    drift: Interval | None
