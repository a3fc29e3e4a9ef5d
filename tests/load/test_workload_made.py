"""Prompts made to measure: as long as wanted, alike where they should be, and nowhere else."""

from __future__ import annotations

import hashlib
import json
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.load.traces import RequestTrace, TraceRequest
from draftmark.load.workloads import (
    Prose,
    SharedPrefix,
    forced,
    load_workloads,
    random_tokens,
    replayed,
    shared_prefix,
)
from draftmark.load.workloads.prose import BYTES_PER_TOKEN, chapters, estimated_tokens
from draftmark.model import Message, Prompt, Workload


def common(a: str, b: str) -> int:
    """How many characters two texts begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def text_of(prompt: Prompt) -> str:
    (message,) = prompt.messages
    return message.content


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64))
def test_a_passage_is_as_long_as_wanted(tokens: int, seed: int) -> None:
    text = Prose.built_in(seed).passage(tokens, "document 1")
    size = tokens * BYTES_PER_TOKEN
    assert size - 21 <= len(text.encode()) <= size + 1
    assert text


def test_passages_repeat_by_key_and_differ_between_keys_and_seeds() -> None:
    prose = Prose.built_in(1)
    assert prose.passage(900, "a") == Prose.built_in(1).passage(900, "a")
    texts = [prose.passage(900, key) for key in ("a", "b", "c")] + [Prose.built_in(2).passage(900, "a")]
    assert all(common(a, b) < 20 for a, b in combinations(texts, 2))
    assert prose.passage(900, "a").startswith(prose.passage(50, "a"))


def test_passages_are_made_of_real_sentences() -> None:
    whole = " ".join(" ".join(chapters()).split())
    passage = Prose.built_in().passage(300, "k")
    sentences = [s for s in passage.split(". ")[1:-1] if len(s) > 30]
    assert len(sentences) > 5
    assert all(sentence in whole for sentence in sentences)


def test_text_that_is_not_latin_is_cut_between_characters() -> None:
    prose = Prose(["吾輩は猫である。名前はまだ無い。"])
    for tokens in range(1, 40):
        assert len(prose.passage(tokens, "k").encode()) <= tokens * BYTES_PER_TOKEN + 1


def test_prose_of_the_users_own_prompts() -> None:
    own = Workload(name="own", prompts=(Prompt("1", (Message("user", "One thing. Another thing."),), 5),))
    assert set(Prose.of([own]).passage(50, "k").replace(".", "").split()) <= {"(k)", "One", "Another", "thing"}


@pytest.mark.parametrize(("text", "tokens"), [("", 1), ("word " * 88, 100), ("猫" * 44, 30)])
def test_estimates(text: str, tokens: int) -> None:
    assert estimated_tokens(text) == pytest.approx(tokens, rel=0.01)


# --- shared beginnings --------------------------------------------------------------------------------------


def test_groups_share_their_beginning_and_nothing_else() -> None:
    shape = SharedPrefix(3, 4, 200)
    made = shared_prefix(shape, load_workloads(["chat"]), Prose.built_in())
    assert len(made.prompts) == shape.total == 12
    assert len({p.id for p in made.prompts}) == 12
    assert len({text_of(p) for p in made.prompts}) == 12
    assert made.source == "shared-prefix 3:4:200"
    size = 200 * BYTES_PER_TOKEN
    for a, b in combinations(made.prompts, 2):
        alike = common(text_of(a), text_of(b))
        if a.id.split("-")[0] == b.id.split("-")[0]:
            assert size * 0.9 < alike < size + 30
        else:
            assert alike < 20
    assert [p.id for p in made.prompts[:4]] == ["g1-1", "g2-1", "g3-1", "g1-2"]
    assert {p.temperature for p in made.prompts} == {0.8}


# --- traces -------------------------------------------------------------------------------------------------


def trace(*requests: TraceRequest, block_tokens: int = 512) -> RequestTrace:
    return RequestTrace(form="Mooncake", requests=requests, block_tokens=block_tokens, source="t.jsonl")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 500)), min_size=1, max_size=5))
def test_prompts_have_the_lengths_of_the_trace(lengths: list[tuple[int, int]]) -> None:
    requests = (TraceRequest(float(i), asked, answered) for i, (asked, answered) in enumerate(lengths))
    made = replayed(trace(*requests), Prose.built_in(), name="t")
    for prompt, (asked, answered) in zip(made.prompts, lengths, strict=True):
        assert estimated_tokens(text_of(prompt)) == pytest.approx(asked, abs=6 + asked * 0.02)
        assert (prompt.max_tokens, prompt.forced) == (answered, True)


def test_the_same_blocks_are_the_same_text() -> None:
    prose = Prose.built_in()
    made = replayed(
        trace(
            TraceRequest(0.0, 1536, 5, (1, 2, 3)),
            TraceRequest(1.0, 2000, 5, (1, 2, 3, 4)),
            TraceRequest(2.0, 1536, 5, (1, 2, 5)),
            TraceRequest(3.0, 1536, 5, (6, 2, 3)),
            TraceRequest(4.0, 600, 5),
        ),
        prose,
        name="t",
    )
    texts = [text_of(p) for p in made.prompts]
    block = 512 * BYTES_PER_TOKEN
    assert common(texts[0], texts[1]) == pytest.approx(3 * block, rel=0.03)
    assert common(texts[0], texts[2]) == pytest.approx(2 * block, rel=0.02)
    assert common(texts[0], texts[3]) < 20
    assert common(texts[0], texts[4]) < 20


def test_small_blocks_and_answers_of_another_length() -> None:
    requests = (TraceRequest(0.0, 40, 132, (7, 8, 9)), TraceRequest(1.0, 33, 10, (7, 8, 10)))
    made = replayed(trace(*requests, block_tokens=16), Prose.built_in(), name="t", output_tokens=4)
    a, b = map(text_of, made.prompts)
    assert 16 * BYTES_PER_TOKEN < common(a, b) < 32 * BYTES_PER_TOKEN + 5
    assert {p.max_tokens for p in made.prompts} == {4}


# --- random tokens, forced lengths --------------------------------------------------------------------------


def test_random_tokens() -> None:
    made = random_tokens(100, 7, 5, seed=3)
    assert [len(p.token_ids or ()) for p in made.prompts] == [100] * 5
    assert all(1000 <= token < 30_000 for p in made.prompts for token in p.token_ids or ())
    assert len({p.token_ids for p in made.prompts}) == 5
    assert all(p.forced and p.max_tokens == 7 and not p.messages for p in made.prompts)
    assert made == random_tokens(100, 7, 5, seed=3)
    assert made.sha256 != random_tokens(100, 7, 5, seed=4).sha256


def test_forced_lengths_change_the_hash_and_nothing_else() -> None:
    (chat,) = load_workloads(["chat"])
    made = forced(chat, 200)
    assert all(p.forced and p.max_tokens == 200 for p in made.prompts)
    assert [p.messages for p in made.prompts] == [p.messages for p in chat.prompts]
    assert made.sha256 != chat.sha256


def test_the_hash_is_of_one_json_list_as_ever() -> None:
    copy, chat = load_workloads(["copy", "chat"])
    for made in (copy, chat):
        body = [
            [p.id, [[m.role, m.content] for m in p.messages], p.max_tokens, p.temperature, p.seed]
            for p in made.prompts
        ]
        assert made.sha256 == hashlib.sha256(json.dumps(body, ensure_ascii=False).encode()).hexdigest()
