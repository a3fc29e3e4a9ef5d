"""The client against what real servers answered, and a local server that speaks each version's documents."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from draftmark.engines.detect import detect
from draftmark.engines.sglang.client import SglangClient
from draftmark.engines.sglang.engine import SGLang
from draftmark.errors import StartError
from draftmark.model import Counters, Health, ServerLimits

CAPTURES = Path(__file__).parents[4] / "shared" / "captures" / "sglang-h200"
captured = pytest.mark.skipif(not CAPTURES.is_dir(), reason="the captures lie beside the checkout, in ../shared")

Replies = dict[str, tuple[int, str]]


class Server(ThreadingHTTPServer):
    """Answers each path with what it was given, and notes what came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: Replies = {}
        self.seen: list[str] = []
        self.key: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def says(self, path: str, document: object, status: int = 200) -> None:
        self.replies[path] = (status, document if isinstance(document, str) else json.dumps(document))


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(f"{self.command} {self.path}")
        status, body = self.server.replies.get(self.path.partition("?")[0], (404, '{"detail":"Not Found"}'))
        if self.server.key is not None and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            status, body = 401, '{"error":"Unauthorized"}'
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


# --- what real servers answered ---------------------------------------------------------------------------


@captured
@pytest.mark.parametrize(
    ("name", "on", "depth", "running", "accept_len"),
    [
        ("base", False, 0, 4096, None),
        ("ngram4", True, 4, 48, 1.9865),
        ("q35_k0_mf0.62", False, 0, 181, None),
        ("q35_k1_mf0.62", True, 1, 48, 1.8965),
        ("q35_k3_mf0.62", True, 3, 48, 3.5442),
        ("q35_k5_mf0.62", True, 5, 48, 4.8794),
    ],
)
def test_real_server_info(
    server: Server, name: str, on: bool, depth: int, running: int, accept_len: float | None
) -> None:
    server.says("/server_info", (CAPTURES / f"{name}.info.json").read_text())
    client = SglangClient(server.url)
    state = client.speculation()
    assert (state.on, state.depth) == (on, depth)
    assert client.version() == "0.5.17"
    assert client.limits().max_running_requests == running
    found = client.accept_len()
    assert found is None if accept_len is None else found == pytest.approx(accept_len, abs=1e-4)


@captured
def test_real_metrics(server: Server) -> None:
    server.says("/metrics", (CAPTURES / "smollm2.metrics.prom").read_text())
    client = SglangClient(server.url)
    counters = client.counters()
    assert (counters.output_tokens, counters.drafts, counters.accepted_tokens) == (32, None, None)
    assert "sglang:generation_tokens_total" in counters.raw
    activity = client.activity()
    assert (activity.running, activity.queued) == (0, 0)


@captured
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("q35_k10_mf0.62", "Loaded weights leave no GPU memory"),
        ("bad_flag", "AssertionError"),
        ("kill_child", "Subprocess scheduler_0 (pid=2367) crashed with exit code -9"),
    ],
)
def test_real_deaths_have_their_line(name: str, part: str) -> None:
    lines = (CAPTURES / f"{name}.log").read_text(errors="replace").splitlines()
    found = SGLang().decisive(lines, name)
    assert found is not None
    assert part in found.text
    assert found.line is not None
    assert lines[found.line - 1].rstrip() == found.text


@captured
@pytest.mark.parametrize("name", ["base", "ngram4", "q35_k3_mf0.62"])
def test_a_real_run_lost_no_speculation_and_died_of_nothing(name: str) -> None:
    lines = (CAPTURES / f"{name}.log").read_text(errors="replace").splitlines()
    assert SGLang().speculation_lost(lines, name) is None
    assert SGLang().decisive(lines, name) is None


def test_speculation_that_falls_back_is_seen() -> None:
    lines = [
        "x",
        "\x1b[33m[2026-11-29 16:41:12 TP0] speculative_adaptive disabled: speculative_eagle_topk=4 (only 1). "
        "Falling back to static speculative params.\x1b[0m",
    ]
    found = SGLang().speculation_lost(lines, "server.log")
    assert found is not None
    assert (found.line, found.time) == (2, "2026-11-29 16:41:12")


# --- each version's documents -----------------------------------------------------------------------------


def test_health_is_ready_only_at_200(server: Server) -> None:
    client = SglangClient(server.url)
    server.says("/model_info", {"model_path": "m"})
    server.says("/health", "", 503)
    assert client.health() is Health.LOADING
    server.says("/health", "")
    assert client.health() is Health.READY


@pytest.mark.parametrize("body", ["", "[]", '{"error":"x"}', '{"text":null}'])
def test_no_token_is_no_start(server: Server, body: str) -> None:
    server.says("/generate", body)
    with pytest.raises(StartError, match="does not generate"):
        SglangClient(server.url).generate_one()
    server.says("/generate", {"text": " the", "meta_info": {}})
    SglangClient(server.url).generate_one()


def test_the_old_name_of_server_info_is_asked_only_where_the_new_one_is_not_there(server: Server) -> None:
    server.says("/get_server_info", {"speculative_algorithm": None, "version": "0.5.8"})
    client = SglangClient(server.url)
    assert client.speculation().on is False
    server.says("/server_info", {"speculative_algorithm": "EAGLE", "speculative_num_steps": 2})
    server.seen.clear()
    assert client.speculation().depth == 2
    assert server.seen == ["GET /server_info"]


@pytest.mark.parametrize(
    ("state", "on", "depth"),
    [
        ({"speculative_algorithm": None}, False, 0),
        ({"speculative_algorithm": "EAGLE3", "speculative_num_steps": 5}, True, 5),
        ({"speculative_algorithm": "FROZEN_KV_MTP", "speculative_num_steps": 2}, True, 2),
        (
            {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8, "speculative_num_steps": 0},
            True,
            8,
        ),
        ({"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 16}, True, 16),
        ({"speculative_algorithm": "DSPARK", "speculative_num_draft_tokens": 8}, True, 7),
        ({"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "speculative_adaptive": True}, True, None),
        ({"speculative_algorithm": 3}, None, None),
    ],
)
def test_the_schedulers_word_counts_more_than_what_was_asked(
    server: Server, state: dict[str, object], on: bool | None, depth: int | None
) -> None:
    asked = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 99}
    server.says("/server_info", {**asked, "internal_states": [state]})
    found = SglangClient(server.url).speculation()
    assert (found.on, found.depth) == (on, depth)
    assert found.source.startswith("GET /server_info")


def test_ranks_are_added_up(server: Server) -> None:
    one = {"effective_max_running_requests_per_dp": 20}
    client = SglangClient(server.url)
    server.says("/server_info", {"internal_states": [one, one]})
    assert client.limits().max_running_requests == 40
    server.says("/server_info", {"internal_states": [one, {}]})
    assert client.limits() == ServerLimits()


METRICS = """
sglang:generation_tokens_total{is_streaming="true"} %d
sglang:num_requests_total{is_streaming="true"} %d
sglang:spec_verify_calls_total{model="m"} %d
"""


def test_rounds_and_accepted_drafts_follow_from_the_counters(server: Server) -> None:
    # two requests of 33 tokens: each 1 of the prompt's pass and 16 rounds that gave one token and one draft
    server.says("/metrics", METRICS % (66, 2, 32))
    server.says(
        "/server_info", {"internal_states": [{"speculative_num_draft_tokens": 4, "speculative_algorithm": "EAGLE"}]}
    )
    client = SglangClient(server.url)
    found = client.counters()
    assert (found.drafts, found.drafted_tokens, found.accepted_tokens, found.output_tokens) == (32, 96, 32, 66)
    client.counters()
    assert server.seen.count("GET /server_info") == 1


def test_adaptive_rounds_propose_no_fixed_number(server: Server) -> None:
    server.says("/metrics", METRICS % (66, 2, 32))
    state = {"speculative_num_draft_tokens": 4, "speculative_adaptive": True}
    server.says("/server_info", {"internal_states": [state]})
    found = SglangClient(server.url).counters()
    assert (found.drafts, found.drafted_tokens, found.accepted_tokens) == (32, None, 32)


def test_without_rounds_there_are_tokens_only(server: Server) -> None:
    server.says("/metrics", "sglang:generation_tokens_total 7\nsglang:num_requests_total NaN\n")
    assert SglangClient(server.url).counters().output_tokens == 7
    server.says("/metrics", "nothing", 404)
    assert SglangClient(server.url).counters() == Counters()


@pytest.mark.parametrize(
    ("path", "document", "running", "queued"),
    [
        ("/v1/loads", {"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 1, "num_total_reqs": 3}]}, 2, 1),
        ("/v1/loads", {"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 1}] * 2}, 4, 2),
        ("/get_load", [{"dp_rank": 0, "num_reqs": 3, "num_waiting_reqs": 1, "num_tokens": 9}], 2, 1),
        ("/metrics", 'sglang:num_running_reqs{tp_rank="0"} 3.0\nsglang:num_queue_reqs 0.0\n', 3, 0),
        ("/v1/loads", {"loads": [{"num_running_reqs": "many"}]}, None, None),
        ("/v1/loads", "junk", None, None),
    ],
)
def test_activity_of_each_version(
    server: Server, path: str, document: object, running: int | None, queued: int | None
) -> None:
    server.says(path, document)
    found = SglangClient(server.url).activity()
    assert (found.running, found.queued) == (running, queued)


def test_cached_prompts_are_flushed(server: Server) -> None:
    SglangClient(server.url).fresh()  # not there: nothing happens
    server.says("/flush_cache", "Cache flushed.")
    SglangClient(server.url).fresh()
    assert server.seen[-1].startswith("POST /flush_cache?timeout=")


def test_a_server_at_a_url_is_recognised(server: Server) -> None:
    server.says("/server_info", {"speculative_algorithm": None, "version": "0.5.20", "internal_states": []})
    server.says("/model_info", {"model_path": "m", "is_generation": True})
    found = detect(server.url)
    assert (found.engine, found.version) == ("sglang", "0.5.20")
    assert isinstance(found.client, SglangClient)
    assert found.extra == SGLang().request_extra()
    server.seen.clear()
    detect(server.url)
    assert not [each for each in server.seen if "get_" in each]  # deprecated names make the server log warnings


def test_an_old_server_at_a_url_is_recognised(server: Server) -> None:
    server.says("/get_model_info", {"model_path": "m", "is_generation": True})
    assert detect(server.url).engine == "sglang"


def test_a_server_that_wants_a_key_is_recognised_with_it(server: Server) -> None:
    server.key = "k"
    server.says("/model_info", {"model_path": "m", "is_generation": True})
    server.says("/server_info", {"speculative_algorithm": None, "version": "0.5.20", "internal_states": []})
    found = detect(server.url, {"Authorization": "Bearer k"})
    assert (found.engine, found.version) == ("sglang", "0.5.20")
    assert found.client is not None
    assert found.client.speculation().on is False
    without = detect(server.url)
    assert without.engine == "unknown"
    assert "--header" in without.evidence
