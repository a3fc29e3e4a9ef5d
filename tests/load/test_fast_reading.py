"""The quick way through a stream beside the thorough one: whatever comes, both must read the same answer in it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.load.answers import Answer, AnswerReader
from draftmark.load.http1 import Exchange
from draftmark.load.llamacpp import CompletionReader
from draftmark.load.native import GenerateReader
from draftmark.load.reading import read_answer, reader_of
from draftmark.load.sse import SseSplitter

Json = dict[str, Any]


class ThoroughSplitter(SseSplitter):
    """Goes through every line."""

    def feed_plain(self, chunk: bytes) -> list[bytes] | None:
        return None


class Thorough(AnswerReader):
    """Takes every event the long way."""

    def __init__(self, max_tokens: int | None = None, *, stream: bool = True, keep_text: bool = False) -> None:
        super().__init__(max_tokens, stream=stream, keep_text=keep_text)
        self._splitter = ThoroughSplitter()

    _take_many = AnswerReader._take_each


class ThoroughGenerate(GenerateReader):
    def __init__(self, max_tokens: int | None = None, *, stream: bool = True, keep_text: bool = False) -> None:
        super().__init__(max_tokens, stream=stream, keep_text=keep_text)
        self._splitter = ThoroughSplitter()


class ThoroughCompletion(CompletionReader):
    def __init__(self, max_tokens: int | None = None, *, stream: bool = True, keep_text: bool = False) -> None:
        super().__init__(max_tokens, stream=stream, keep_text=keep_text)
        self._splitter = ThoroughSplitter()


THOROUGH: dict[str, type[AnswerReader]] = {
    "openai": Thorough,
    "sglang": ThoroughGenerate,
    "llamacpp": ThoroughCompletion,
}

TEXT = st.one_of(st.sampled_from(["", " the", "\n\ndata: ", "é", "🙂", '"', "\\", "[DONE]"]), st.text(max_size=6))
COUNT = st.one_of(st.none(), st.integers(-2, 30), st.just(10**30))
USAGE = st.one_of(
    st.none(), st.fixed_dictionaries({}, optional={"completion_tokens": COUNT, "prompt_tokens": COUNT})
)
ERROR = st.sampled_from([None, False, "boom", {"message": "boom"}, {"code": 1}, 3])
NOTHING: st.SearchStrategy[Json] = st.just({})


def beside(*odd: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """Fields beside the ordinary ones: mostly none, sometimes one or two of these."""
    return st.one_of(
        NOTHING, st.one_of(*odd), st.tuples(st.one_of(*odd), st.one_of(*odd)).map(lambda t: t[0] | t[1])
    )


def field(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return values.map(lambda value: {name: value})


DELTA = st.tuples(
    field("content", TEXT),
    beside(
        field("content", st.one_of(st.none(), TEXT)),
        field("reasoning_content", st.one_of(st.none(), TEXT)),
        field("reasoning", st.one_of(st.none(), TEXT)),
        field("tool_calls", st.sampled_from([None, [], [{"index": 0}]])),
    ),
).map(lambda t: t[0] | t[1])
CHOICE = st.tuples(
    st.one_of(field("text", TEXT), field("delta", DELTA)),
    beside(
        field("text", st.one_of(st.none(), TEXT)),
        field("delta", st.one_of(st.none(), DELTA)),
        field("finish_reason", st.sampled_from([None, "stop", "length"])),
    ),
).map(lambda t: {"index": 0} | t[0] | t[1])
OPENAI = st.tuples(
    field("choices", CHOICE.map(lambda choice: [choice])),
    beside(
        field("choices", st.lists(CHOICE, max_size=2)),
        field("choices", st.lists(CHOICE, min_size=2, max_size=2)),
        field("usage", USAGE),
        field("timings", st.sampled_from([None, {"predicted_n": 3}, {"draft_n": 4, "draft_n_accepted": 2}, {}])),
        field("error", ERROR),
        field("object", st.sampled_from(["chat.completion.chunk", "error", None])),
        st.just({"object": "error", "detail": "words"}),
        st.just({"object": "error", "error": {"message": "words"}}),
        field("message", st.just("words")),
    ),
).map(lambda t: t[0] | t[1])
META = st.fixed_dictionaries(
    {},
    optional={
        "completion_tokens": COUNT,
        "prompt_tokens": COUNT,
        "finish_reason": st.sampled_from([None, "stop", {"type": "length"}, {"type": "abort", "message": "x"}]),
        "spec_num_proposed_drafts": COUNT,
        "spec_num_correct_drafts": COUNT,
    },
)
SGLANG = st.fixed_dictionaries(
    {},
    optional={
        "text": st.one_of(st.none(), TEXT, st.just("x" * 70)),
        "output_ids": st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=4)),
        "meta_info": META,
        "error": ERROR,
    },
)
LLAMACPP = st.fixed_dictionaries(
    {},
    optional={
        "content": TEXT,
        "stop": st.booleans(),
        "stop_type": st.sampled_from(["eos", "limit"]),
        "tokens_predicted": COUNT,
        "tokens_evaluated": COUNT,
        "timings": st.sampled_from([{"draft_n": 4, "draft_n_accepted": 2}, {}]),
        "error": ERROR,
    },
)
EVENTS = {"openai": OPENAI, "sglang": SGLANG, "llamacpp": LLAMACPP}
NOISE = st.sampled_from([b"[DONE]", b"", b"{", b'{"choices":[{"text":"\xff"}]}', b'{"a":1},{"b":2}', b"3", b"x\r"])


@st.composite
def streams(draw: st.DrawFn, api: str) -> list[tuple[float, bytes]]:
    """Reads of a stream in which each event has its own form, cut anywhere."""
    out = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\n", b"\r\n"]))
    counted = draw(st.booleans())
    for i in range(draw(st.integers(0, 8))):
        if draw(st.integers(0, 15)) != 11:
            event = draw(EVENTS[api])
            if counted:
                event.setdefault("usage", {"completion_tokens": i + 1, "prompt_tokens": 5})
            data = json.dumps(event, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
        else:
            data = draw(NOISE)
        newline = draw(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"]))
        field = draw(st.sampled_from([b"data: ", b"data: ", b"data: ", b"data:", b"data:  ", b"event: x\ndata: "]))
        out += draw(st.sampled_from([b"", b"", b"", b": ping\n\n", b"id: 4\n", b"\n"]))
        lines = data.split(b" ", 1) if draw(st.integers(0, 15)) == 11 else [data]
        out += b"".join(field + line + newline for line in lines) + newline
    out += draw(st.sampled_from([b"", b"data: [DONE]\n\n", b"data: [DONE]", b"data: [DONE]\n"]))
    cuts = draw(st.lists(st.integers(0, max(len(out), 1)), max_size=10))
    places = sorted({0, len(out), *(cut for cut in cuts if cut <= len(out))})
    return [(float(i), out[a:b]) for i, (a, b) in enumerate(pairwise(places))]


@st.composite
def alike(draw: st.DrawFn) -> list[tuple[float, bytes]]:
    """Reads of a stream whose events are nearly all alike, as bytes, too."""
    chat, escaped = draw(st.booleans()), draw(st.booleans())
    name, ordinary = draw(TEXT), st.sampled_from([" the", " cat", "é", "🙂", " a"])
    tail: Json = draw(
        st.sampled_from([{}, {"usage": None}, {"usage": {"completion_tokens": 1}}, {"object": "error"}])
    )
    out = b""
    for _ in range(draw(st.integers(1, 30))):
        text = draw(st.one_of(ordinary, ordinary, ordinary, TEXT))
        said: Json = {"delta": {"content": text}} if chat else {"text": text}
        event: Json = {"id": name, "choices": [said], **tail}
        if draw(st.integers(0, 15)) == 11:
            event = draw(OPENAI)
        data = json.dumps(event, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
        if draw(st.integers(0, 30)) == 11:
            data = draw(
                st.sampled_from([data.replace(b"c", b"\xff", 1), data[:-1], data + b"\n\n: ping", b"[DONE]"])
            )
        out += b"data: " + data + b"\n\n"
    halves = draw(st.booleans())
    if halves:  # a letter cut in two, each half in an event of its own
        out = out.replace("é".encode(), b"\xc3", 1).replace("é".encode(), b"\xa9", 1)
    out += draw(st.sampled_from([b"", b"data: [DONE]\n\n"]))
    cuts = draw(st.lists(st.integers(0, len(out)), max_size=3))
    return [(float(i), out[a:b]) for i, (a, b) in enumerate(pairwise(sorted({0, len(out), *cuts})))]


def exchange_of(reads: list[tuple[float, bytes]], failure: str | None) -> Exchange:
    exchange = Exchange()
    exchange.status, exchange.content_type, exchange.framed = 200, "text/event-stream", failure is None
    exchange.reads, exchange.end_at = reads, 99.0
    if failure is not None:
        exchange.fail(failure, "words")
    return exchange


def both(api: str, reads: list[tuple[float, bytes]], failure: str | None, most: int | None) -> list[Answer]:
    out = []
    for kind in (type(reader_of(api)), THOROUGH[api]):
        reader = kind(most, keep_text=True)
        for at, data in reads:
            reader.feed(at, data)
        out.append(reader.finish(exchange_of(reads, failure)))
    return out


@pytest.mark.parametrize("api", ["openai", "sglang", "llamacpp"])
@given(st.data())
def test_both_ways_read_the_same_answer(api: str, data: st.DataObject) -> None:
    reads = data.draw(streams(api))
    failure = data.draw(st.sampled_from([None, None, "reset", "timeout"]))
    most = data.draw(st.sampled_from([None, 4, 64]))
    quick, thorough = both(api, reads, failure, most)
    assert quick == thorough
    stepped = asyncio.run(read_answer(exchange_of(reads, failure), api=api, max_tokens=most, keep_text=True))
    assert stepped == thorough


@given(data=st.data())
def test_events_taken_together_say_what_each_would(data: st.DataObject) -> None:
    reads = data.draw(alike())
    quick, thorough = both("openai", reads, None, None)
    joined = asyncio.run(read_answer(exchange_of(reads, None), api="openai", keep_text=True))
    assert quick == joined == thorough


def test_nothing_is_taken_after_an_error() -> None:
    ordinary = b'data: {"choices":[{"text":" w"}]}\n\n' * 100
    reads = [(0.0, ordinary + b'data: {"error":{"message":"boom"}}\n\n' + ordinary + b"data: [DONE]\n\n")]
    quick, thorough = both("openai", reads, None, None)
    assert quick == thorough
    assert (len(quick.chunks), quick.done, quick.error) == (100, True, "error-event")


def test_an_ordinary_stream_takes_the_quick_way() -> None:
    """What the quick way is for must not fall back unseen."""
    events = [
        {"choices": [{"index": 0, "text": f" w{i}", "finish_reason": None}], "usage": {"completion_tokens": i}}
        for i in range(1, 51)
    ]
    body = b"".join(b"data: %b\n\n" % json.dumps(e).encode() for e in events)
    long_way = []

    class Watched(AnswerReader):
        def _event(self, at: float, data: bytes) -> None:
            long_way.append(data)
            super()._event(at, data)

    for size in (len(body), 100, 7):
        reader = Watched()
        for start in range(0, len(body), size):
            reader.feed(float(start), body[start : start + size])
        reader.feed(99.0, b"data: [DONE]\n\n")
        answer = reader.finish(exchange_of([(99.0, b"data: [DONE]\n\n")], None))
        assert len(answer.chunks) == 50
        assert (answer.counts, answer.done) == ("server", True)
    assert long_way == [b"[DONE]"] * 3


def test_a_long_answer_is_read_in_steps() -> None:
    events = b"".join(
        b'data: {"choices":[{"index":0,"text":" w%d","finish_reason":null}]}\n\n' % i for i in range(5000)
    )
    turns = 0

    async def main() -> Answer:
        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        try:
            return await read_answer(exchange_of([(1.0, events)], "reset"), api="openai")
        finally:
            other.cancel()

    answer = asyncio.run(main())
    assert len(answer.chunks) == 5000
    assert turns >= len(events) // 65_536


# --- answers that are no streams --------------------------------------------------------------------------


def whole(api: str, document: object, **options: Any) -> Answer:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    exchange = exchange_of([(1.0, body[:9]), (2.0, body[9:])], None)
    exchange.content_type = "application/json"
    return asyncio.run(read_answer(exchange, api=api, stream=False, keep_text=True, **options))


WHOLE: dict[str, Json] = {
    "openai": {
        "choices": [{"index": 0, "text": "Hello world.", "finish_reason": "length"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 6},
    },
    "openai-chat": {
        "choices": [{"index": 0, "message": {"content": "Hello world."}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 6},
    },
    "sglang": {
        "text": "Hello world.",
        "output_ids": [1, 2, 3, 4, 5, 6],
        "meta_info": {
            "finish_reason": {"type": "length", "length": 6},
            "prompt_tokens": 12,
            "completion_tokens": 6,
            "spec_num_proposed_drafts": 9,
            "spec_num_correct_drafts": 5,
        },
    },
    "llamacpp": {
        "content": "Hello world.",
        "stop": True,
        "stop_type": "length",
        "tokens_predicted": 6,
        "tokens_evaluated": 12,
        "timings": {"draft_n": 9, "draft_n_accepted": 5},
    },
}


def test_whole_answers() -> None:
    for api, document in WHOLE.items():
        got = whole(api, document, max_tokens=6)
        assert (got.error, got.finish, got.text) == (None, "length", "Hello world."), api
        assert (got.prompt_tokens, got.output_tokens) == (12, 6), api
        assert (got.chunks, got.counts) == ((), "spread"), api
        drafted = (9, 5) if api in ("sglang", "llamacpp") else (None, None)
        assert (got.drafted_tokens, got.accepted_tokens) == drafted, api


def test_whole_answers_that_are_none() -> None:
    for api, document, kind in (
        ("openai", {"error": {"message": "boom"}}, "error-event"),
        ("openai-chat", {"detail": "boom"}, "error-event"),
        ("sglang", {"error": {"message": "boom"}}, "error-event"),
        ("llamacpp", {"error": {"message": "boom"}}, "error-event"),
        ("openai", {"choices": []}, "malformed"),
        ("llamacpp", {}, "malformed"),
        ("openai", b"<html>", "malformed"),
        ("sglang", b'data: {"text":"a"}\n\n', "malformed"),
        ("openai", b"", "malformed"),
    ):
        got = whole(api, document)
        assert got.error == kind, (api, document, got)


def test_a_stream_of_llama_server() -> None:
    events: list[Json] = [
        {"index": 0, "content": "Hel", "tokens": [1], "stop": False, "tokens_predicted": 1, "tokens_evaluated": 12},
        {
            "index": 0,
            "content": "lo",
            "tokens": [2, 3],
            "stop": False,
            "tokens_predicted": 3,
            "tokens_evaluated": 12,
        },
        {
            "index": 0,
            "content": "",
            "tokens": [],
            "stop": True,
            "stop_type": "limit",
            "tokens_predicted": 3,
            "tokens_evaluated": 12,
            "timings": {"prompt_n": 4, "cache_n": 8, "predicted_n": 3, "draft_n": 2, "draft_n_accepted": 1},
        },
    ]
    reads = [(float(i), b"data: %b\n\n" % json.dumps(event).encode()) for i, event in enumerate(events)]
    got = both("llamacpp", reads, None, 8)[0]
    assert (got.error, got.finish, got.text, got.counts) == (None, "limit", "Hello", "server")
    assert got.chunks == ((0.0, 1.0), (1.0, 3.0))
    assert (got.prompt_tokens, got.output_tokens, got.drafted_tokens, got.accepted_tokens) == (12, 3, 2, 1)
    cut = both("llamacpp", reads[:2], None, 8)[0]
    assert cut.error == "no-end"
