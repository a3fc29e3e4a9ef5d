"""Data sets as they are: their forms, turns, categories and lengths; what is asked of them; reading as it goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.load.test_workloads import write

from draftmark.errors import BadInputError
from draftmark.load import files
from draftmark.load.workloads import MAX_LINE_BYTES, load_workloads, sampled, workload_from_file
from draftmark.load.workloads.entries import entries
from draftmark.model import Message, Prompt, Workload

PURPOSE = files.Purpose("--prompts", "prompt file", "a form", "save it", "take some")
MT_BENCH = {"question_id": 81, "category": "writing", "turns": ["Write a post.", "Now in one line."]}
SPEED_BENCH = {
    "question_id": "abc",
    "category": "coding",
    "sub_category": "python",
    "turns": ["Sort it."],
    "source": "s",
    "src_id": "1",
    "difficulty": "easy",
    "multiturn": False,
}
SHAREGPT = {
    "id": "x_0",
    "conversations": [
        {"from": "human", "value": "one"},
        {"from": "gpt", "value": "two " * 100},
        {"from": "human", "value": "three"},
        {"from": "gpt", "value": "four"},
    ],
}


def read(path: Path, *lines: object, multi_turn: bool = False, lengths: bool = False) -> Workload:
    return workload_from_file(
        write(path / "set.jsonl", *lines), max_tokens=50, multi_turn=multi_turn, lengths_from_data=lengths
    )


def test_turns_are_asked_one_by_one_where_wanted_else_the_first(tmp_path: Path) -> None:
    first, second = read(tmp_path, MT_BENCH, SPEED_BENCH).prompts
    assert (first.id, first.category, first.messages) == ("81", "writing", (Message("user", "Write a post."),))
    assert (second.id, second.category, second.follow_ups) == ("abc", "coding", ())
    assert first.follow_ups == ()
    first, _ = read(tmp_path, MT_BENCH, SPEED_BENCH, multi_turn=True).prompts
    assert first.follow_ups == ("Now in one line.",)


def test_a_message_a_turn_is_no_conversation_that_was_held(tmp_path: Path) -> None:
    prepared = {
        "category": "math",
        "multiturn": True,
        "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    }
    (prompt,) = read(tmp_path, prepared).prompts
    assert (prompt.messages, prompt.follow_ups) == ((Message("user", "a"),), ())
    (prompt,) = read(tmp_path, prepared, multi_turn=True).prompts
    assert (prompt.messages, prompt.follow_ups) == ((Message("user", "a"),), ("b",))
    (prompt,) = read(tmp_path, {"messages": prepared["messages"]}).prompts  # of somebody's own traffic
    assert len(prompt.messages) == 2


def test_a_recorded_conversation_is_held_anew(tmp_path: Path) -> None:
    (prompt,) = read(tmp_path, SHAREGPT, multi_turn=True).prompts
    assert (prompt.messages, prompt.follow_ups) == ((Message("user", "one"),), ("three",))
    turns = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    (prompt,) = read(tmp_path, {"messages": turns}, multi_turn=True).prompts
    assert prompt.messages == (Message("system", "Be short."), Message("user", "one"))
    assert prompt.follow_ups == ("three",)


def test_a_placeholder_is_no_prompt(tmp_path: Path) -> None:
    masked = {**SPEED_BENCH, "turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"]}
    with pytest.raises(BadInputError, match="line 2: a placeholder of SPEED-Bench") as caught:
        read(tmp_path, SPEED_BENCH, masked)
    assert "prepare" in caught.value.next_step


def test_lengths_from_the_data(tmp_path: Path) -> None:
    told = {"prompt": "p", "output_tokens": 77}
    recorded, counted = read(tmp_path, SHAREGPT, told, lengths=True, multi_turn=True).prompts
    assert recorded.forced
    assert recorded.max_tokens == pytest.approx(100, rel=0.2)  # "two " * 100
    assert (counted.max_tokens, counted.forced) == (77, True)
    last = read(tmp_path, SHAREGPT, lengths=True).prompts[0]
    assert last.max_tokens == 1  # "four"
    for entry, why in (
        ({"prompt": "p"}, "no answer whose length"),
        (MT_BENCH, "no answer whose length"),
        ({"prompt": "p", "output_tokens": 0}, "output_tokens must be"),
        ({"prompt": "p", "output_tokens": True}, "output_tokens must be"),
    ):
        with pytest.raises(BadInputError, match=f"line 1: {why}"):
            read(tmp_path, entry, lengths=True)
    assert not any(p.forced for p in read(tmp_path, SHAREGPT, told).prompts)


@pytest.mark.parametrize(
    "turns",
    [
        [],
        [{"from": "gpt", "value": "x"}],
        [{"from": "bing", "value": "x"}, {"from": "human", "value": "y"}],
        [{"from": "human", "value": "  "}],
    ],
)
def test_a_recorded_conversation_without_a_question_is_left_out_and_told(
    tmp_path: Path, turns: list[dict[str, str]]
) -> None:
    found = read(tmp_path, {"conversations": turns}, SHAREGPT)
    assert len(found.prompts) == 1
    assert found.about == "1 recorded conversation without a question left out"
    with pytest.raises(BadInputError, match="has no prompts") as caught:
        read(tmp_path, {"conversations": turns})
    assert caught.value.evidence[0].startswith("line 1: ")


# --- which of them ------------------------------------------------------------------------------------------


def prompts(count: int) -> list[Prompt]:
    return [Prompt(id=str(i), messages=(Message("user", "?"),), max_tokens=1) for i in range(count)]


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 70), st.integers(0, 2**64))
def test_a_sample_is_the_beginning_of_the_shuffled_whole(count: int, take: int, seed: int) -> None:
    whole = sampled(prompts(count), seed=seed)
    assert sorted(whole, key=lambda p: int(p.id)) == prompts(count)
    assert sampled(iter(prompts(count)), take=take, seed=seed) == whole[:take]
    assert sampled(prompts(count), take=take) == tuple(prompts(count)[:take])


def test_seeds_shuffle_differently() -> None:
    orders = {tuple(p.id for p in sampled(prompts(20), seed=seed)) for seed in range(10)}
    assert len(orders) == 10


def test_of_a_file_over_the_limit_only_what_is_taken_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "large.jsonl", *({"prompt": str(i)} for i in range(200)), "no JSON")
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(files, "_CHUNK_BYTES", 50)
    taken = workload_from_file(path, max_tokens=5, take=3)
    assert [p.messages[0].content for p in taken.prompts] == ["0", "1", "2"]
    with pytest.raises(BadInputError, match="line 201: not JSON"):  # any of them: all are looked at
        workload_from_file(path, max_tokens=5, take=3, seed=1)
    with pytest.raises(BadInputError, match="over the limit") as caught:
        workload_from_file(path, max_tokens=5)
    assert "--requests N" in caught.value.next_step


def test_the_same_prompts_whether_read_whole_or_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"prompt": f"{i} \N{SNOWMAN}"} for i in range(300)], indent=1, ensure_ascii=False))
    whole = workload_from_file(path, max_tokens=5, take=40, seed=7)
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(files, "_CHUNK_BYTES", 11)
    assert workload_from_file(path, max_tokens=5, take=40, seed=7) == whole


# --- reading as it goes -------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(ends)]


@settings(deadline=None)
@given(st.lists(json_values, max_size=6), st.none() | st.integers(0, 3), st.lists(st.integers(0, 300), max_size=9))
def test_a_list_cut_anywhere_is_the_same_list(values: list[object], indent: int | None, places: list[int]) -> None:
    text = json.dumps(values, indent=indent)
    found = list(entries(Path("f"), iter(cut(text, places)), PURPOSE))
    assert [entry.value for entry in found] == values
    for entry in found:
        assert json.loads(entry.raw) == entry.value
        assert text.split("\n")[entry.line - 1].strip()[:1] == entry.raw[:1] or indent is None


@settings(deadline=None)
@given(st.lists(json_values.filter(lambda v: not isinstance(v, list)), max_size=6), st.lists(st.integers(0, 300)))
def test_lines_cut_anywhere_are_the_same_lines(values: list[object], places: list[int]) -> None:
    text = "\n\n".join(json.dumps(value) for value in values)
    found = list(entries(Path("f"), iter(cut(text, places)), PURPOSE))
    assert [(entry.value, entry.line) for entry in found] == [(v, 2 * i + 1) for i, v in enumerate(values)]


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_prompts_or_are_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    path.write_bytes(data)
    try:
        found = workload_from_file(path, max_tokens=5)
    except BadInputError as error:
        assert error.next_step  # noqa: PT017
    else:
        assert found.prompts


@settings(deadline=None)
@given(st.lists(json_values, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_any_json_is_prompts_or_is_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], multi_turn: bool, lengths: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    forms = ("messages", "conversations", "turns", "prompt", "id", "category", "max_tokens")
    wrapped = [{forms[i % len(forms)]: value, **MT_BENCH} for i, value in enumerate(values)]
    write(path, *values, *wrapped)
    try:
        found = workload_from_file(path, max_tokens=5, multi_turn=multi_turn, lengths_from_data=lengths)
    except BadInputError as error:
        assert error.next_step  # noqa: PT017
    else:
        assert found.sha256


def test_an_error_in_a_list_is_found_at_its_line_however_it_is_cut(tmp_path: Path) -> None:
    text = '[{"prompt": "a"},\n {"prompt": "b"},\n {"prompt": oops}]'
    for size in (1, 5, 40):
        pieces = iter([text[i : i + size] for i in range(0, len(text), size)])
        with pytest.raises(BadInputError, match="f, line 3: not JSON: Expecting value"):
            list(entries(Path("f"), pieces, PURPOSE))


def test_an_entry_that_never_ends_is_given_up(tmp_path: Path) -> None:
    def endless() -> object:
        yield '[{"prompt": "'
        for _ in range(100):
            yield "x" * (MAX_LINE_BYTES // 4)
        pytest.fail("read on")

    with pytest.raises(BadInputError, match="line 1: "):
        list(entries(Path("f"), endless(), PURPOSE))  # type: ignore[arg-type]


def test_binary_forms_are_told_apart(tmp_path: Path) -> None:
    for magic, what in ((b"PAR1\0", "Parquet"), (b"\x1f\x8b\x08", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd")):
        path = tmp_path / "set"
        path.write_bytes(magic)
        with pytest.raises(BadInputError, match=f"line 1: .*{what}"):
            workload_from_file(path, max_tokens=5)


@settings(deadline=None)
@given(st.text(min_size=1), st.integers(1, 9))
def test_bytes_that_are_cut_within_a_character_are_read_as_one(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "cut.txt"
    path.write_bytes(text.encode("utf-8", "ignore"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_CHUNK_BYTES", size)
        try:
            found = "".join(files.chunks(path, PURPOSE))
        except BadInputError as error:
            assert "zero byte" in error.what or "is empty" in error.what or "UTF-16" in error.what  # noqa: PT017
        else:
            assert found == path.read_bytes().decode("utf-8-sig" if size >= 3 else "utf-8")


def test_a_cut_character_at_the_end_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "caf\xc3')
    with pytest.raises(BadInputError, match="line 2: not UTF-8") as caught:
        workload_from_file(path, max_tokens=5)
    assert "offset 31" in caught.value.evidence[0]


# --- what comes with Draftmark ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["code", "math", "extraction", "translation", "long"])
def test_the_sets_by_name(name: str) -> None:
    (found,) = load_workloads([name])
    assert found.about
    assert 8 <= len(found.prompts) <= 16
    assert len({p.id for p in found.prompts}) == len(found.prompts)
    assert len({p.messages[0].content[:40] for p in found.prompts}) == len(found.prompts)  # no shared beginnings
    assert all(p.category == name and p.temperature == 0 and p.max_tokens == 256 for p in found.prompts)


def test_the_long_set_is_long_and_its_questions_have_answers() -> None:
    (found,) = load_workloads(["long"])
    texts = [p.messages[0].content for p in found.prompts]
    assert all(9_000 < len(text) < 12_000 for text in texts)
    assert all(text.count("# ") == 8 for text in texts)
    assert all("Marn" in text and "Orsa" in text and "oven" in text for text in texts)
