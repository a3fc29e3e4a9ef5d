"""Percentiles and the like, linear between ranks, of plain and of weighted values. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from draftmark.model import Spread


def percentile(ranked: Sequence[float], q: float) -> float | None:
    """Percentile q (0 to 100) of sorted values, linear between ranks; None when there are none."""
    if not ranked:
        return None
    at = (len(ranked) - 1) * q / 100
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)


def spread(values: Iterable[float]) -> Spread:
    """Mean, percentiles and maximum."""
    ranked = sorted(values)
    if not ranked:
        return Spread()
    p50, p90, p95, p99 = (percentile(ranked, q) for q in (50, 90, 95, 99))
    return Spread(mean=sum(ranked) / len(ranked), p50=p50, p90=p90, p95=p95, p99=p99, max=ranked[-1])


def weighted_spread(pairs: Iterable[tuple[float, int]]) -> Spread:
    """`spread` of each value repeated weight times, without the repetition."""
    ranked = sorted(pairs)
    ends = list(accumulate([weight for _, weight in ranked]))
    total = ends[-1] if ends else 0
    if not total:
        return Spread()

    def rank(index: int) -> float:
        return ranked[bisect_right(ends, index)][0]

    def at(q: float) -> float:
        exact = (total - 1) * q / 100
        low, high = rank(int(exact)), rank(min(int(exact) + 1, total - 1))
        return low + (high - low) * (exact - int(exact))

    mean = sum(value * weight for value, weight in ranked) / total
    return Spread(mean=mean, p50=at(50), p90=at(90), p95=at(95), p99=at(99), max=ranked[-1][0])
