"""The HTTP surface: what Draftmark's own clients and other people's ask of SGLang."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from draftmark.engines.sglang.client import SglangClient
from draftmark.engines.sglang.log import read_log
from draftmark.load.client import run_closed_loop
from draftmark.load.workloads import load_workloads
from draftmark.model import Health

from .conftest import Server, Starter, drafting

ASK = {"text": "Tell me about rain.", "sampling_params": {"max_new_tokens": 40, "temperature": 0}}


@pytest.fixture
def server(simulated: Starter) -> Server:
    return simulated("--model", "qwen35-35b", flags=("--enable-metrics", *drafting(3)))


def events(body: bytes) -> Iterator[str]:
    return (part.removeprefix("data: ") for part in body.decode().split("\n\n") if part)


def test_draftmarks_own_client_reads_it_as_a_real_one(server: Server) -> None:
    client = SglangClient(server.url)
    assert client.health() is Health.READY
    client.generate_one()
    assert client.version() == "0.5.17"
    state = client.speculation()
    assert (state.on, state.depth) == (True, 3)
    limits = client.limits()
    summary = read_log(server.lines_of_log()).boot.summary
    assert summary is not None
    assert (limits.kv_tokens, limits.max_running_requests) == (
        summary.max_total_num_tokens,
        summary.max_running_requests,
    )
    server.call("/generate", ASK)
    assert 1 < (client.accept_len() or 0) <= 4
    counters = client.counters()
    assert counters.drafts is not None
    assert counters.accepted_tokens is not None
    assert counters.drafted_tokens == 3 * counters.drafts
    assert client.activity().running == 0
    client.fresh()
    assert client.accept_len() == 1.0


def test_generate_whole_and_streamed_say_the_same(server: Server) -> None:
    whole = server.json("/generate", ASK)
    status, body = server.call("/generate", {**ASK, "stream": True})
    *chunks, done = events(body)
    assert (status, done) == (200, "[DONE]")
    told = [json.loads(chunk) for chunk in chunks]
    assert told[-1]["text"] == whole["text"]
    assert told[-1]["output_ids"] == whole["output_ids"]
    assert all(later["text"].startswith(earlier["text"]) for earlier, later in pairwise(told))
    counts = [chunk["meta_info"]["completion_tokens"] for chunk in told]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == 40 == len(whole["output_ids"])
    assert max(b - a for a, b in pairwise(counts)) > 1, "a round brings several tokens"
    meta = whole["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 40}
    assert sum(meta["spec_correct_drafts_histogram"]) == meta["spec_verify_ct"]
    assert (
        sum(n * count for n, count in enumerate(meta["spec_correct_drafts_histogram"]))
        == meta["spec_num_correct_drafts"]
    )


@pytest.mark.parametrize(
    ("version", "there", "gone"),
    [
        ("0.5.10", "spec_accept_token_num", "spec_num_correct_drafts"),
        ("0.5.12", "spec_accepted_drafts", "spec_accept_token_num"),
        ("0.5.23", "spec_correct_drafts_histogram", "spec_accept_histogram"),
    ],
)
def test_names_of_the_draft_figures_by_version(simulated: Starter, version: str, there: str, gone: str) -> None:
    strategy = ("--mamba-scheduler-strategy", "extra_buffer") if version < "0.5.14" else ()
    server = simulated(
        "--model",
        "qwen35-35b",
        "--sglang-version",
        version,
        flags=("--mem-fraction-static", "0.75", *strategy, *drafting(2)),
    )
    meta = server.json("/generate", ASK)["meta_info"]
    assert there in meta
    assert gone not in meta


def test_openai_chat_and_completions(server: Server) -> None:
    asked = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "temperature": 0}
    whole = server.json("/v1/chat/completions", asked)
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 12
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, body = server.call("/v1/chat/completions", {**asked, "stream": True, "stream_options": options})
    *chunks, done = events(body)
    assert done == "[DONE]"
    told = [json.loads(chunk) for chunk in chunks]
    said = "".join(choice["delta"].get("content") or "" for chunk in told for choice in chunk["choices"])
    assert said == whole["choices"][0]["message"]["content"]
    assert told[-1]["usage"]["completion_tokens"] == 12
    assert told[0]["usage"]["completion_tokens"] == 1
    text = server.json("/v1/completions", {"prompt": "Hi", "max_tokens": 5})
    assert len(text["choices"][0]["text"].split()) == 5


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/generate", b"{", 400),
        ("/generate", {"sampling_params": {"max_new_tokens": 4}}, 400),
        ("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 0}}, 400),
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/chat/completions", {"messages": "x"}, 400),
        ("/tokenize", {}, 400),
        ("/nowhere", {}, 404),
        ("/health", {}, 405),
        ("/generate", None, 405),
    ],
)
def test_bad_requests_are_refused_in_words(server: Server, path: str, body: object, status: int) -> None:
    found, answer = server.call(path, "no object" if isinstance(body, bytes) else body)
    assert found == status
    assert json.loads(answer)
    assert server.call("/health")[0] == 200


def test_a_prompt_that_is_too_long(simulated: Starter) -> None:
    server = simulated("--model", "smollm2-135m", flags=("--context-length", "128"))
    assert server.call("/generate", {"text": "word " * 400})[0] == 400
    short = server.json("/generate", {"text": "word " * 100, "sampling_params": {"max_new_tokens": 500}})
    meta = short["meta_info"]
    assert meta["prompt_tokens"] + meta["completion_tokens"] < 128


def test_tokenize_knows_messages_and_generate_their_ids(server: Server) -> None:
    messages = [{"role": "user", "content": "Rename the function. Return the whole code, unchanged otherwise."}]
    tokens = server.json("/tokenize", {"messages": messages})["tokens"]
    sampling = {"max_new_tokens": 64, "temperature": 0}
    ours = server.json("/generate", {"input_ids": tokens, "sampling_params": sampling})["meta_info"]
    theirs = server.json("/v1/chat/completions", {"messages": messages, "max_tokens": 64, "temperature": 0})
    assert ours["prompt_tokens"] == theirs["usage"]["prompt_tokens"] == len(tokens)
    strange = server.json("/generate", {"input_ids": list(range(50)), "sampling_params": sampling})["meta_info"]
    assert ours["spec_accept_length"] > strange["spec_accept_length"], "text that repeats is drafted better"


def test_keys(simulated: Starter) -> None:
    server = simulated("--model", "smollm2-135m", flags=("--api-key", "hunter2", "--admin-api-key", "root"))
    assert server.call("/v1/models")[0] == 401
    assert server.call("/v1/models", headers={"Authorization": "Bearer hunter2"})[0] == 200
    assert server.call("/flush_cache", {}, headers={"Authorization": "Bearer hunter2"})[0] == 401
    assert server.call("/flush_cache", {}, headers={"Authorization": "Bearer root"})[0] == 200
    assert server.call("/health")[0] == 200
    assert server.stop() == -9
    assert "hunter2" not in server.log


def test_a_client_that_leaves_frees_its_place(simulated: Starter) -> None:
    server = simulated("--model", "smollm2-135m", "--speed", "500", "--serve-speed", "1")
    body = json.dumps({"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 5000}}).encode()
    head = f"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head + body)
        client.recv(1000)
        assert server.json("/v1/loads")["loads"][0]["num_running_reqs"] == 1
    end = time.monotonic() + 20
    while server.json("/v1/loads")["loads"][0]["num_running_reqs"] and time.monotonic() < end:
        time.sleep(0.02)
    assert server.json("/v1/loads")["loads"][0]["num_running_reqs"] == 0


def test_abort_all(simulated: Starter) -> None:
    server = simulated("--model", "smollm2-135m", "--speed", "500", "--serve-speed", "1")
    answers: list[int] = []
    body = {"text": "x", "sampling_params": {"max_new_tokens": 5000}}
    asking = threading.Thread(target=lambda: answers.append(server.call("/generate", body)[0]))
    asking.start()
    end = time.monotonic() + 20
    while not server.json("/v1/loads")["loads"][0]["num_running_reqs"] and time.monotonic() < end:
        time.sleep(0.02)
    assert server.call("/flush_cache", {})[0] == 400
    server.call("/abort_request", {"rid": "", "abort_all": True})
    asking.join(20)
    assert answers == [500]


def test_the_load_generator_measures_it_and_the_log_is_known(server: Server) -> None:
    (workload,) = load_workloads(["copy"])
    run = run_closed_loop(server.url, workload, concurrency=4, warmup=1, api="sglang")
    assert all(record.error is None for record in run.records)
    assert all(record.accepted_histogram for record in run.records)
    assert server.stop() == -9
    log = read_log(server.lines_of_log())
    assert log.lines.samples == ()
    assert log.serving.accept_len is not None
    assert log.serving.prefill_batches >= 2
    assert log.ending.way == "graceful"
