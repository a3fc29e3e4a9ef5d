"""Intervals hold what another run of the same load gives."""

from __future__ import annotations

import random

import pytest

from draftmark.load.intervals import _T, between, figures, within
from draftmark.load.measurement import belonging, measure
from draftmark.model import Interval, RequestRecord

from .records import record, stream


def noisy_run(seed: int, requests: int = 64, slots: int = 4) -> list[RequestRecord]:
    """A closed loop whose times scatter, and in which now and then a whole stretch is slow."""
    rng = random.Random(seed)
    free = [0.0] * slots
    out = []
    slow_until = 0.0
    for i in range(requests):
        slot = min(range(slots), key=free.__getitem__)
        if rng.random() < 0.03:
            slow_until = free[slot] + 2.0
        factor = 1.3 if free[slot] < slow_until else 1.0
        chunks = stream(40, ttft=factor * rng.uniform(0.05, 0.08), interval=factor * rng.uniform(0.018, 0.022))
        out.append(record(free[slot], chunks, tag=f"bench-{i + 1}", concurrency=slots))
        free[slot] = out[-1].end_at_s + 0.001
    return out


def stated(records: list[RequestRecord]) -> tuple[dict[str, float | None], dict[str, Interval]]:
    m = measure(records, workload="w", concurrency=4)
    return figures(m), within(belonging(records, "w", 4), m)


@pytest.mark.no_cover
def test_another_run_lies_in_the_interval_nineteen_times_in_twenty() -> None:
    tried: dict[str, list[bool]] = {}
    for pair in range(60):
        (_, intervals), (second, _) = stated(noisy_run(2 * pair, 200)), stated(noisy_run(2 * pair + 1, 200))
        for name, interval in intervals.items():
            value = second[name]
            assert value is not None
            tried.setdefault(name, []).append(interval.low <= value <= interval.high)
    assert {"output_tok_s", "ttft_ms.p50", "tpot_ms.p99", "itl_ms.p50", "e2e_ms.mean"} <= set(tried)
    missed = {name: hits.count(False) for name, hits in tried.items()}
    assert sum(missed.values()) <= 0.06 * 60 * len(missed)
    # A quantile where the figures jump from one level to another, here at p90, is the hardest to bound.
    for name in ("output_tok_s", "ttft_ms.p50", "ttft_ms.p99", "tpot_ms.mean", "itl_ms.p99", "e2e_ms.p50"):
        assert missed[name] <= 5, missed


def stepped_run(seed: int) -> list[RequestRecord]:
    """Chunks of one to four tokens every 20 ms: latencies of tokens come in four steps, with p90 on an edge."""
    rng = random.Random(seed)
    out = []
    for i in range(96):
        tokens, chunks = 1, [(0.1, 1.0)]
        for place in range(1, 24):
            tokens += rng.choices((1, 2, 3, 4), (0.255, 0.2, 0.28, 0.265))[0]
            chunks.append((0.1 + 0.02 * place + rng.gauss(0.0, 0.0002), float(tokens)))
        out.append(record(i * 0.6, chunks, tag=f"bench-{i + 1}", concurrency=4))
    return out


@pytest.mark.no_cover
def test_figures_that_come_in_steps() -> None:
    missed = dict.fromkeys(("itl_ms.p50", "itl_ms.p90", "itl_ms.p95", "itl_ms.p99"), 0)
    for pair in range(60):
        (_, intervals), (second, _) = stated(stepped_run(2 * pair)), stated(stepped_run(2 * pair + 1))
        for name in missed:
            value = second[name]
            assert value is not None
            missed[name] += not intervals[name].low <= value <= intervals[name].high
    assert max(missed.values()) <= 3, missed


def test_intervals_are_not_so_wide_that_they_say_nothing() -> None:
    values, intervals = stated(noisy_run(5, requests=200))
    for name in ("output_tok_s", "ttft_ms.p50", "tpot_ms.p50", "itl_ms.mean"):
        value, interval = values[name], intervals[name]
        assert value is not None
        assert interval.low < value < interval.high
        assert interval.high - interval.low < 0.5 * value


def test_no_interval_is_narrower_than_the_clock_can_tell() -> None:
    same = [
        record(i * 2.0, stream(40, ttft=0.010, interval=0.02), tag=f"bench-{i}", concurrency=4) for i in range(40)
    ]
    values, intervals = stated(same)
    assert values["ttft_ms.p50"] == pytest.approx(10)
    assert intervals["ttft_ms.p50"].high == pytest.approx(10.3)
    assert intervals["e2e_ms.p50"].high == pytest.approx(790 * 1.01)


def test_few_requests_have_no_interval() -> None:
    assert stated(noisy_run(1, requests=19))[1] == {}
    assert stated(noisy_run(1, requests=20))[1] != {}


def test_between_runs() -> None:
    means, intervals = between([{"a_ms": 10.0, "b": 5.0}, {"a_ms": 12.0, "b": None}, {"a_ms": 14.0, "b": 6.0}])
    assert means == {"a_ms": 12.0, "b": None}
    assert set(intervals) == {"a_ms"}
    assert intervals["a_ms"].high - 12 == pytest.approx(_T[1] * 2.0 / 3**0.5 * 2**0.5)
    assert between([{"a_ms": 1.0}]) == ({"a_ms": 1.0}, {})
    assert between([]) == ({}, {})


def test_the_table_of_t() -> None:
    statistics = pytest.importorskip("draftmark.tune.statistics")
    for df, value in enumerate(_T, 1):
        assert value == pytest.approx(statistics.t_quantile(0.975, df), abs=0.0006)
