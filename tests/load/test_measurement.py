from __future__ import annotations

import dataclasses
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.load.measurement import measure, steady_window, throughput
from draftmark.load.spreads import percentile, spread, weighted_spread
from draftmark.model import ClientHealth, Counters, RequestRecord, Spread, Window


def record(
    sent: float,
    chunks: list[tuple[float, float]],
    *,
    end: float | None = None,
    prompt: str = "p",
    concurrency: int = 1,
    warmup: bool = False,
    error: str | None = None,
    tokens: int | None = None,
    counts: str = "server",
    drafted: int | None = None,
    accepted: int | None = None,
) -> RequestRecord:
    """A request whose chunks arrived at (seconds since sent, cumulative tokens)."""
    return RequestRecord(
        tag="bench-1",
        workload="w",
        prompt_id=prompt,
        concurrency=concurrency,
        warmup=warmup,
        sent_at_s=sent,
        first_token_at_s=sent + chunks[0][0] if chunks else None,
        last_token_at_s=sent + chunks[-1][0] if chunks else None,
        end_at_s=end if end is not None else sent + (chunks[-1][0] if chunks else 0.0),
        chunks=tuple(chunks),
        chunk_counts=counts,
        prompt_tokens=10,
        output_tokens=tokens if tokens is not None else (int(chunks[-1][1]) if chunks else None),
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        error=error,
    )


def stream(tokens: int, *, ttft: float, interval: float, per_chunk: int = 1) -> list[tuple[float, float]]:
    counts = [*range(per_chunk, tokens, per_chunk), tokens]
    return [(ttft + i * interval, float(n)) for i, n in enumerate(counts)]


def closed_loop(
    concurrency: int, jobs: list[list[tuple[float, float]]], *, warmup: int = 0, gap: float = 0.0
) -> list[RequestRecord]:
    """What a closed loop makes of these answers: each goes to the slot that is free first."""
    free = [0.0] * concurrency
    out = []
    for i, chunks in enumerate(jobs):
        slot = min(range(concurrency), key=free.__getitem__)
        made = record(free[slot], chunks, concurrency=concurrency, warmup=i < warmup, prompt=f"p{i}")
        out.append(dataclasses.replace(made, tag=f"bench-{i + 1}"))
        free[slot] = out[-1].end_at_s + gap
    return out


ANSWERS = st.builds(
    stream,
    st.integers(1, 60),
    ttft=st.floats(0.001, 3.0),
    interval=st.floats(0.001, 0.5),
    per_chunk=st.integers(1, 5),
)


@st.composite
def loops(draw: st.DrawFn) -> tuple[int, int, list[RequestRecord]]:
    concurrency = draw(st.integers(1, 5))
    warmup = draw(st.integers(0, concurrency))
    jobs = draw(st.lists(ANSWERS, min_size=warmup + 1, max_size=warmup + 12))
    return (
        concurrency,
        warmup,
        closed_loop(concurrency, jobs, warmup=warmup, gap=draw(st.sampled_from([0.0, 0.01]))),
    )


@given(loops(), st.randoms(use_true_random=False))
def test_what_holds_of_every_closed_loop(
    loop: tuple[int, int, list[RequestRecord]], shuffle: random.Random
) -> None:
    concurrency, warmup, records = loop
    shuffled = records[:]
    shuffle.shuffle(shuffled)
    got = measure(shuffled, workload="w", concurrency=concurrency)
    measured = records[warmup:]
    assert got == measure(records, workload="w", concurrency=concurrency)
    assert got.requests == len(measured)
    assert got.output_tokens == sum(r.output_tokens or 0 for r in measured)
    assert got.prompt_tokens == 10 * len(measured)
    begin, end = measured[0].sent_at_s, max(r.end_at_s for r in measured)
    assert got.duration_s == pytest.approx(end - begin)
    assert got.window is not None
    assert begin <= got.window.start_at_s <= got.window.end_at_s <= end
    if got.window.whole:
        assert (got.window.start_at_s, got.window.end_at_s) == (begin, end)
        if not warmup:
            assert got.output_tok_s is not None
            assert got.output_tok_s * got.duration_s == pytest.approx(got.output_tokens)
    else:
        assert got.window.end_at_s - got.window.start_at_s >= got.duration_s / 2
        for time in (got.window.start_at_s, got.window.end_at_s - 1e-9):  # no slot is idle for good
            later = [r for r in records if r.sent_at_s > time]
            busy = [r for r in records if r.sent_at_s <= time <= r.end_at_s]
            assert len(busy) + len(later) >= concurrency
    assert [p for p, _ in got.decode_tok_s] == [r.prompt_id for r in measured if len(r.chunks) > 1]
    # pooled per token: sums of gaps and of shares agree
    gaps = sum(b - a for r in measured for (a, _), (b, _) in zip(r.chunks, r.chunks[1:], strict=False))
    rest = sum(r.chunks[-1][1] - r.chunks[0][1] for r in measured)
    if rest:
        assert (got.itl_ms.mean or 0.0) * rest == pytest.approx(gaps * 1e3)


@given(loops(), st.floats(0.0, 1.0))
def test_tokens_of_neighbouring_windows_add_up(loop: tuple[int, int, list[RequestRecord]], share: float) -> None:
    _, _, records = loop
    end = max(r.end_at_s for r in records) + 1e-9  # of a sum of times the last digit may be above it
    middle = end * share

    def tokens(a: float, b: float) -> float:
        return (throughput(records, Window(start_at_s=a, end_at_s=b)) or 0.0) * (b - a)

    total = sum(r.output_tokens or 0 for r in records)
    assert tokens(0.0, end) == pytest.approx(total)
    assert tokens(0.0, middle) + tokens(middle, end) == pytest.approx(total)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.floats(0.002, 0.1), st.integers(1, 4), st.integers(0, 1))
def test_a_stream_of_known_rate_gives_that_rate(
    concurrency: int, interval: float, per_chunk: int, warmups: int
) -> None:
    jobs = [stream(250 * per_chunk, ttft=interval, interval=interval, per_chunk=per_chunk)] * (concurrency * 4)
    records = closed_loop(concurrency, jobs, warmup=warmups * concurrency)
    got = measure(records, workload="w", concurrency=concurrency)
    assert got.window is not None
    assert not got.window.whole
    assert got.output_tok_s == pytest.approx(concurrency * per_chunk / interval, rel=0.01)
    assert got.tpot_ms.p50 == pytest.approx(interval * 1e3 / per_chunk, rel=0.01)
    assert got.itl_ms.p99 == pytest.approx(interval * 1e3 / per_chunk, rel=1e-6)
    assert got.chunk_gap_ms.p50 == pytest.approx(interval * 1e3, rel=1e-6)
    assert all(rate == pytest.approx(per_chunk / interval, rel=0.01) for _, rate in got.decode_tok_s)


def test_by_hand() -> None:
    one = record(1.0, [(0.5, 1.0), (1.0, 3.0), (2.0, 4.0)], end=3.1)
    got = measure([one], workload="w", concurrency=1, client=ClientHealth(cpu_s=1.0), assumptions=("a",))
    assert got.duration_s == pytest.approx(2.1)
    assert got.ttft_ms.p50 == pytest.approx(500)
    assert got.tpot_ms.mean == pytest.approx(500)
    assert got.e2e_ms.max == pytest.approx(2100)
    assert got.itl_ms.mean == pytest.approx((250 + 250 + 1000) / 3)
    assert got.itl_ms.p50 == pytest.approx(250)
    assert got.chunk_gap_ms.mean == pytest.approx(750)
    assert [(name, round(rate, 6)) for name, rate in got.decode_tok_s] == [("p", 2.0)]
    # from the first token to the end: 3 tokens in 1.6 s
    assert got.window == Window(start_at_s=1.5, end_at_s=3.1)
    assert got.output_tok_s == pytest.approx(3 / 1.6)
    assert (got.client.cpu_s, got.assumptions) == (1.0, ("a",))


def test_borders_are_interpolated_between_chunks() -> None:
    one = record(0.0, [(1.0, 1.0), (2.0, 5.0)])
    assert throughput([one], Window(start_at_s=1.5, end_at_s=1.75)) == pytest.approx(4.0)
    assert throughput([one], Window(start_at_s=0.0, end_at_s=1.0)) == pytest.approx(1.0)
    assert throughput([one], Window(start_at_s=1.0, end_at_s=2.0)) == pytest.approx(4.0)
    assert throughput([one], Window(start_at_s=2.0, end_at_s=3.0)) is None


def test_chunks_of_one_read_share_their_gap() -> None:
    one = record(0.0, [(1.0, 1.0), (2.0, 2.0), (2.0, 3.0), (2.0, 5.0)])
    got = measure([one], workload="w", concurrency=1)
    assert got.itl_ms.p50 == pytest.approx(250)
    assert got.itl_ms.max == pytest.approx(250)
    assert got.chunk_gap_ms.max == pytest.approx(1000)
    assert got.chunk_gap_ms.p50 == 0


def test_it_is_told_when_many_chunks_came_together() -> None:
    apart = record(0.0, [(0.1 + i * 0.02, float(i + 1)) for i in range(200)])
    pairs = record(9.0, [(0.1 + (i // 2) * 0.04, float(i + 1)) for i in range(200)])
    assert measure([apart], workload="w", concurrency=1).notes == ()
    (note,) = measure([apart, pairs], workload="w", concurrency=1).notes
    assert note.startswith("100 of 398 chunks came together")


def test_shared_counts_stay_whole_tokens() -> None:
    chunks = [(float(i), 10 * (i + 1) / 4) for i in range(4)]  # 2.5, 5, 7.5, 10
    got = measure([record(0.0, chunks, counts="spread")], workload="w", concurrency=1)
    assert got.itl_ms.mean == pytest.approx(3000 / 8)
    fewer = [(float(i), 2 * (i + 1) / 4) for i in range(4)]  # 0.5, 1, 1.5, 2: some gaps carry no whole token
    got = measure([record(0.0, fewer, counts="spread")], workload="w", concurrency=1)
    assert got.itl_ms.mean == pytest.approx(1000)


def test_the_window_runs_from_the_last_first_token_until_a_slot_stays_empty() -> None:
    a = [(0.1, 1.0), (4.0, 40.0)]
    b = [(0.9, 1.0), (5.0, 40.0)]
    records = closed_loop(2, [a, b, a, b, a, b])  # slots end at 4, 8, 12 and 5, 10, 15
    assert steady_window(records, 2) == Window(start_at_s=0.9, end_at_s=12.0)
    # with warm-up, not before the first measured request was sent
    records = closed_loop(2, [a, b, a, b, a, b], warmup=2)
    assert steady_window(records, 2) == Window(start_at_s=4.0, end_at_s=12.0)


def test_slots_that_end_at_the_same_time_are_told_apart() -> None:
    """Servers step all streams together, so that several end at once: the first without a successor counts."""
    same = [(0.1, 1.0), (4.0, 40.0)]
    records = closed_loop(2, [same] * 5, gap=0.001)
    assert steady_window(records, 2) == Window(start_at_s=0.1, end_at_s=records[3].end_at_s)
    assert records[4].sent_at_s > records[3].end_at_s


def test_the_whole_is_taken_when_the_steady_part_is_short() -> None:
    long, short = [(0.1, 1.0), (10.0, 100.0)], [(0.1, 1.0), (1.0, 10.0)]
    got = measure(closed_loop(2, [long, short]), workload="w", concurrency=2)
    assert got.window == Window(start_at_s=0.0, end_at_s=10.0, whole=True)
    assert got.output_tok_s == pytest.approx(11.0)
    alone = measure([record(0.0, long, concurrency=4)], workload="w", concurrency=4)
    assert alone.window is not None
    assert alone.window.whole


def test_errors_are_counted_by_kind_and_enter_no_other_figure() -> None:
    good = record(0.0, [(0.5, 1.0), (1.0, 2.0)])
    bad = [
        record(1.0, [(0.5, 1.0), (1.0, 9.0)], error="reset"),
        record(2.0, [], end=2.5, error="http-500"),
        record(2.5, [], end=3.0, error="http-500"),
    ]
    got = measure([good, *bad], workload="w", concurrency=1)
    assert got.errors == {"http-500": 2, "reset": 1}
    assert (got.requests, got.output_tokens) == (1, 2)
    assert got.duration_s == 3.0
    assert got.ttft_ms.max == pytest.approx(500)
    assert got.output_tok_s is not None
    assert got.output_tok_s <= 2 / 2.5


def test_a_request_cut_at_our_limit_counts_for_throughput_only() -> None:
    done = record(0.0, [(1.0, 2.0), (2.0, 4.0)], counts="spread")
    cut = record(2.0, [(1.0, 1.0), (2.0, 2.0)], error="cut", counts="chunks", end=4.0)
    cut = dataclasses.replace(cut, output_tokens=None)
    got = measure([done, cut], workload="w", concurrency=1)
    assert (got.requests, got.errors, got.output_tokens) == (1, {}, 4)
    assert got.window == Window(start_at_s=1.0, end_at_s=4.0)
    assert got.output_tok_s == pytest.approx((2 + 4) / 3)  # two tokens a chunk, as in the completed one


def test_nothing_measured() -> None:
    for records in ([], [record(0.0, [(1.0, 1.0)], warmup=True)], [record(0.0, [], end=0.0, error="dns")]):
        got = measure(records, workload="w", concurrency=1)
        assert (got.requests, got.output_tok_s, got.decode_tok_s, got.prompt_tokens) == (0, None, (), None)
        assert got.ttft_ms == got.tpot_ms == got.itl_ms == got.chunk_gap_ms == got.e2e_ms == Spread()
        assert got.acceptance is None
    assert measure([], workload="w", concurrency=1).window is None


def test_records_of_other_axes_are_passed_over() -> None:
    mine = record(0.0, [(1.0, 1.0), (2.0, 2.0)])
    other = dataclasses.replace(mine, workload="x", sent_at_s=-5.0)
    slots = dataclasses.replace(mine, concurrency=4)
    assert measure([other, mine, slots], workload="w", concurrency=1) == measure(
        [mine], workload="w", concurrency=1
    )


def test_acceptance_from_the_requests() -> None:
    chunks = [(1.0, 1.0), (2.0, 10.0)]
    records = [
        record(0.0, chunks, drafted=50, accepted=50, warmup=True),
        record(2.0, chunks, drafted=8, accepted=4),
        record(4.0, chunks, drafted=0, accepted=0),
        record(6.0, chunks),
        record(8.0, chunks, drafted=8, accepted=4, error="reset"),
    ]
    got = measure(records, workload="w", concurrency=1).acceptance
    assert got is not None
    assert (got.source, got.drafts, got.drafted_tokens, got.accepted_tokens) == ("requests", None, 8, 4)
    assert got.output_tokens == 20
    assert got.accept_len is None
    assert got.tokens_per_step == pytest.approx(20 / 16)


def test_acceptance_from_the_counters_takes_in_the_warm_up() -> None:
    chunks = [(1.0, 1.0), (2.0, 10.0)]
    records = [record(0.0, chunks, warmup=True, drafted=1, accepted=1), record(2.0, chunks, drafted=1, accepted=1)]
    counters = Counters(drafts=5, drafted_tokens=12, accepted_tokens=10)
    got = measure(records, workload="w", concurrency=1, counters=counters).acceptance
    assert got is not None
    assert (got.source, got.output_tokens) == ("counters", 20)
    assert got.accept_len == pytest.approx(3.0)
    own = measure(records, workload="w", concurrency=1, counters=dataclasses.replace(counters, output_tokens=21))
    assert own.acceptance is not None
    assert own.acceptance.output_tokens == 21
    silent = measure(records, workload="w", concurrency=1, counters=Counters())
    assert silent.acceptance is not None
    assert silent.acceptance.source == "requests"


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=40))
def test_percentiles_are_linear_between_ranks(values: list[float]) -> None:
    got = spread(values)
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    for q, cut in ((50, got.p50), (90, got.p90), (95, got.p95), (99, got.p99)):
        assert cut == pytest.approx(cuts[q - 1], abs=1e-6)
        assert percentile(sorted(values), q) == pytest.approx(cuts[q - 1], abs=1e-6)
    assert got.mean == pytest.approx(statistics.fmean(values))
    assert got.max == max(values)


@given(st.lists(st.tuples(st.floats(0, 1e3), st.integers(0, 5)), max_size=20))
def test_weights_are_repetitions(pairs: list[tuple[float, int]]) -> None:
    long = spread([value for value, weight in pairs for _ in range(weight)])
    short = weighted_spread(pairs)
    for field in ("mean", "p50", "p90", "p95", "p99"):
        assert getattr(short, field) == pytest.approx(getattr(long, field))


def test_a_token_that_comes_as_the_window_ends_is_in_it() -> None:
    """2.01 - 1.01 is a little less than 1."""
    got = measure(closed_loop(2, [[(1.0, 1.0)]] * 3, gap=0.01), workload="w", concurrency=2)
    assert got.output_tok_s is not None
    assert got.output_tok_s * got.duration_s == pytest.approx(3)
