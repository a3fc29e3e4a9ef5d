"""A real llama-server over each API that it has: its own `/completion` is asked the very prompt of its chat."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from tests.embedded.test_engine import SPECULATION, spawn, url, wait_until_ready

from draftmark.embedded.progress import NullProgress
from draftmark.embedded.provision import provision
from draftmark.model import Message, Prompt, Workload

from .driving import carry_out, measured, plan

pytestmark = pytest.mark.engine

TALK = Workload(
    "w",
    (
        Prompt(
            "a", (Message("user", "Count: one two three one two three"),), 12, forced=True, follow_ups=("Again.",)
        ),
    ),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ready = provision(NullProgress(), engine="xllamacpp")
    log = tmp_path_factory.mktemp("llama") / "log"
    process: subprocess.Popen[bytes] = spawn(ready, log, *SPECULATION)
    try:
        wait_until_ready(ready, process, log)
        yield url(ready)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("stream", [True, False])
def test_its_own_form_is_asked_the_prompt_of_the_chat_and_answers_alike(server: str, stream: bool) -> None:
    chat, own = (
        measured(carry_out(server, plan(TALK, api=api, stream=stream, model=None)))
        for api in ("openai-chat", "llamacpp")
    )
    assert [r.error for r in chat + own] == [None] * 4
    for a, b in zip(chat, own, strict=True):
        assert (a.tag, a.prompt_tokens, a.output_tokens) == (b.tag, b.prompt_tokens, b.output_tokens)
        assert a.output_tokens == 12
        assert a.text_sha256 == b.text_sha256
        assert (a.drafted_tokens, a.accepted_tokens) == (b.drafted_tokens, b.accepted_tokens)
    assert (chat[1].prompt_tokens or 0) > (chat[0].prompt_tokens or 0) + 12
    assert {r.chunk_counts for r in own} == ({"server"} if stream else {"spread"})


@pytest.mark.parametrize("api", ["openai", "llamacpp"])
def test_token_ids_reach_it_as_they_are(server: str, api: str) -> None:
    ids = Workload("ids", (Prompt("p", (), 6, token_ids=(10, 20, 30, 40), forced=True),))
    (record,) = carry_out(server, plan(ids, api=api)).records
    assert (record.error, record.prompt_tokens, record.output_tokens) == (None, 4, 6)
