from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from draftmark.errors import BadInputError, UsageError
from draftmark.load import files
from draftmark.load.workloads import MAX_LINE_BYTES, load_workloads, workload_from_file
from draftmark.model import Message


def write(path: Path, *lines: object) -> Path:
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8"
    )
    return path


def test_the_built_in_sets() -> None:
    copy, chat = load_workloads()
    assert (copy.name, chat.name) == ("copy", "chat")
    for workload in (copy, chat):
        assert workload.source == "built-in"
        assert workload.about
        assert len(workload.prompts) == 8
        assert len({p.id for p in workload.prompts}) == 8
        assert all(p.max_tokens == 64 for p in workload.prompts)
        assert all(150 < len(p.messages[-1].content) < 700 for p in workload.prompts)
    assert all(p.temperature == 0 and p.seed is None for p in copy.prompts)
    assert all(p.temperature == 0.8 and p.seed is not None for p in chat.prompts)
    kinds = [p.id.split("-")[0] for p in copy.prompts]
    assert sorted(kinds[:4]) == ["code", "code", "list", "list"]
    assert sorted(kinds) == ["code"] * 4 + ["list"] * 4


def test_named_sets_come_in_the_order_named_and_once() -> None:
    assert [w.name for w in load_workloads(["chat", "copy", "chat"])] == ["chat", "copy"]
    with pytest.raises(UsageError, match="'coda'") as caught:
        load_workloads(["coda"])
    assert "copy, chat, code" in caught.value.next_step
    assert [w.name for w in load_workloads()] == ["copy", "chat"]


def test_the_three_forms(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.jsonl",
        {
            "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}],
            "max_tokens": 9,
            "temperature": 0.5,
            "seed": 3,
            "id": "why",
        },
        "",
        {
            "conversations": [
                {"from": "human", "value": "one"},
                {"from": "gpt", "value": "two"},
                {"from": "user", "value": "three"},
                {"from": "gpt", "value": "four"},
            ]
        },
        {"prompt": "Once upon"},
    )
    workload = workload_from_file(path, max_tokens=50)
    assert (workload.name, workload.source) == ("mine", "mine.jsonl")
    first, second, third = workload.prompts
    assert (first.id, first.max_tokens, first.temperature, first.seed) == ("why", 9, 0.5, 3)
    assert first.messages == (Message("system", "Be short."), Message("user", "Why?"))
    assert second.messages == (Message("user", "one"), Message("assistant", "two"), Message("user", "three"))
    assert (second.id, second.max_tokens, second.temperature, second.seed) == ("p3", 50, 0.0, None)
    assert third.messages == (Message("user", "Once upon"),)


def test_a_json_list_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([{"prompt": "a"}, {"prompt": "b"}], indent=1).encode())
    assert [p.id for p in workload_from_file(path, max_tokens=5).prompts] == ["p1", "p2"]


def test_parts_of_text_are_joined_and_a_final_answer_is_left_out(tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Hello, "}, {"type": "text", "text": "you"}]},
        {"role": "assistant", "content": "Hi"},
    ]
    (prompt,) = workload_from_file(write(tmp_path / "p", {"messages": turns}), max_tokens=5).prompts
    assert prompt.messages == (Message("user", "Hello, you"),)


GOOD = {"prompt": "fine"}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{'prompt': 1}", "not JSON"),
        ('{"prompt": "cut', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ({"text": "x"}, "neither messages, conversations, turns nor prompt"),
        ('"a text"', "an object was expected, not a text"),
        ("3", "not a number"),
        ("null", "not null"),
        ({"conversations": "x"}, "conversations must be a list, not a text"),
        ({"conversations": [{"value": "x"}]}, 'needs "from" and "value"'),
        ({"messages": []}, "no human turn"),
        ({"messages": [{"role": "user", "content": "  "}]}, "the last human turn is empty"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "must be text"),
        ({"messages": [{"role": "user", "content": None}]}, "must be text"),
        ({"messages": ["x"]}, 'needs "role" and "content"'),
        ({"prompt": ""}, "prompt must be a text"),
        ({"turns": []}, "turns is empty"),
        ({"turns": "x"}, "turns must be a list, not a text"),
        ({"turns": ["x", ""]}, "turns must be texts"),
        ({"turns": [{"content": "x"}]}, "turns must be texts"),
        ('{"turns": ["x", "\\ud800"]}', "the text has half"),
        ('{"prompt": "x", "category": "\\ud800"}', "the category has half"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "max_tokens": True}, "max_tokens"),
        ({"prompt": "x", "temperature": -1}, "temperature"),
        ({"prompt": "x", "temperature": "hot"}, "temperature"),
        ({"prompt": "x", "seed": 1.5}, "seed"),
        ({"prompt": "x", "seed": 2**64}, "fits 64 bits"),
        ({"prompt": "x", "max_tokens": 10**7}, "from 1 to 9999999"),
        ({"prompt": "x", "temperature": 1e999}, "temperature"),
        ('{"prompt": "x", "seed": ' + "7" * 5000 + "}", "a number of more than 4300 digits"),
        ('{"prompt": "x", "seed": ' + "7" * 4000 + "}", "fits 64 bits"),
        ('{"prompt": "a\\ud800b"}', "the text has half a character, the lone surrogate \\ud800"),
        ('{"prompt": "x", "id": "\\udfff"}', "the id has half a character"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "the text has half"),
        (
            '{"messages": [{"role": "\\ud800", "content": "x"}, {"role": "user", "content": "x"}]}',
            "a role has half",
        ),
    ],
)
def test_an_entry_that_is_no_prompt_is_named_with_its_line(tmp_path: Path, entry: object, why: str) -> None:
    path = write(tmp_path / "bad.jsonl", GOOD, "", entry)
    with pytest.raises(BadInputError) as caught:
        workload_from_file(path, max_tokens=5)
    assert caught.value.what.startswith(f"{path}, line 3: ")
    assert why in caught.value.what
    assert caught.value.next_step
    assert all(len(line) <= 120 for line in caught.value.evidence)


def test_an_id_used_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "twice.jsonl", {"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"})
    with pytest.raises(BadInputError, match="line 2: the id 'x' was used before"):
        workload_from_file(path, max_tokens=5)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('[{"prompt": "a"},\n {"prompt": 7}]', 2, "prompt must be a text"),
        ('[{"prompt": "a"}\n {"prompt": "b"}]', 2, "',' or '\\]' expected"),
        ('[{"prompt": "a"},\n\n {"prompt": "b"', 3, "not JSON"),
        ('[{"prompt": "a"}]\n{"prompt": "b"}', 2, "after the end of the list"),
        ('[{"prompt":\n"a"},\n{"seed": ' + "7" * 5000 + "}]", 3, "a number of more than 4300 digits"),
        ('[{"prompt":\n"a"},\n' + "[" * 100_000, 3, "nested too deeply"),
    ],
)
def test_a_bad_json_list_is_named_with_its_line(tmp_path: Path, text: str, line: int, why: str) -> None:
    path = write(tmp_path / "list.json", text)
    with pytest.raises(BadInputError, match=f"line {line}: .*{why}"):
        workload_from_file(path, max_tokens=5)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    cases: list[tuple[bytes | None, str]] = [
        (None, "there is no prompt file"),
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"[]", "has no prompts"),
        (b'{"prompt": "ok"}\n{"prompt": "caf\xe9"}\n', "line 2: not UTF-8"),
        (b'{"prompt": "ok"}\nGGUF\0\0', "line 2: a zero byte"),
        (b'{"prompt": "' + b"x" * MAX_LINE_BYTES + b'"}', "line 1: over 8 MiB in one line"),
        (b'[{"prompt": "' + b"x" * MAX_LINE_BYTES + b'"}]', "line 1: an entry over the limit"),
    ]
    for i, (content, why) in enumerate(cases):
        path = tmp_path / f"case{i}"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(BadInputError, match=why) as caught:
            workload_from_file(path, max_tokens=5)
        assert str(path) in caught.value.what
    with pytest.raises(BadInputError, match="is a directory"):
        workload_from_file(tmp_path, max_tokens=5)


def test_a_pair_of_surrogates_is_one_character(tmp_path: Path) -> None:
    (prompt,) = workload_from_file(write(tmp_path / "p", '{"prompt": "\\ud83d\\ude42"}'), max_tokens=5).prompts
    assert prompt.messages[0].content == "\N{SLIGHTLY SMILING FACE}"


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    pipe, listener = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(listener))
        for path, kind in (
            (Path("/dev/zero"), "a character device"),
            (pipe, "a pipe"),
            (listener, "a socket"),
        ):
            with pytest.raises(BadInputError, match=f"not a regular file but {kind}") as caught:
                workload_from_file(path, max_tokens=5)
            assert "--prompts" in caught.value.next_step


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "large.jsonl", GOOD)
    os.truncate(path, files.MAX_FILE_BYTES + 1)  # sparse
    with pytest.raises(BadInputError, match="over the limit of 256 MiB") as caught:
        workload_from_file(path, max_tokens=5)
    assert caught.value.next_step
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    with pytest.raises(BadInputError, match="over the limit"):  # one whose size the kernel gives as 0
        workload_from_file(Path("/proc/self/status"), max_tokens=5)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32-le"])
def test_another_encoding_is_told_what_to_do(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "wide.jsonl"
    path.write_bytes(json.dumps(GOOD).encode(encoding))
    with pytest.raises(BadInputError, match=r"line 1: (UTF-16|a zero byte)") as caught:
        workload_from_file(path, max_tokens=5)
    assert "UTF-8 JSON Lines" in caught.value.next_step
    assert caught.value.evidence


def test_a_file_name_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    workload = workload_from_file(write(path, GOOD), max_tokens=5)
    assert (workload.name, workload.source) == ("caf\ufffd", "caf\ufffd.jsonl")
