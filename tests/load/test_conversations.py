"""Turns, think time, forced lengths, token ids and whole answers, over each API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from draftmark.load.plan import LoadRun
from draftmark.load.session import NOT_GONE_ON
from draftmark.model import Message, Prompt, Workload

from .driving import carry_out, measured, plan, prompts
from .scripted import Json, Request, Script, Wire, answer, delta, failing, serving, usage

TALK = Workload(
    "talk",
    (Prompt("a", (Message("system", "Be kind."), Message("user", "one")), 8, follow_ups=("two", "three")),),
)


def contents(request: Request) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in request.body["messages"]]


@pytest.mark.parametrize("opened", [True, False])
def test_each_turn_is_sent_with_the_conversation_and_the_answers_so_far(opened: bool) -> None:
    times: Any = {"send_at_s": (0.0, 0.01)} if opened else {"repeat": 2}
    with serving(answer(("well ", "then"))) as server:
        run = carry_out(server.url, plan(TALK, **times))
        assert server.connections <= 2
    assert sorted(r.tag for r in run.records) == [f"bench-{n}{t}" for n in (1, 2) for t in ("", ".1", ".2")]
    mine = {r.headers["x-request-id"]: r for r in server.posts}
    assert contents(mine["bench-1"]) == [("system", "Be kind."), ("user", "one")]
    assert contents(mine["bench-1.2"]) == [
        ("system", "Be kind."),
        ("user", "one"),
        ("assistant", "well then"),
        ("user", "two"),
        ("assistant", "well then"),
        ("user", "three"),
    ]
    assert mine["bench-1.2"].body["user"] == "bench-1.2"
    records = {r.tag: r for r in run.records}
    assert [records[f"bench-2{t}"].turn for t in ("", ".1", ".2")] == [0, 1, 2]
    assert records["bench-1.1"].sent_at_s >= records["bench-1"].end_at_s
    if opened:
        assert records["bench-1.1"].intended_at_s == pytest.approx(records["bench-1"].end_at_s)


def test_reasoning_is_not_handed_back_to_the_server() -> None:
    async def script(wire: Wire, request: Request) -> None:
        wire.stream()
        await wire.event({"choices": [{"index": 0, "delta": {"reasoning_content": "hmm"}}]})
        await wire.event(delta("yes", "stop"))
        await wire.event("[DONE]")
        await wire.end()

    with serving(script) as server:
        carry_out(server.url, plan(TALK))
    assert ("assistant", "yes") in contents(server.posts[1])


def test_a_failed_turn_ends_its_conversation_and_what_was_not_sent_is_told() -> None:
    async def script(wire: Wire, request: Request) -> None:
        if request.headers["x-request-id"] == "bench-1.1":
            await failing("500 Oops", b'{"error": {"message": "it broke"}}')(wire, request)
        else:
            await answer()(wire, request)

    with serving(script) as server:
        run = carry_out(server.url, plan(TALK, repeat=2))
    assert [(r.tag, r.error) for r in run.records] == [
        ("bench-1", None),
        ("bench-1.1", "http-500"),
        ("bench-2", None),
        ("bench-2.1", None),
        ("bench-2.2", None),
    ]
    assert run.unsent == {NOT_GONE_ON: 1}
    assert run.stopped_because is None


def test_a_conversation_that_is_cut_is_told_in_full() -> None:
    async def script(wire: Wire, request: Request) -> None:
        if request.headers["x-request-id"] == "bench-1.1":
            wire.stream()
            await wire.event(delta("a"))
            await wire.until_left()
        else:
            await answer()(wire, request)

    with serving(script) as server:
        run = carry_out(server.url, plan(TALK, repeat=2, max_seconds=0.4))
    assert [(r.tag, r.error) for r in run.records] == [("bench-1", None), ("bench-1.1", "cut")]
    assert run.unsent == {"the limit of 0.4 s was reached": 4}


def test_thinking_comes_before_each_measured_request() -> None:
    with serving(answer(("a",))) as server:
        run = carry_out(server.url, plan(prompts(2), warmup=1, think_s=(0.05, 0.15)))
    warm, first, second = sorted(run.records, key=lambda r: r.sent_at_s)
    assert first.sent_at_s - warm.end_at_s >= 0.05
    assert second.sent_at_s - first.end_at_s >= 0.15


def test_a_follow_up_of_an_open_loop_is_intended_after_thinking() -> None:
    with serving(answer(("a",))) as server:
        run = carry_out(server.url, plan(TALK, send_at_s=(0.0,), think_s=(0.0, 0.1, 0.2)))
    first, second, third = measured(run)
    assert second.intended_at_s == pytest.approx(first.end_at_s + 0.1, abs=1e-6)
    assert third.intended_at_s == pytest.approx(second.end_at_s + 0.2, abs=1e-6)
    assert second.sent_at_s >= (second.intended_at_s or 0.0)


# --- forms --------------------------------------------------------------------------------------------------


async def sglang(wire: Wire, request: Request) -> None:
    if request.path == "/tokenize":
        await wire.whole("200 OK", json.dumps({"tokens": [len(request.body["messages"]), 7]}).encode())
        return
    chunk: Json = {
        "text": "well",
        "output_ids": [1, 2],
        "meta_info": {"finish_reason": {"type": "length"}, "prompt_tokens": 2, "completion_tokens": 2},
    }
    await told(wire, request, chunk, end="[DONE]")


async def llamacpp(wire: Wire, request: Request) -> None:
    if request.path == "/apply-template":
        text = "".join(f"<{m['role']}>{m['content']}" for m in request.body["messages"])
        await wire.whole("200 OK", json.dumps({"prompt": text}).encode())
        return
    timings = {"predicted_n": 2, "prompt_n": 5, "cache_n": 0, "draft_n": 3, "draft_n_accepted": 1}
    last: Json = {
        "content": "well",
        "stop": True,
        "stop_type": "limit",
        "tokens_predicted": 2,
        "tokens_evaluated": 5,
    }
    await told(wire, request, last | {"timings": timings})


async def told(wire: Wire, request: Request, event: Json, end: str | None = None) -> None:
    if not request.body["stream"]:
        await wire.whole("200 OK", json.dumps(event).encode())
        return
    wire.stream()
    await wire.event(event)
    if end is not None:
        await wire.event(end)
    await wire.end()


async def openai(wire: Wire, request: Request) -> None:
    if request.body["stream"]:
        await answer(("we", "ll"))(wire, request)
        return
    choice: Json = {"index": 0, "finish_reason": "length"}
    choice |= {"message": {"content": "well"}} if "messages" in request.body else {"text": "well"}
    await wire.whole("200 OK", json.dumps({"choices": [choice], "usage": usage(2)}).encode())


SERVERS = {"openai-chat": openai, "openai": openai, "sglang": sglang, "llamacpp": llamacpp}
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai": "/v1/completions",
    "sglang": "/generate",
    "llamacpp": "/completion",
}


def asked(api: str, script: Script, **options: Any) -> tuple[LoadRun, list[Request]]:
    with serving(script) as server:
        run = carry_out(server.url, plan(api=api, **options))
    return run, [r for r in server.posts if r.path == PATHS[api]]


@pytest.mark.parametrize("api", SERVERS)
@pytest.mark.parametrize("stream", [True, False])
def test_forced_lengths_and_tags_in_each_apis_own_words(api: str, stream: bool) -> None:
    extra = {"rid": "{tag}", "request_id": "{tag}"}
    run, (first, second) = asked(api, SERVERS[api], workload=prompts(2, forced=True), extra=extra, stream=stream)
    assert [r.error for r in run.records] == [None, None]
    where = first.body["sampling_params"] if api == "sglang" else first.body
    assert where["ignore_eos"] is True
    limits = {"sglang": "max_new_tokens", "llamacpp": "n_predict"}
    assert where[limits.get(api, "max_tokens")] == 8
    assert first.body["stream"] is stream
    assert [r.body["rid"] for r in (first, second)] == ["bench-1", "bench-2"]
    assert [r.body["request_id"] for r in (first, second)] == ["bench-1", "bench-2"]
    assert [r.headers["x-request-id"] for r in (first, second)] == ["bench-1", "bench-2"]
    assert run.assumptions[0].startswith("2 answers are shorter than the length that was to be forced")


@pytest.mark.parametrize("api", SERVERS)
def test_unforced_prompts_say_nothing_of_it(api: str) -> None:
    run, (first, _) = asked(api, SERVERS[api])
    assert "ignore_eos" not in first.body | first.body.get("sampling_params", {})
    assert run.assumptions == ()


@pytest.mark.parametrize("api", SERVERS)
def test_an_answer_that_comes_whole_has_no_times_of_its_tokens(api: str) -> None:
    run, requests = asked(api, SERVERS[api], stream=False)
    for r in run.records:
        assert (r.error, r.output_tokens, r.chunks) == (None, 2, ())
        assert (r.first_token_at_s, r.last_token_at_s) == (None, None)
        assert r.end_at_s > r.sent_at_s
        assert r.text_sha256 is not None
    assert all("stream_options" not in r.body for r in requests)
    streamed, _ = asked(api, SERVERS[api])
    assert {r.text_sha256 for r in streamed.records} == {r.text_sha256 for r in run.records}


@pytest.mark.parametrize("api", SERVERS)
@pytest.mark.parametrize("stream", [True, False])
def test_conversations_go_on_over_every_api(api: str, stream: bool) -> None:
    run, requests = asked(api, SERVERS[api], workload=TALK, stream=stream)
    assert [(r.tag, r.error) for r in run.records] == [("bench-1", None), ("bench-1.1", None), ("bench-1.2", None)]
    last = requests[-1].body
    if api == "openai-chat":
        assert [m["content"] for m in last["messages"]] == ["Be kind.", "one", "well", "two", "well", "three"]
    elif api == "sglang":
        assert [r.body["input_ids"] for r in requests] == [[2, 7], [4, 7], [6, 7]]
    elif api == "openai":
        assert last["prompt"] == "Be kind.\none\nwell\ntwo\nwell\nthree"
    else:
        assert last["prompt"].endswith("<assistant>well<user>two<assistant>well<user>three")


@pytest.mark.parametrize(("api", "field"), [("openai", "prompt"), ("sglang", "input_ids"), ("llamacpp", "prompt")])
def test_prompts_of_token_ids_are_sent_as_they_are(api: str, field: str) -> None:
    ids = Workload("ids", (Prompt("p", (), 8, token_ids=(5, 6, 7), forced=True),))
    run, (only,) = asked(api, SERVERS[api], workload=ids)
    assert only.body[field] == [5, 6, 7]
    assert run.records[0].error is None


def test_llama_servers_own_form_tells_what_became_of_the_drafts() -> None:
    run, (first, _) = asked("llamacpp", llamacpp)
    assert first.body["prompt"] == "<user>say 0"
    assert first.body["timings_per_token"] is True
    record = run.records[0]
    assert (record.prompt_tokens, record.output_tokens, record.finish) == (5, 2, "limit")
    assert (record.drafted_tokens, record.accepted_tokens) == (3, 1)


def test_a_follow_up_that_the_server_does_not_make_ready_is_an_error_of_its_own() -> None:
    async def script(wire: Wire, request: Request) -> None:
        if request.path == "/tokenize" and len(request.body["messages"]) > 2:
            await wire.whole("500 Oops", b'{"error": "no"}')
        else:
            await sglang(wire, request)

    run, _ = asked("sglang", script, workload=TALK)
    assert [(r.tag, r.error) for r in run.records] == [("bench-1", None), ("bench-1.1", "preparation")]
    assert "/tokenize" in (run.records[1].error_detail or "")
    assert run.unsent == {NOT_GONE_ON: 1}


@pytest.mark.parametrize(("api", "field"), [("sglang", "text"), ("llamacpp", "prompt")])
def test_a_server_that_keeps_its_template_to_itself_is_asked_with_plain_text(api: str, field: str) -> None:
    asked_for = 0

    async def script(wire: Wire, request: Request) -> None:
        nonlocal asked_for
        if request.path in {"/tokenize", "/apply-template"}:
            asked_for += 1
            await wire.whole("404 Not Found", b"{}")
        else:
            await SERVERS[api](wire, request)

    run, requests = asked(api, script, workload=TALK)
    assert asked_for == 1
    assert [r.body[field] for r in requests][:2] == ["Be kind.\none", "Be kind.\none\nwell\ntwo"]
    assert all("input_ids" not in r.body for r in requests)
    assert [r.error for r in run.records] == [None] * 3
    assert "chat template" in run.assumptions[0]
