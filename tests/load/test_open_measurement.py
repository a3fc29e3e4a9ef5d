"""What is told of an open loop, of whole answers, and of kinds of text."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.load.measurement import measure, steady_window
from draftmark.model import Window

from .records import record, stalled_open_loop, stream


def test_a_stall_shows_in_the_latency_from_the_intended_send_and_not_in_the_plain_one() -> None:
    """Twenty a second through four slots, and a server that stands still for two seconds after three."""
    records = stalled_open_loop(200, rate=20.0, slots=4, stall=(3.0, 5.0), answer_s=0.1)
    got = measure(records, workload="w", concurrency=4)
    assert got.loop == "open"
    assert got.ttft_ms.p95 == pytest.approx(100, abs=1)
    assert got.ttft_intended_ms.p95 is not None
    assert got.ttft_intended_ms.p95 > 1500
    assert got.e2e_intended_ms.max == pytest.approx(2200, abs=60)
    assert got.queue_ms.max is not None
    assert got.queue_ms.max > 1500
    assert got.request_rate_wanted == pytest.approx(20.0)
    assert got.completed_req_s == pytest.approx(200 / got.duration_s)


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 3), st.floats(0.01, 2)), min_size=1, max_size=30),
    st.booleans(),
)
def test_waiting_adds_up(plan: list[tuple[float, float, float]], late: bool) -> None:
    records = [
        record(at + wait * late, stream(5, ttft=ttft, interval=0.01), intended_at_s=at, tag=f"bench-{i}")
        for i, (at, wait, ttft) in enumerate(plan)
    ]
    got = measure(records, workload="w", concurrency=1)
    assert got.queue_ms.mean is not None
    assert got.ttft_ms.mean is not None
    assert got.e2e_ms.mean is not None
    assert got.ttft_intended_ms.mean == pytest.approx(got.queue_ms.mean + got.ttft_ms.mean)
    assert got.e2e_intended_ms.mean == pytest.approx(got.queue_ms.mean + got.e2e_ms.mean)
    assert got.duration_s == pytest.approx(max(r.end_at_s for r in records) - min(at for at, _, _ in plan))
    assert got.window is not None
    assert min(at for at, _, _ in plan) <= got.window.start_at_s <= got.window.end_at_s


def test_a_closed_loop_has_no_intended_figures() -> None:
    got = measure([record(0.0, stream(3, ttft=0.1, interval=0.1))], workload="w", concurrency=1)
    assert got.loop == "closed"
    assert (
        got.queue_ms.p50 is got.ttft_intended_ms.p50 is got.e2e_intended_ms.p50 is got.request_rate_wanted is None
    )


def test_the_window_of_an_open_loop_leaves_out_the_first_answers_and_the_drain() -> None:
    chunks = stream(11, ttft=0.5, interval=0.05)  # one second each
    records = [record(i / 10, chunks, intended_at_s=i / 10, tag=f"bench-{i}", concurrency=0) for i in range(101)]
    assert steady_window(records, 0) == Window(start_at_s=1.0, end_at_s=10.0)
    got = measure(records, workload="w", concurrency=0)
    assert got.output_tok_s == pytest.approx(110, rel=0.01)
    assert got.notes == ()
    few = steady_window(records[:4], 0)
    assert few is not None
    assert few.whole


def test_a_server_that_does_not_keep_up_is_told() -> None:
    """Ten a second, five a second answered, one after the other."""
    records = [
        record(i / 5, stream(3, ttft=0.1, interval=0.04), intended_at_s=i / 10, tag=f"bench-{i}")
        for i in range(200)
    ]
    (note,) = measure(records, workload="w", concurrency=1).notes
    assert "did not keep up" in note


def test_an_answer_that_came_whole_has_no_times_of_tokens() -> None:
    whole = [record(float(i), end_at_s=i + 1.0, output_tokens=20, tag=f"bench-{i}") for i in range(4)]
    got = measure(whole, workload="w", concurrency=1)
    assert got.requests == 4
    assert got.ttft_ms.p50 is got.tpot_ms.p50 is got.itl_ms.p50 is got.chunk_tokens.p50 is None
    assert got.e2e_ms.p50 == pytest.approx(1000)
    assert got.output_tok_s == pytest.approx(20)
    assert got.total_tok_s == pytest.approx(30)


def test_the_total_rate_needs_every_prompt_counted() -> None:
    records = [record(0.0, stream(3, ttft=0.1, interval=0.1)), record(1.0, stream(3, ttft=0.1, interval=0.1))]
    records[1] = dataclasses.replace(records[1], prompt_tokens=None)
    assert measure(records, workload="w", concurrency=1).total_tok_s is None


def test_tokens_per_chunk_are_counted_where_the_server_counts_them() -> None:
    told = record(0.0, [(0.1, 1.0), (0.2, 4.0), (0.3, 5.0), (0.4, 5.0)])
    got = measure([told], workload="w", concurrency=1)
    assert got.chunk_sizes == ((0, 1), (1, 2), (3, 1))
    assert got.chunk_tokens.mean == pytest.approx(5 / 4)
    shared = dataclasses.replace(told, chunk_counts="spread")
    assert measure([shared], workload="w", concurrency=1).chunk_sizes == ()


def test_kinds_of_text_are_told_apart() -> None:
    def one(category: str | None, accepted: int, histogram: tuple[int, ...]) -> object:
        return record(
            0.0,
            stream(10, ttft=0.1, interval=0.1),
            category=category,
            drafted_tokens=12,
            accepted_tokens=accepted,
            accepted_histogram=histogram,
        )

    records = [one("code", 6, (1, 2, 2)), one("chat", 1, (8, 1)), one("code", 5, (2, 1, 2)), one(None, 0, (9,))]
    got = measure(records, workload="w", concurrency=1)  # type: ignore[arg-type]
    code, chat = got.categories
    assert (code.name, code.requests, code.output_tokens, chat.name) == ("code", 2, 20, "chat")
    assert code.acceptance is not None
    assert chat.acceptance is not None
    assert code.acceptance.histogram == (3, 3, 4)
    assert code.acceptance.accept_len == pytest.approx(1 + 11 / 10)
    assert chat.acceptance.accept_len == pytest.approx(1 + 1 / 9)
    assert got.acceptance is not None
    assert got.acceptance.histogram == (20, 4, 4)


def test_what_we_cut_is_counted_apart() -> None:
    records = [
        record(0.0, stream(3, ttft=0.1, interval=0.1)),
        record(1.0, [], error="cut", end_at_s=2.0),
        record(1.0, [], error="http-500", end_at_s=2.0),
    ]
    got = measure(records, workload="w", concurrency=1)
    assert (got.requests, got.cut, got.errors) == (1, 1, {"http-500": 1})
