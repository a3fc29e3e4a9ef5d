"""SGLang's own `/generate`: bodies, streams of each version, and a whole run over a scripted server."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import UsageError
from draftmark.load.answers import Answer
from draftmark.load.client import LoadRun, run_closed_loop
from draftmark.load.http1 import Exchange
from draftmark.load.measurement import measure
from draftmark.load.native import GenerateReader
from draftmark.load.protocols import generate_body, token_ids, tokenize_body
from draftmark.model import Message, Prompt, RequestRecord, Workload
from draftmark.run.records import decode_lines, encode_line

from .scripted import Request, Wire, serving

PROMPT = Prompt("p", (Message("system", "Be short."), Message("user", "Hi")), 8, 0.5, 7)
NEW = {
    "spec_accept_rate": 0.5,
    "spec_accept_length": 2.5,
    "spec_num_correct_drafts": 5,
    "spec_num_proposed_drafts": 9,
    "spec_verify_ct": 3,
    "spec_correct_drafts_histogram": [0, 1, 2],
}
MIDDLE = NEW | {"spec_accepted_drafts": 5, "spec_proposed_drafts": 9, "spec_accept_histogram": [0, 1, 2]}
OLD = {
    "spec_accept_rate": 0.5,
    "spec_accept_token_num": 5,
    "spec_draft_token_num": 9,
    "spec_verify_ct": 3,
    "spec_accept_histogram": [0, 1, 2],
}


def meta(done: int, reason: object = None, **more: object) -> dict[str, object]:
    return {"id": "r", "finish_reason": reason, "prompt_tokens": 12, "completion_tokens": done, **more}


def cumulative(**last: object) -> list[dict[str, Any] | str]:
    return [
        {"text": "Hel", "output_ids": [1], "meta_info": meta(1)},
        {"text": "Hello wor", "output_ids": [1, 2, 3, 4], "meta_info": meta(4)},
        {
            "text": "Hello world.",
            "output_ids": [1, 2, 3, 4, 5, 6],
            "meta_info": meta(6, {"type": "length"}, **last),
        },
        "[DONE]",
    ]


def incremental(**last: object) -> list[dict[str, Any] | str]:
    return [
        {"text": "Hel", "output_ids": [1], "meta_info": meta(1)},
        {"text": "lo wor", "output_ids": [2, 3, 4], "meta_info": meta(4)},
        {"text": "ld.", "output_ids": [5, 6], "meta_info": meta(6, {"type": "length"}, **last)},
        "[DONE]",
    ]


def read(events: list[dict[str, Any] | str], *, max_tokens: int | None = None) -> Answer:
    exchange = Exchange()
    exchange.status, exchange.content_type, exchange.framed = 200, "text/event-stream", True
    reader = GenerateReader(max_tokens)
    for at, event in enumerate(events):
        data = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
        exchange.reads.append((float(at), data))
        reader.feed(float(at), data)
    exchange.end_at = float(len(events))
    return reader.finish(exchange)


def test_bodies() -> None:
    body = json.loads(generate_body(PROMPT, [3, 4], {"cache_salt": "{tag}", "rid": "{tag}"}, "bench-2"))
    assert body == {
        "input_ids": [3, 4],
        "sampling_params": {"max_new_tokens": 8, "temperature": 0.5, "sampling_seed": 7},
        "stream": True,
        "extra_key": "bench-2",
        "rid": "bench-2",
    }
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    assert json.loads(tokenize_body(PROMPT, None)) == {"messages": messages}
    assert json.loads(tokenize_body(PROMPT, "m"))["model"] == "m"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"tokens":[]}', b'{"tokens":[[1]]}', b'{"tokens":["a"]}', b"[1]"])
def test_no_token_ids(body: bytes) -> None:
    assert token_ids(body) is None
    assert token_ids(b'{"tokens":[1,2],"count":2,"max_model_len":9}') == [1, 2]


@pytest.mark.parametrize("events", [cumulative, incremental])
@pytest.mark.parametrize("names", [NEW, MIDDLE, OLD])
def test_streams_and_names_of_every_version(events: Any, names: dict[str, object]) -> None:
    got = read(events(**names), max_tokens=8)
    assert got.error is None
    assert got.counts == "server"
    assert got.chunks == ((0.0, 1.0), (1.0, 4.0), (2.0, 6.0))
    assert (got.prompt_tokens, got.output_tokens, got.finish) == (12, 6, "length")
    assert (got.drafted_tokens, got.accepted_tokens, got.accepted_histogram) == (9, 5, (0, 1, 2))
    assert got.text_sha256 == hashlib.sha256(b"Hello world.").hexdigest()


def test_without_speculation_nothing_was_drafted() -> None:
    got = read(cumulative())
    assert (got.drafted_tokens, got.accepted_tokens, got.accepted_histogram) == (None, None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec_num_correct_drafts": 10},
        {"spec_num_correct_drafts": -1},
        {"spec_num_proposed_drafts": -3},
        {"spec_correct_drafts_histogram": [1, -2]},
        {"spec_correct_drafts_histogram": list(range(2000))},
    ],
)
def test_what_cannot_be_true_is_not_used(wrong: dict[str, object]) -> None:
    got = read(cumulative(**(NEW | wrong)))
    assert got.error is None
    assert got.accepted_histogram is None


def test_an_error_within_the_stream() -> None:
    got = read([{"error": {"message": "too long", "code": 400}}, "[DONE]"])
    assert (got.error, got.detail) == ("error-event", "too long")


def test_an_abort_is_an_error() -> None:
    aborted = {"type": "abort", "message": "out of memory", "status_code": 500}
    got = read([{"text": "He", "meta_info": meta(1)}, {"text": "He", "meta_info": meta(1, aborted)}, "[DONE]"])
    assert (got.error, got.detail) == ("error-event", "out of memory")


def test_a_text_that_waits_for_the_rest_of_a_letter_keeps_its_tokens() -> None:
    got = read(
        [
            {"text": "", "output_ids": [1], "meta_info": meta(1)},
            {"text": "é", "output_ids": [1, 2], "meta_info": meta(2, {"type": "stop"})},
        ]
    )
    assert got.chunks == ((1.0, 2.0),)


def test_a_cut_stream_is_none() -> None:
    assert read(cumulative()[:2]).error == "no-end"


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=3), min_size=1, max_size=8))
def test_both_kinds_of_text_come_to_the_same(pieces: list[str]) -> None:
    ids = list(range(len(pieces)))
    ends: list[object] = [None] * (len(pieces) - 1) + [{"type": "stop"}]
    new: list[dict[str, Any] | str] = [
        {"text": piece, "output_ids": [i], "meta_info": meta(i + 1, ends[i])} for i, piece in enumerate(pieces)
    ]
    whole: list[dict[str, Any] | str] = [
        {"text": "".join(pieces[: i + 1]), "output_ids": ids[: i + 1], "meta_info": meta(i + 1, ends[i])}
        for i in ids
    ]
    assert read(new).text_sha256 == read(whole).text_sha256
    assert read(new).chunks == read(whole).chunks


@given(st.binary(max_size=80))
def test_any_bytes_are_an_answer(data: bytes) -> None:
    exchange = Exchange()
    exchange.status, exchange.framed = 200, True
    reader = GenerateReader()
    reader.feed(0.0, b"data: " + data + b"\n\n")
    exchange.reads.append((0.0, data))
    assert reader.finish(exchange).drafted_tokens is None


# --- a whole run ------------------------------------------------------------------------------------------


def run(url: str) -> LoadRun:
    workload = Workload("w", (PROMPT,))
    return run_closed_loop(
        url, workload, concurrency=1, api="sglang", repeat=2, warmup=1, extra={"cache_salt": "{tag}"}
    )


async def answers(wire: Wire, request: Request) -> None:
    if request.path == "/tokenize":
        await wire.whole("200 OK", b'{"tokens":[5,6,7],"count":3,"max_model_len":9}')
        return
    wire.stream()
    for event in cumulative(**NEW):
        await wire.event(event)
    await wire.end()


def test_a_run_asks_with_the_token_ids_of_the_chat_template_and_keeps_the_histogram() -> None:
    with serving(answers) as server:
        got = run(server.url)
        posts = [request for request in server.requests if request.path in ("/tokenize", "/generate")]
    assert [request.path for request in posts] == ["/tokenize", "/generate", "/generate", "/generate"]
    assert [message["role"] for message in posts[0].body["messages"]] == ["system", "user"]
    assert posts[1].body["input_ids"] == [5, 6, 7]
    assert [post.body["extra_key"] for post in posts[1:]] == ["bench-1", "bench-2", "bench-3"]
    assert [record.accepted_histogram for record in got.records] == [(0, 1, 2)] * 3
    assert got.assumptions == ()
    acceptance = measure(got.records, workload="w", concurrency=1).acceptance
    assert acceptance is not None
    assert (acceptance.drafts, acceptance.accepted_tokens) == (6, 10)
    assert acceptance.accept_len == pytest.approx(1 + 10 / 6)
    line = encode_line(got.records[0])
    assert decode_lines(line, RequestRecord) == (got.records[0],)
    before = json.loads(line)
    del before["accepted_histogram"]  # of a run that is older than the field
    assert decode_lines(json.dumps(before).encode(), RequestRecord)[0].accepted_histogram is None


def test_a_server_that_knows_no_template_is_refused() -> None:
    async def refuses(wire: Wire, request: Request) -> None:
        await wire.whole("422 Unprocessable Entity", b'{"detail":"prompt: field required"}')

    with serving(refuses) as server, pytest.raises(UsageError) as caught:
        run(server.url)
    assert "openai-chat" in caught.value.next_step
    assert "422" in caught.value.evidence[0]


def test_a_server_that_is_not_there_is_told() -> None:
    got = run("http://127.0.0.1:9")
    assert got.records == ()
    assert "connect-refused" in (got.stopped_because or "")
