"""The closed loop against scripted servers. What interrupts it: test_interruption.py."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from draftmark.errors import UsageError
from draftmark.load.client import LoadRun, run_closed_loop
from draftmark.load.measurement import measure
from draftmark.model import Message, Prompt, RequestRecord, Workload

from .scripted import Request, Script, Wire, answer, delta, failing, serving, usage


def workload(prompts: int = 2) -> Workload:
    return Workload("w", tuple(Prompt(f"p{i}", (Message("user", f"say {i}"),), 8) for i in range(prompts)))


def run(url: str, prompts: int = 2, **options: Any) -> LoadRun:
    options.setdefault("concurrency", 1)
    options.setdefault("warmup", 0)
    return run_closed_loop(url, workload(prompts), **options)


def one(script: Script, **options: Any) -> RequestRecord:
    """The record of one request to a server that plays this script."""
    with serving(script) as server:
        (record,) = run(server.url, 1, **options).records
    return record


# --- what is sent and in which order ----------------------------------------------------------------------


def test_warm_up_then_every_prompt_in_order_with_tags() -> None:
    with serving(answer()) as server:
        got = run(server.url, 3, repeat=2, warmup=2, first_tag=27, headers={"Authorization": "Bearer x"})
    assert [r.tag for r in got.records] == [f"bench-{n}" for n in range(27, 35)]
    assert [r.prompt_id for r in got.records] == ["p0", "p1", *["p0", "p1", "p2"] * 2]
    assert [r.warmup for r in got.records] == [True] * 2 + [False] * 6
    assert [r.headers["x-request-id"] for r in server.posts] == [r.tag for r in got.records]
    assert {r.headers["authorization"] for r in server.requests} == {"Bearer x"}
    assert all(r.path == "/v1/chat/completions" for r in server.posts)
    first = server.posts[0].body
    assert first["user"] == "bench-27"
    assert first["model"] == "scripted"
    assert first["stream"] is True
    assert got.stopped_because is None
    assert got.assumptions == ()


def test_one_connection_a_slot_serves_all_its_requests() -> None:
    with serving(answer(gap_s=0.005)) as server:
        run(server.url, 4, repeat=3, concurrency=2)
    assert len({r.connection for r in server.posts}) == 2
    assert len(server.posts) == 12


def test_the_completions_api_below_a_path() -> None:
    with serving(answer(), models={}) as server:
        got = run(server.url + "/gate/v1/", 1, api="openai", extra={"top_k": 1})
        assert [r.path for r in server.requests] == ["/gate/v1/models", "/gate/v1/completions"]
    assert server.posts[0].body["prompt"] == "say 0"
    assert server.posts[0].body["top_k"] == 1
    assert "model" not in server.posts[0].body
    assert [r.output_tokens for r in got.records] == [4]


def test_a_given_model_is_not_asked_for() -> None:
    with serving(answer()) as server:
        run(server.url, 1, model="mine")
        assert [r.method for r in server.requests] == ["POST"]
        assert server.posts[0].body["model"] == "mine"


def test_slots_go_from_warm_up_to_measured_without_draining() -> None:
    """While the slow warm-up runs on, the other slot is already at the measured requests."""

    async def script(wire: Wire, request: Request) -> None:
        slow = request.body["user"] == "bench-1"
        await answer(("a", "b"), gap_s=0.2 if slow else 0.01)(wire, request)

    with serving(script) as server:
        got = run(server.url, 6, concurrency=2)  # one warm-up a slot
        got = run(server.url, 6, concurrency=2, warmup=2)
    by_tag = {r.tag: r for r in got.records}
    assert by_tag["bench-3"].sent_at_s < by_tag["bench-1"].end_at_s
    assert [r.warmup for r in sorted(got.records, key=lambda r: int(r.tag[6:]))] == [True] * 2 + [False] * 6


def test_warm_up_is_one_a_slot_by_default() -> None:
    with serving(answer()) as server:
        got = run_closed_loop(server.url, workload(2), concurrency=3)
    assert [r.warmup for r in got.records].count(True) == 3
    assert [r.warmup for r in got.records].count(False) == 2


# --- what is read -----------------------------------------------------------------------------------------


def test_times_are_those_of_the_arrivals() -> None:
    with serving(answer(("a", "b", "c", "d"), gap_s=0.05)) as server:
        got = run(server.url, 2)
    for r in got.records:
        assert r.first_byte_at_s is not None
        assert r.first_token_at_s is not None
        assert r.last_token_at_s is not None
        assert r.sent_at_s <= r.first_byte_at_s <= r.first_token_at_s < r.last_token_at_s <= r.end_at_s
        times = [at for at, _ in r.chunks]
        assert len(times) == 4
        assert times[0] == pytest.approx(r.first_token_at_s - r.sent_at_s)
        assert min(b - a for a, b in pairwise(times)) > 0.03
        assert times[0] > 0.04
    first, second = got.records
    assert 0 <= second.sent_at_s - first.end_at_s < 0.03


STREAMS: dict[str, tuple[Script, str, list[float]]] = {
    "usage at the end": (answer(("a", "b"), tokens=6), "spread", [3.0, 6.0]),
    "no usage": (answer(("a", "b"), tokens=0), "chunks", [1.0, 2.0]),
    "continuous usage": (answer(("a", "bc", "d"), tokens=4, per_chunk=(1, 3, 4)), "server", [1.0, 3.0, 4.0]),
    "CRLF": (answer(("a", "b"), newline=b"\r\n"), "spread", [1.0, 2.0]),
    "no [DONE]": (answer(("a", "b"), done=False), "spread", [1.0, 2.0]),
    "no finish reason": (answer(("a", "b"), finish=None), "spread", [1.0, 2.0]),
    "timings": (answer(("a", "b"), timings={"predicted_n": 2, "draft_n": 1}), "spread", [1.0, 2.0]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_that_are_right(name: str) -> None:
    script, counts, cumulative = STREAMS[name]
    r = one(script)
    assert r.error is None
    assert r.chunk_counts == counts
    assert [n for _, n in r.chunks] == cumulative
    assert r.drafted_tokens == (1 if name == "timings" else None)


def test_assumptions_are_said() -> None:
    with serving(answer(tokens=0)) as server:
        got = run(server.url, 1)
    assert got.records[0].output_tokens is None
    assert got.assumptions == ("The server gave no token count; one token a chunk was assumed.",)
    with serving(answer(tokens=8)) as server:
        got = run(server.url, 1)
    assert len(got.assumptions) == 1
    assert "8 tokens came in 4 chunks" in got.assumptions[0]


def test_comments_and_a_character_cut_across_writes() -> None:
    async def script(wire: Wire, request: Request) -> None:
        wire.stream()
        await wire.chunk(b": keep-alive\n\n")
        text = b"data: " + json.dumps(delta("Grüße 🙂"), ensure_ascii=False).encode() + b"\n\n"
        cut = text.index("🙂".encode()) + 2
        for part in (text[:cut], b"", text[cut:]):
            await asyncio.sleep(0.01)
            if part:
                await wire.chunk(part)
        await wire.event(delta(None, "stop"))
        await wire.event("[DONE]")
        await wire.end()

    plain = one(answer(("Grüße 🙂",), tokens=0, finish="stop"))
    r = one(script)
    assert r.error is None
    assert r.text_sha256 == plain.text_sha256


def test_a_body_of_known_length_and_one_that_ends_with_its_connection() -> None:
    events = [delta("a"), delta("b", "stop"), {"choices": [], "usage": usage(2)}]
    body = "".join(f"data: {json.dumps(e)}\n\n" for e in events).encode() + b"data: [DONE]"

    async def length(wire: Wire, request: Request) -> None:
        await wire.whole("200 OK", body, kind="text/event-stream")

    async def until_close(wire: Wire, request: Request) -> None:
        wire.head(headers=("Connection: close",))
        wire.writer.write(body)
        await wire.writer.drain()
        wire.close()

    for script in (length, until_close):
        with serving(script) as server:
            got = run(server.url, 3)
        assert [(r.error, r.output_tokens, r.finish) for r in got.records] == [(None, 2, "stop")] * 3


def test_an_interim_answer_and_connection_close_are_understood() -> None:
    async def script(wire: Wire, request: Request) -> None:
        wire.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        wire.head(headers=("Transfer-Encoding: chunked", "Connection: close"))
        await wire.event(delta("a", "stop"))
        await wire.event("[DONE]")
        await wire.end()
        wire.close()

    with serving(script) as server:
        got = run(server.url, 3)
    assert [r.error for r in got.records] == [None] * 3
    assert len({r.connection for r in server.posts}) == 3


def test_a_kept_connection_that_the_server_closed_is_replaced_silently() -> None:
    async def script(wire: Wire, request: Request) -> None:
        await answer()(wire, request)
        wire.close()  # without saying so beforehand

    with serving(script) as server:
        got = run(server.url, 5)
    assert [r.error for r in got.records] == [None] * 5


# --- errors -----------------------------------------------------------------------------------------------


async def reset(wire: Wire, request: Request) -> None:
    wire.stream()
    await wire.event(delta("a"))
    await asyncio.sleep(0.02)
    wire.reset()


async def close(wire: Wire, request: Request) -> None:
    wire.stream()
    await wire.event(delta("a"))
    wire.close()


async def hang(wire: Wire, request: Request) -> None:
    wire.stream()
    await wire.event(delta("a"))
    await wire.until_left()


async def malformed(wire: Wire, request: Request) -> None:
    wire.stream()
    await wire.event(delta("a"))
    await wire.event('{"choices": [{"delta": {"content": "b"')
    await wire.event("[DONE]")
    await wire.end()


async def error_event(wire: Wire, request: Request) -> None:
    wire.stream()
    await wire.event(delta("a"))
    await wire.event({"error": {"message": "engine died", "code": 500}})
    await wire.event("[DONE]")
    await wire.end()


async def not_http(wire: Wire, request: Request) -> None:
    wire.writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await wire.writer.drain()


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (reset, "reset", "reset"),
        (close, "closed", "in the middle of the answer"),
        (hang, "timeout", "no end within 0.3 s"),
        (malformed, "malformed", "b"),
        (error_event, "error-event", "engine died"),
        (not_http, "malformed", "not HTTP/1.1"),
        (failing("500 Oops", b'{"error": {"message": "it broke"}}'), "http-500", "it broke"),
        (failing("429 Too Many", b'{"error": {"message": "slow"}}', ("Retry-After: 3",)), "http-429", "slow"),
        (failing("307 Moved", b"", ("Location: http://else/",)), "http-307", ""),
        (answer(finish=None, tokens=0, done=False), "no-end", "without finish reason"),
    ],
)
def test_errors_by_kind(script: Script, kind: str, words: str) -> None:
    r = one(script, request_timeout_s=0.3)
    assert r.error == kind
    assert words in (r.error_detail or "")
    assert r.end_at_s >= r.sent_at_s


def test_what_came_before_an_error_is_kept_and_the_next_request_works() -> None:
    async def script(wire: Wire, request: Request) -> None:
        await (reset if request.body["user"] == "bench-1" else answer())(wire, request)

    with serving(script) as server:
        got = run(server.url, 3)
    assert [r.error for r in got.records] == ["reset", None, None]
    assert len(got.records[0].chunks) == 1
    assert measure(got.records, workload="w", concurrency=1).errors == {"reset": 1}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def test_nobody_listens() -> None:
    got = run(f"http://127.0.0.1:{free_port()}", 50, concurrency=2, max_errors=5)
    assert {r.error for r in got.records if r.error != "cut"} == {"connect-refused"}
    assert 5 <= len(got.records) <= 7
    assert got.stopped_because is not None
    assert "5 requests in a row" in got.stopped_because
    assert "connect-refused" in got.stopped_because


def test_a_name_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    got = run("http://nowhere.invalid:1", 1)
    assert got.records[0].error == "dns"
    assert "nowhere.invalid" in (got.records[0].error_detail or "")


def test_a_server_that_accepts_no_connection() -> None:
    with socket.socket() as listener, socket.socket() as filler:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        filler.connect(("127.0.0.1", port))  # fills the backlog: a further SYN is not answered
        got = run(f"http://127.0.0.1:{port}", 1, connect_timeout_s=0.2, model="m")
    assert got.records[0].error == "connect-timeout"


def test_a_server_that_dies_in_the_middle_ends_the_run_early() -> None:
    with serving(answer(gap_s=0.01)) as server:
        killed = threading.Event()

        def kill(record: RequestRecord) -> None:
            if record.tag == "bench-3" and not killed.is_set():
                killed.set()
                server.script = vanish

        async def vanish(wire: Wire, request: Request) -> None:
            wire.reset()

        got = run(server.url, 500, concurrency=2, on_record=kill)
    assert got.stopped_because is not None
    assert len(got.records) < 40
    assert [r.error for r in got.records[:3]] == [None] * 3
    assert {r.error for r in got.records[-5:]} <= {"reset", "closed", "cut"}


def test_http_errors_do_not_end_the_run() -> None:
    with serving(failing("503 Busy", b"{}")) as server:
        got = run(server.url, 30, max_errors=3)
    assert got.stopped_because is None
    assert [r.error for r in got.records] == ["http-503"] * 30


# --- stream_options ---------------------------------------------------------------------------------------


def refusing(status: str) -> Script:
    async def script(wire: Wire, request: Request) -> None:
        if "stream_options" in request.body:
            await wire.whole(status, b'{"error": {"message": "unknown field stream_options"}}')
        else:
            await answer(("a", "b"), tokens=0)(wire, request)

    return script


@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable"])
def test_a_server_that_refuses_stream_options_is_asked_without_them(status: str) -> None:
    with serving(refusing(status)) as server:
        got = run(server.url, 4)
    assert [r.error for r in got.records] == [None] * 4
    assert ["stream_options" in r.body for r in server.posts] == [True, False, False, False, False]
    assert got.assumptions[0] == "The server refuses stream_options, so it was asked without it."


def test_it_is_found_out_with_several_slots_too() -> None:
    with serving(refusing("400 Bad Request")) as server:
        got = run(server.url, 12, concurrency=4)
    assert [r.error for r in got.records] == [None] * 12
    assert sum("stream_options" in r.body for r in server.posts) <= 4


def test_another_reason_for_400_is_not_blamed_on_stream_options() -> None:
    async def script(wire: Wire, request: Request) -> None:
        if request.body["user"] == "bench-1":
            await wire.whole("400 Bad Request", b'{"error": {"message": "prompt too long"}}')
        else:
            await answer()(wire, request)

    with serving(script) as server:
        got = run(server.url, 3)
    assert [(r.error, r.error_detail) for r in got.records] == [
        ("http-400", "prompt too long"),
        (None, None),
        (None, None),
    ]
    assert ["stream_options" in r.body for r in server.posts] == [True, False, True, True]
    assert got.assumptions == ()


# --- limits, callbacks, interruption ----------------------------------------------------------------------


def test_the_limit_of_the_whole_returns_what_was_measured() -> None:
    with serving(answer(("a",) * 10, gap_s=0.01)) as server:
        begin = time.monotonic()
        got = run(server.url, 1000, concurrency=2, max_seconds=0.5)
        assert time.monotonic() - begin < 1.5
        assert server.open == 0 or wait_until_closed(server)
    assert got.stopped_because == "the limit of 0.5 s was reached"
    assert [r.error for r in got.records[-2:]] == ["cut", "cut"]
    assert {r.error for r in got.records[:-2]} == {None}
    measured = measure(got.records, workload="w", concurrency=2)
    assert measured.errors == {}
    assert measured.requests == len(got.records) - 2
    assert measured.output_tok_s is not None


def wait_until_closed(server: Any) -> bool:
    for _ in range(100):
        if server.open == 0:
            return True
        time.sleep(0.01)
    return False


def test_progress_and_records_come_in_the_callers_thread() -> None:
    seen: list[tuple[int, int, float | None, int]] = []
    records: list[RequestRecord] = []
    threads: set[int] = set()

    def on_progress(done: int, total: int, tok_s: float | None, errors: int) -> None:
        seen.append((done, total, tok_s, errors))
        threads.add(threading.get_ident())

    with serving(answer()) as server:
        got = run(server.url, 3, warmup=1, on_record=records.append, on_progress=on_progress)
    assert tuple(records) == got.records
    assert [s[:2] for s in seen] == [(1, 3), (2, 3), (3, 3)]
    assert all(s[2] is not None and s[2] > 0 and s[3] == 0 for s in seen)
    assert threads == {threading.get_ident()}


def test_client_health_is_measured() -> None:
    with serving(answer(gap_s=0.02)) as server:
        got = run(server.url, 2)
    assert got.client.loop_lag_ms_p99 is not None
    assert 0 <= got.client.loop_lag_ms_p99 < 1000
    assert got.client.cpu_s is not None
    assert 0 < got.client.cpu_s < 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"repeat": 0}, "repeat is 0"),
        ({"warmup": -1}, "warmup is -1"),
        ({"api": "gopher"}, "unknown API 'gopher'"),
        ({"request_timeout_s": 0.0}, "request_timeout_s is 0"),
        ({"max_seconds": float("nan")}, "max_seconds is nan"),
        ({"headers": {"X": "a\r\nY: b"}}, "header 'X'"),
        ({"headers": {"X Y": "a"}}, "header 'X Y'"),
        ({"headers": {"X": "\u20ac"}}, "character that HTTP cannot carry"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        run("http://127.0.0.1:1", **options)
    assert words in caught.value.what


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:99999", "http://[::1"])
def test_urls_that_cannot_be_used(url: str) -> None:
    with pytest.raises(UsageError, match=r"not a URL|not an http"):
        run(url)
