"""Files for the readers of other tools: their keys, their units, their definitions."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from draftmark.load.exports import About, sglang_result, vllm_result
from draftmark.load.measurement import belonging, measure
from draftmark.model import Counters, RequestRecord

from .records import record, stream

ABOUT = About(api="openai-chat", engine="vllm", model="m/x", date="20261130-034000", goodput_req_s=0.5)

STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
# As documented in the tools' sources: what their own readers and the scripts around them look up.
VLLM_KEYS = {
    "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens",
    "total_output_tokens", "request_throughput", "request_goodput", "output_throughput",
    "total_token_throughput", "input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts",
    "errors", "max_output_tokens_per_s", "max_concurrent_requests",
    *(f"{s}_{f}_ms" for s in STATISTICS for f in ("ttft", "tpot", "itl", "e2el")),
}  # fmt: skip
SGLANG_KEYS = {
    "tag", "backend", "dataset_name", "request_rate", "max_concurrency", "sharegpt_output_len",
    "random_input_len", "random_output_len", "random_range_ratio", "server_info", "duration", "completed",
    "total_input_tokens", "total_input_text_tokens", "total_input_vision_tokens", "total_output_tokens",
    "total_output_tokens_retokenized", "request_throughput", "input_throughput", "output_throughput",
    "total_throughput", "concurrency", "accept_length", "max_output_tokens_per_s", "max_concurrent_requests",
    "input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors",
    *(f"{s}_{f}_ms" for s in STATISTICS for f in ("e2e_latency", "ttft", "tpot", "itl")),
}  # fmt: skip


def exported(write: Any, records: list[RequestRecord], **more: Any) -> dict[str, Any]:
    m = measure(records, workload="w", concurrency=records[0].concurrency, **more)
    document = write(belonging(records, "w", records[0].concurrency), m, ABOUT)
    found: dict[str, Any] = json.loads(msgspec.json.encode(document))
    return found


def speculating() -> list[RequestRecord]:
    """Two requests of 13 tokens in four chunks of 1, 4, 4, 4, 40 ms apart; one that failed; a warm-up; one cut."""
    chunks = [(0.1, 1.0), (0.14, 5.0), (0.18, 9.0), (0.22, 13.0)]
    return [
        record(-1.0, chunks, tag="bench-1", warmup=True),
        record(0.0, chunks, tag="bench-2", end_at_s=0.23),
        record(1.0, chunks, tag="bench-3", end_at_s=1.23),
        record(1.5, [], tag="bench-4", end_at_s=1.6, error="http-500", error_detail="boom"),
        record(2.0, chunks[:2], tag="bench-5", end_at_s=2.2, error="cut", output_tokens=None),
    ]


def test_vllm_has_its_keys_and_its_definitions() -> None:
    got = exported(vllm_result, speculating())
    assert set(got) >= VLLM_KEYS
    assert (got["num_prompts"], got["completed"], got["failed"]) == (3, 2, 1)
    assert (got["backend"], got["request_rate"], got["max_concurrency"]) == ("openai-chat", "inf", 1)
    assert got["median_itl_ms"] == pytest.approx(40)  # the gap between chunks, and not the 10 ms of a token
    assert got["draftmark_median_itl_ms"] == pytest.approx(10)
    assert "chunk" in got["draftmark_note"]
    assert got["median_e2el_ms"] == pytest.approx(220)
    assert got["mean_tpot_ms"] == pytest.approx(10)
    assert got["output_throughput"] == pytest.approx(26 / got["duration"])
    assert got["request_goodput"] == 0.5
    assert got["max_output_tokens_per_s"] == 4  # chunks of one second
    assert got["max_concurrent_requests"] == 1
    # seconds a request; latency is what its own timeline adds up from them
    assert got["ttfts"] == pytest.approx([0.1, 0.1, 0.0])
    assert [round(sum(gaps), 6) for gaps in got["itls"]] == [0.12, 0.12, 0]
    assert got["output_lens"] == [13, 13, 0]
    assert got["errors"] == ["", "", "http-500: boom"]
    assert len({len(got[key]) for key in ("ttfts", "itls", "start_times", "input_lens", "errors")}) == 1


def test_sglang_has_its_keys_and_its_definitions() -> None:
    got = exported(sglang_result, speculating())
    assert set(got) >= SGLANG_KEYS
    assert (got["completed"], got["backend"]) == (2, "vllm-chat")
    assert got["median_itl_ms"] == pytest.approx(10)
    assert [len(own) for own in got["itls"]] == [12, 12, 0]
    assert got["median_e2e_latency_ms"] == pytest.approx(230)
    assert got["mean_tpot_ms"] == pytest.approx(130 / 12)
    assert got["concurrency"] == pytest.approx(0.46 / got["duration"])
    assert got["max_output_tokens_per_s"] == 13
    assert got["total_output_tokens_retokenized"] is None


def test_the_standard_deviation_is_of_the_population() -> None:
    records = [
        record(float(i), stream(3, ttft=t, interval=0.1), tag=f"bench-{i}") for i, t in enumerate((0.1, 0.3))
    ]
    assert exported(vllm_result, records)["std_ttft_ms"] == pytest.approx(100)


def test_an_open_loop_says_what_it_wanted_and_what_the_waiting_comes_to() -> None:
    records = [
        record(
            i / 10 + 0.3, stream(3, ttft=0.1, interval=0.05), intended_at_s=i / 10, tag=f"bench-{i}", concurrency=0
        )
        for i in range(11)
    ]
    got = exported(vllm_result, records)
    assert (got["request_rate"], got["max_concurrency"]) == (pytest.approx(10), None)
    assert got["median_ttft_ms"] == pytest.approx(100)
    assert got["draftmark_median_ttft_intended_ms"] == pytest.approx(400)
    assert got["draftmark_p99_e2el_intended_ms"] == pytest.approx(500)
    assert exported(sglang_result, records)["draftmark_p99_e2e_latency_intended_ms"] == pytest.approx(500)


def test_acceptance_under_their_names() -> None:
    counters = Counters(drafts=10, drafted_tokens=30, accepted_tokens=15, output_tokens=25)
    records = [record(0.0, stream(25, ttft=0.1, interval=0.1), accepted_histogram=(2, 3, 3, 2))]
    got = exported(vllm_result, records, counters=counters)
    assert got["spec_decode_acceptance_rate"] == pytest.approx(50)
    assert got["spec_decode_acceptance_length"] == pytest.approx(2.5)
    assert got["spec_decode_per_position_acceptance_rates"] == pytest.approx([0.8, 0.5, 0.2])
    assert exported(sglang_result, records, counters=counters)["accept_length"] == pytest.approx(2.5)
    assert "spec_decode_num_drafts" not in exported(vllm_result, records)


@pytest.mark.parametrize("write", [vllm_result, sglang_result])
def test_nothing_that_completed_gives_no_zeros_as_times(write: Any) -> None:
    got = exported(write, [record(0.0, [], end_at_s=0.1, error="reset")])
    assert got["completed"] == 0
    assert got["mean_ttft_ms"] is got["p99_tpot_ms"] is got["request_throughput"] is None
    whole = exported(write, [record(0.0, [], end_at_s=0.5, output_tokens=10)])
    assert whole["mean_ttft_ms"] is whole["median_itl_ms"] is None
    assert whole["total_output_tokens"] == 10
    assert not any(isinstance(v, float) and not math.isfinite(v) for v in whole.values())


@pytest.mark.parametrize(
    ("api", "engine", "vllm", "sglang"),
    [
        ("sglang", "sglang", "sglang", "sglang"),
        ("openai", "sglang", "openai", "sglang-oai"),
        ("openai-chat", "sglang", "openai-chat", "sglang-oai-chat"),
        ("openai", "vllm", "openai", "vllm"),
        ("llamacpp", "llamacpp", "llama.cpp", "sglang-oai"),
    ],
)
def test_backends_have_names_that_they_know(api: str, engine: str, vllm: str, sglang: str) -> None:
    about = About(api=api, engine=engine, model=None, date="d")
    m = measure(speculating(), workload="w", concurrency=1)
    assert vllm_result(speculating(), m, about)["backend"] == vllm
    assert sglang_result(speculating(), m, about)["backend"] == sglang
