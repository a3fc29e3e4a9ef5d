"""The admin client against a scripted HTTP server: every endpoint there, absent, and broken."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from draftmark.engines.detect import detect
from draftmark.engines.llamacpp.client import LlamaServerClient
from draftmark.engines.prometheus import by_label, total
from draftmark.errors import BadInputError, StartError
from draftmark.model import Health, ServerLimits

METRICS = """# HELP llamacpp:spec_decode_num_drafts_total x
llamacpp:spec_decode_num_drafts_total 8
llamacpp:spec_decode_num_draft_tokens_total 48
llamacpp:spec_decode_num_accepted_tokens_total 16
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 7
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 5
llamacpp:tokens_predicted_total 70
llamacpp:requests_deferred 2
"""

Replies = dict[str, tuple[int, str]]


@pytest.fixture
def serve() -> Iterator[tuple[str, Replies]]:
    replies: Replies = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.server.seen = self.headers.get("Authorization")  # type: ignore[attr-defined]
            status, body = replies.get(self.path, (404, "{}"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", replies
        server.shutdown()
        thread.join()


def test_health_follows_the_status(serve: tuple[str, Replies]) -> None:
    url, replies = serve
    client = LlamaServerClient(url)
    replies["/health"] = (503, '{"error":{"message":"Loading model"}}')
    assert client.health() is Health.LOADING
    replies["/health"] = (200, '{"status":"ok"}')
    assert client.health() is Health.READY


def test_counters_and_activity(serve: tuple[str, Replies]) -> None:
    url, replies = serve
    client = LlamaServerClient(url)
    assert client.counters().drafts is None
    replies["/metrics"] = (200, METRICS)
    replies["/slots"] = (200, json.dumps([{"is_processing": True, "speculative": True}, {"is_processing": False}]))
    counters = client.counters()
    assert (counters.drafts, counters.drafted_tokens, counters.accepted_tokens) == (8, 48, 16)
    assert counters.output_tokens == 70
    assert counters.by_position == (7, 5)
    assert client.activity().running == 1
    assert client.activity().queued == 2
    assert client.limits() == ServerLimits(max_running_requests=2)
    assert client.speculation().on is True


JUNK = [
    "",
    "[]",
    "{}",
    "null",
    "not json",
    "[1, 2]",
    '[{"speculative": 1, "is_processing": "yes"}]',
    '[{"speculative": [true]}, null]',
    "[" * 100_000,
    '{"a":' * 100_000,
    "9" * 5000,
    '"\\ud800"',
]


@pytest.mark.parametrize("body", JUNK, ids=range(len(JUNK)))
def test_slots_that_say_nothing(serve: tuple[str, Replies], body: str) -> None:
    url, replies = serve
    replies["/slots"] = (200, body)
    assert LlamaServerClient(url).speculation().on is None
    assert LlamaServerClient(url).activity().running is None


def test_a_slot_that_does_not_say_may_be_at_work(serve: tuple[str, Replies]) -> None:
    url, replies = serve
    replies["/slots"] = (200, '[{"is_processing": false}, {"id": 1}]')
    assert LlamaServerClient(url).activity().running is None
    replies["/slots"] = (200, '[{"is_processing": false}, {"is_processing": false}]')
    assert LlamaServerClient(url).activity().running == 0


@pytest.mark.parametrize("body", [*JUNK, '{"error": "no"}', '{"content": 5}'], ids=range(len(JUNK) + 2))
def test_an_answer_of_junk_is_not_generating(serve: tuple[str, Replies], body: str) -> None:
    url, replies = serve
    replies["/completion"] = (200, body)
    with pytest.raises(StartError, match="does not generate"):
        LlamaServerClient(url).generate_one()


@pytest.mark.parametrize("sample", ["NaN", "+Inf", "-Inf", "-1", "1e300", "x", ""])
def test_samples_that_are_no_counts(serve: tuple[str, Replies], sample: str) -> None:
    url, replies = serve
    client = LlamaServerClient(url)
    text = METRICS.replace("draft_tokens_total 48", f"draft_tokens_total {sample}")
    replies["/metrics"] = (200, text.replace("deferred 2", f"deferred {sample}"))
    counters = client.counters()
    assert (counters.drafts, counters.drafted_tokens, counters.accepted_tokens) == (8, None, 16)
    assert client.activity().queued is None


def test_a_server_that_does_not_generate(serve: tuple[str, Replies]) -> None:
    url, replies = serve
    replies["/completion"] = (500, '{"error":"slot unavailable"}')
    with pytest.raises(StartError) as caught:
        LlamaServerClient(url).generate_one()
    assert "slot unavailable" in str(caught.value)
    replies["/completion"] = (200, '{"content":"x"}')
    LlamaServerClient(url).generate_one()


def test_detection(serve: tuple[str, Replies]) -> None:
    url, replies = serve
    assert detect(url).engine == "unknown"
    replies["/version"] = (200, '{"version":"0.32.0"}')
    assert (detect(url).engine, detect(url).version) == ("vllm", "0.32.0")
    replies["/get_model_info"] = (200, '{"model_path":"m"}')
    assert detect(url + "/v1").engine == "sglang"
    replies["/props"] = (200, '{"default_generation_settings":{},"build_info":"b11434"}')
    found = detect(url)
    assert (found.engine, found.version) == ("llamacpp", "b11434")
    assert found.client is not None
    with pytest.raises(BadInputError, match="nothing answers"):
        detect("http://127.0.0.1:9")


def test_prometheus_sums_labels_and_forgives_junk() -> None:
    assert total(METRICS, "llamacpp:spec_decode_num_accepted_tokens_per_pos_total") == 12
    assert total(METRICS, "llamacpp:spec_decode_num_draft") is None
    assert total("x\nx \nx nan-ish\nx 3\n", "x") == 3


def test_counts_by_position_end_at_the_first_gap() -> None:
    text = 'x{position="1",a="b"} 5\nx{a="b",position="0"} 7\nx{position="3"} 1\nxy{position="2"} 9\n'
    text += 'x{position="0"} 1\n'
    assert by_label(text, "x", "position", 8) == (8.0, 5.0)
    assert by_label(text, "x", "position", 1) == (8.0,)
    assert by_label('x{position="0"} ?\nx{position="9999999"} 1\nx 3', "x", "position", 8) == ()
