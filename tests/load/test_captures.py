"""Answers of real servers, where the captures lie beside the checkout: every token that they count is counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from draftmark.load.answers import Answer
from draftmark.load.http1 import Exchange
from draftmark.load.reading import read_answer

CAPTURES = Path(__file__).resolve().parents[2].parent / "shared" / "captures"


def read(api: str, body: bytes, content_type: str, *, stream: bool, size: int = 97) -> Answer:
    exchange = Exchange()
    exchange.status, exchange.content_type, exchange.framed = 200, content_type, True
    exchange.reads = [(float(i), body[i : i + size]) for i in range(0, len(body), size)]
    exchange.end_at = float(len(body))
    return asyncio.run(read_answer(exchange, api=api, stream=stream, max_tokens=4096, keep_text=True))


def captured(path: str) -> bytes:
    file = CAPTURES / path
    if not file.exists():
        pytest.skip(f"no capture ../shared/captures/{path}")
    return file.read_bytes()


@pytest.mark.parametrize("size", [1, 97, 100_000])
def test_a_stream_of_sglang(size: int) -> None:
    body = captured("sglang-h200/smollm2.chat-stream.sse")
    events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: {")]
    told = next(event["usage"] for event in events if event.get("usage"))
    got = read("openai-chat", body, "text/event-stream", stream=True, size=size)
    assert (got.error, got.done) == (None, True)
    assert (got.output_tokens, got.prompt_tokens) == (told["completion_tokens"], told["prompt_tokens"])
    assert got.chunks[-1][1] == told["completion_tokens"]
    said = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    assert got.text == said


@pytest.mark.parametrize(
    ("name", "api", "stream"),
    [
        ("chat-completion-stream.http", "openai-chat", True),
        ("chat-completion.http", "openai-chat", False),
        ("completion.http", "llamacpp", False),
        ("v1-completions-with-speculative.n_max-8.http", "openai", False),
    ],
)
def test_answers_of_llama_server(name: str, api: str, stream: bool) -> None:
    head, _, body = captured(f"llama-server/{name}").replace(b"\r\n", b"\n").partition(b"\n\n")
    got = read(api, body, "text/event-stream" if b"event-stream" in head else "application/json", stream=stream)
    assert got.error is None, got.detail
    last = body.decode().replace("data: [DONE]", "").strip().splitlines()[-1].removeprefix("data: ")
    timings = json.loads(last)["timings"]
    assert got.output_tokens == timings["predicted_n"]
    assert got.prompt_tokens == timings["prompt_n"] + timings["cache_n"]
    assert (got.drafted_tokens, got.accepted_tokens) == (
        timings.get("draft_n", 0),
        timings.get("draft_n_accepted", 0),
    )
    assert got.text
