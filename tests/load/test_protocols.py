from __future__ import annotations

import hashlib
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.load.answers import MOST_TOKENS, OVERRUN_TOKENS, Answer, AnswerReader, read_exchange, refusal
from draftmark.load.http1 import Exchange
from draftmark.load.protocols import APIS, first_model, request_body
from draftmark.model import Message, Prompt

from .scripted import Json, delta, usage

CHAT, PLAIN = APIS["openai-chat"], APIS["openai"]
PROMPT = Prompt("p", (Message("system", "Be short."), Message("user", "Grüß Gott")), 64, 0.8, 7)


def exchange(*events: Json | str, framed: bool = True, content_type: str = "text/event-stream") -> Exchange:
    """A finished exchange with one event a second."""
    out = Exchange()
    out.status, out.content_type, out.framed = 200, content_type, framed
    for i, event in enumerate(events):
        text = event if isinstance(event, str) else json.dumps(event)
        out.reads.append((float(i), f"data: {text}\n\n".encode()))
    out.end_at = float(len(events))
    return out


def read(*events: Json | str, framed: bool = True) -> Answer:
    return read_exchange(exchange(*events, framed=framed))


# --- bodies -----------------------------------------------------------------------------------------------


def test_a_chat_body() -> None:
    body = json.loads(request_body(CHAT, PROMPT, tag="bench-3", model="m"))
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Grüß Gott"}],
        "max_tokens": 64,
        "temperature": 0.8,
        "seed": 7,
        "user": "bench-3",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_completions_body_joins_the_messages_and_leaves_out_what_is_unknown() -> None:
    body = json.loads(request_body(PLAIN, Prompt("p", PROMPT.messages, 5), tag="t", usage=False))
    assert body["prompt"] == "Be short.\nGrüß Gott"
    assert body.keys() == {"prompt", "max_tokens", "temperature", "user", "stream"}


def test_extra_fields_win_but_the_answer_stays_a_stream() -> None:
    extra = {
        "cache_prompt": False,
        "temperature": 0,
        "stream": False,
        "rid": "{tag}",
        "stream_options": {"continuous_usage_stats": True},
    }
    body = json.loads(request_body(CHAT, PROMPT, tag="bench-9", extra=extra))
    assert body["cache_prompt"] is False
    assert body["temperature"] == 0
    assert body["rid"] == "bench-9"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_first_model() -> None:
    assert first_model(b'{"object":"list","data":[{"id":"a","x":1},{"id":"b"}]}') == "a"
    assert first_model(b'{"data":[]}') is None
    assert first_model(b"<html>") is None
    assert first_model(b"[" * 100_000) is None


# --- answers ----------------------------------------------------------------------------------------------


def test_llama_cpp_with_drafts_and_a_total_at_the_end() -> None:
    timings = {"predicted_n": 4, "prompt_n": 9, "cache_n": 3, "draft_n": 6, "draft_n_accepted": 2}
    got = read(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]},
        delta("one"),
        delta(" two"),
        delta(None, "length"),
        {"choices": [], "usage": usage(4, 12), "timings": timings},
        "[DONE]",
    )
    assert got.error is None
    assert got.chunks == ((1.0, 2.0), (2.0, 4.0))
    assert (got.counts, got.output_tokens, got.prompt_tokens) == ("spread", 4, 12)
    assert (got.drafted_tokens, got.accepted_tokens, got.finish) == (6, 2, "length")
    assert got.text_sha256 == hashlib.sha256(b"one two").hexdigest()


def test_no_draft_is_zero_only_where_timings_say_so() -> None:
    assert read(delta("a", "stop"), {"choices": [], "timings": {"predicted_n": 1}}, "[DONE]").drafted_tokens == 0
    without = read(delta("a", "stop"), {"choices": [], "usage": usage(1)}, "[DONE]")
    assert (without.drafted_tokens, without.accepted_tokens) == (None, None)


def test_counts_fall_back_to_timings() -> None:
    got = read(delta("a"), delta("b", "stop", timings={"predicted_n": 2, "prompt_n": 5, "cache_n": 4}), "[DONE]")
    assert (got.output_tokens, got.prompt_tokens) == (2, 9)


def test_cumulative_counts_in_the_chunks_are_used() -> None:
    got = read(
        delta("a", usage=usage(1)),
        delta("bcd", usage=usage(4)),
        delta("ef", "length", usage=usage(6)),
        {"choices": [], "usage": usage(7)},
        "[DONE]",
    )
    assert got.counts == "server"
    assert got.chunks == ((0.0, 1.0), (1.0, 4.0), (2.0, 6.0))
    assert got.output_tokens == 7


@pytest.mark.parametrize("counts", [(0, 0, 0), (2, 1, 6), (1, 2, 99), (1, 2)])
def test_counts_in_the_chunks_that_cannot_be_right_are_not_used(counts: tuple[int, ...]) -> None:
    texts = [delta("x", usage=usage(n)) for n in counts] + [delta("x")] * (3 - len(counts))
    got = read(*texts, {"choices": [], "usage": usage(6)}, "[DONE]")
    assert (got.counts, [n for _, n in got.chunks]) == ("spread", [2.0, 4.0, 6.0])


def test_without_any_count_one_token_a_chunk() -> None:
    got = read(delta("a"), delta("b"), delta(None, "stop"), "[DONE]")
    assert (got.counts, got.output_tokens) == ("chunks", None)
    assert [n for _, n in got.chunks] == [1.0, 2.0]


def test_a_total_of_zero_beside_text_is_no_count() -> None:
    got = read(delta("a"), {"choices": [], "usage": usage(0)}, "[DONE]")
    assert (got.counts, got.output_tokens) == ("chunks", None)


def test_reasoning_and_tool_calls_are_output_too() -> None:
    def chunk(**fields: object) -> Json:
        return {"choices": [{"index": 0, "delta": fields}]}

    got = read(
        chunk(role="assistant", content="", reasoning_content=None, tool_calls=None),
        chunk(reasoning_content="Hm"),
        chunk(reasoning="so"),
        chunk(content=None, tool_calls=[{"index": 0, "function": {"arguments": "{"}}]),
        chunk(tool_calls=[]),
        "[DONE]",
    )
    assert [at for at, _ in got.chunks] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        ((delta("a"), '{"choices": [{"del', "[DONE]"), "malformed", '{"choices": [{"del'),
        ((delta("a"), '{"choices": 3}', "[DONE]"), "malformed", "array"),
        ((delta("a"), '{"x": ' + "[" * 100_000, "[DONE]"), "malformed", "recursion"),
        (('{"usage": {"completion_tokens": ' + "9" * 5000 + "}}", "[DONE]"), "malformed", "out of range"),
        ((delta("a"), {"error": {"message": "boom", "code": 500}}, "[DONE]"), "error-event", "boom"),
        ((delta("a"), {"error": "flat words"}), "error-event", "flat words"),
        (({"object": "error", "message": "old vLLM", "code": 400}, "[DONE]"), "error-event", "old vLLM"),
        ((delta("a"), delta("b")), "no-end", "without finish reason"),
        ((delta("a", usage=usage(1)), delta("b", usage=usage(2))), "no-end", "without finish reason"),
        ((), "no-end", "without finish reason"),
    ],
)
def test_errors_within_the_answer(events: tuple[Json | str, ...], kind: str, words: str) -> None:
    got = read(*events)
    assert got.error == kind
    assert words in (got.detail or "")


@pytest.mark.parametrize(
    "last", [delta(None, "stop"), {"choices": [], "usage": usage(1)}, "[DONE]"], ids=["finish", "usage", "done"]
)
def test_each_of_the_three_ends_is_an_end(last: Json | str) -> None:
    assert read(delta("a"), last).error is None


def test_an_error_of_null_is_none() -> None:
    assert read(delta("a", error=None), "[DONE]").error is None


def test_a_lost_connection_is_an_error_unless_everything_was_there() -> None:
    for last, kind in ((delta(None, "stop"), "reset"), ("[DONE]", None)):
        lost = exchange(delta("a"), last, framed=False)
        lost.fail("reset", "peer")
        assert read_exchange(lost).error == kind
    assert read(delta("a"), framed=False).error == "closed"


def test_answers_that_are_no_streams() -> None:
    for body, kind in ((b'{"choices": []}', "malformed"), (b'{"error": {"message": "x"}}', "error-event")):
        whole = Exchange()
        whole.status, whole.framed, whole.content_type, whole.reads = 200, True, "application/json", [(0.0, body)]
        assert read_exchange(whole).error == kind


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"error":{"code":400,"message":"too long"}}', "too long"),
        (b'{"object":"error","message":"no model"}', "no model"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"detail":[{"loc":["body"]}]}', '[{"loc":["body"]}]'),
        (b"<h1>Bad\n  Gateway</h1>", "<h1>Bad Gateway</h1>"),
        (b"\xff" * 999, "\ufffd" * 300),
        (b"[" * 999_999, "[" * 300),
        (b"", ""),
    ],
)
def test_the_servers_words_are_kept_and_cut(body: bytes, detail: str) -> None:
    refused = Exchange()
    refused.status, refused.reads = 502, [(0.0, body)]
    got = refusal(refused)
    assert (got.error, got.detail) == ("http-502", detail)


@given(st.lists(st.integers(0, 400), max_size=8))
def test_a_character_cut_in_two_is_one_character(cuts: list[int]) -> None:
    events = [delta("ü€"), delta("🙂", "stop"), "[DONE]"]
    stream = "".join(
        f"data: {e if isinstance(e, str) else json.dumps(e, ensure_ascii=False)}\n\n" for e in events
    ).encode()
    places = sorted({0, len(stream), *(c for c in cuts if c < len(stream))})
    reader, whole = AnswerReader(), exchange()
    for i, (a, b) in enumerate(pairwise(places)):
        whole.reads.append((float(i), stream[a:b]))
        reader.feed(float(i), stream[a:b])
    got = reader.finish(whole)
    assert got.error is None
    assert got.text_sha256 == hashlib.sha256("ü€🙂".encode()).hexdigest()


# --- counts that cannot be true ---------------------------------------------------------------------------


def asked(most: int | None, *events: Json | str) -> Answer:
    return read_exchange(exchange(*events), most)


@pytest.mark.parametrize("count", [10**30, 8 + OVERRUN_TOKENS + 1, -1, -(10**30)])
def test_a_total_that_cannot_be_true_is_as_good_as_none(count: int) -> None:
    got = asked(8, delta("a"), delta("b", "stop"), {"choices": [], "usage": usage(count)}, "[DONE]")
    assert (got.error, got.output_tokens, got.counts, got.doubted) == (None, None, "chunks", True)
    assert [n for _, n in got.chunks] == [1.0, 2.0]


def test_without_a_limit_a_total_is_still_bounded() -> None:
    for count, kept in ((MOST_TOKENS, MOST_TOKENS), (MOST_TOKENS + 1, None), (10**30, None)):
        got = asked(None, delta("a", "stop"), {"choices": [], "usage": usage(count)}, "[DONE]")
        assert (got.output_tokens, got.doubted) == (kept, kept is None)


def test_counts_in_the_chunks_that_cannot_be_true_are_not_used() -> None:
    got = asked(8, delta("a", usage=usage(1)), delta("b", "stop", usage=usage(10**9)), "[DONE]")
    assert (got.output_tokens, got.counts, got.doubted) == (None, "chunks", True)


@pytest.mark.parametrize(
    ("most", "chunks", "count"),
    [
        (64, 64, 64),
        (64, 4, 64),  # sixteen a chunk
        (4096, 1, 4096),  # an answer in one piece
        (64, 64, 65),  # the end token counted
        (8, 1, 8 + OVERRUN_TOKENS),  # a last draft that was taken whole
        (8, 200, 200),  # a server that does not keep to max_tokens
        (8, 200, 800),
        (1, 1, 1),
    ],
)
def test_an_honest_count_is_never_doubted(most: int, chunks: int, count: int) -> None:
    got = asked(most, *[delta("x")] * chunks, {"choices": [], "usage": usage(count)}, "[DONE]")
    assert (got.output_tokens, got.counts, got.doubted) == (count, "spread", False)


@pytest.mark.parametrize(
    ("timings", "drafted"),
    [
        ({"draft_n": 6, "draft_n_accepted": 6}, (6, 6)),
        ({"draft_n": 6, "draft_n_accepted": 7}, (None, None)),
        ({"draft_n": -6, "draft_n_accepted": 0}, (None, None)),
        ({"draft_n": 6, "draft_n_accepted": -1}, (None, None)),
        ({"draft_n": 10**30, "draft_n_accepted": 10**30}, (None, None)),
    ],
)
def test_drafts_that_cannot_be_true(timings: Json, drafted: tuple[int | None, int | None]) -> None:
    got = asked(8, delta("a", "stop", timings={"predicted_n": 8, **timings}), "[DONE]")
    assert (got.drafted_tokens, got.accepted_tokens) == drafted
    assert got.doubted == (drafted[0] is None)
    assert got.output_tokens == 8


def test_prompt_counts_that_cannot_be_true() -> None:
    for told in (usage(1, -5), usage(1, 10**30)):
        got = asked(8, delta("a", "stop"), {"choices": [], "usage": told}, "[DONE]")
        assert (got.prompt_tokens, got.output_tokens, got.doubted) == (None, 1, True)


def test_a_tool_call_that_is_not_utf_8_is_still_output() -> None:
    out = exchange(delta(None, "stop"))
    out.reads.insert(0, (0.0, b'data: {"choices": [{"delta": {"tool_calls": [{"x": "\xff"}]}}]}\n\n'))
    got = read_exchange(out)
    assert (got.error, len(got.chunks)) == (None, 1)
