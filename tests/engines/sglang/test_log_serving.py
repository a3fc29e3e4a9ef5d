"""Batch statistics: every version's order of fields, medians of long streams, retractions."""

import random
from statistics import median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.sglang.log import read_log
from draftmark.engines.sglang.log.serving import ServingStats, Streaming


def served(*texts: str) -> ServingStats:
    return read_log(f"[2026-01-01 00:00:00] {text}\n" for text in texts).serving


def test_accept_length_counts_the_rate_does_not() -> None:
    """2.00 of 4 is a rate of 0.50 in 0.5.10, and 0.33 from 0.5.12: the same acceptance."""
    old = "Decode batch, #running-req: 1, #token: 9, token usage: 0.01, accept len: 2.00, accept rate: 0.50, "
    new = old.replace("0.50", "0.33")
    end = "cuda graph: True, gen throughput (token/s): 10.00, #queue-req: 0"
    assert served(old + end) == served(new + end)
    assert "accept_rate" not in ServingStats.__dataclass_fields__


def test_disaggregated_decode() -> None:
    stats = served(
        "Decode batch, #running-req: 7, #token: 900, token usage: 0.25, pre-allocated usage: 0.10, "
        "#prealloc-req: 3, #transfer-req: 1, #retracted-req: 2, cuda graph: False, "
        "gen throughput (token/s): 99.50, #queue-req: 5"
    )
    assert stats.running is not None
    assert stats.running.last == 7
    assert stats.queue is not None
    assert stats.queue.last == 5
    assert (stats.decode_with_graph, stats.decode_without_graph) == (0, 1)


@pytest.mark.parametrize("label", ["cuda graph", "cpu graph", "npu graph", "musa graph"])
def test_the_label_of_a_graph(label: str) -> None:
    stats = served(f"Decode batch, #running-req: 1, {label}: True, gen throughput (token/s): 1.00, #queue-req: 0")
    assert stats.decode_with_graph == 1


def test_divided_pools() -> None:
    stats = served(
        "Prefill batch, #new-seq: 1, #new-token: 5, #cached-token: 2, full token usage: 0.30, "
        "swa token usage: 0.40, mamba usage: 0.50, #running-req: 0, #queue-req: 3, cuda graph: True, "
        "input throughput (token/s): 8.00"
    )
    usage = (stats.token_usage, stats.swa_usage, stats.mamba_usage)
    assert [figure and figure.last for figure in usage] == [0.3, 0.4, 0.5]
    assert (stats.new_tokens, stats.cached_tokens, stats.prefill_batches) == (5, 2, 1)
    assert stats.running is None  # what a prefill counts as running is not the batch


def test_retractions() -> None:
    stats = served(
        "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 1, #new_token_ratio: 0",
        "Testing retraction. #retracted_reqs: 2, #new_tokens_gained: 100",
        "retract_decode: aborted last request abc due to OOM",
    )
    assert (stats.retractions, stats.retracted_requests, stats.aborted_requests) == (2, 5, 1)


def test_ranks_that_say_the_same_count_once() -> None:
    """Every TP rank retracts and says so; two replicas are two servers."""
    retract = "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 1"
    ranks = ("DP0 TP0", "DP0 TP1", "DP1 TP2", "DP1 TP3")
    stats = read_log(f"[2026-01-01 00:00:00 {rank}] {retract}\n" for rank in ranks).serving
    assert (stats.retractions, stats.retracted_requests) == (2, 6)


def test_the_parents_word_does_not_silence_the_ranks() -> None:
    lines = ["[2026-01-01 00:00:00] retract_decode: aborted last request abc due to OOM\n"]
    lines += [f"[2026-01-01 00:00:00 TP{i % 2}] Decode batch, #running-req: 1, #queue-req: 0\n" for i in range(6)]
    assert read_log(lines).serving.decode_lines == 3


def test_nothing_served() -> None:
    stats = served("Memory pool end. avail mem=1.00 GB")
    assert stats.decode_lines == stats.prefill_batches == 0
    assert stats.accept_len is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_medians_are_exact_while_values_are_few(values: list[float]) -> None:
    stream = Streaming()
    for value in values:
        stream.add(repr(value))
    assert stream.figure() == (len(values), values[-1], median_low(values), max(values))


def test_medians_of_long_streams_are_close_and_small() -> None:
    dice = random.Random(1)
    values = [dice.lognormvariate(6, 1) for _ in range(50_000)]
    stream = Streaming()
    for value in values:
        stream.add(repr(value))
    figure = stream.figure()
    assert figure is not None
    assert figure.median == pytest.approx(median_low(values), rel=0.002)
    assert figure.largest == max(values)
    assert len(stream.tally) < 20_000
