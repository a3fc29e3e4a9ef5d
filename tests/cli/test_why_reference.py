"""What the words of `draftmark why` name."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.cli.why_reference import Service, asked, parse
from draftmark.errors import UsageError


@pytest.mark.parametrize(
    ("word", "kind", "name"),
    [
        ("unit:llm.service", "unit", "llm.service"),
        ("unit:llm@3", "unit", "llm@3"),
        ("docker:vllm-1", "docker", "vllm-1"),
        ("pod:llm-0", "pod", "llm-0"),
        ("pod:serving/llm-0", "pod", "serving/llm-0"),
        ("job:4711", "job", "4711"),
        ("job:4711_3", "job", "4711_3"),
    ],
)
def test_services(word: str, kind: str, name: str) -> None:
    assert parse(word) == Service(kind, name)


@pytest.mark.parametrize(
    ("word", "what", "step"),
    [
        ("url:http://127.0.0.1:1", "url:", "unit:NAME"),
        ("cmd:llama-server -m x", "cmd:", "log as a file"),
        ("embedded:", "embedded:", "unit:NAME"),
        ("http://127.0.0.1:1", "URL", "log file"),
        ("unit:", "names nothing", "unit:NAME"),
        ("unit:a b", "one word", "unit:NAME"),
        ("unit:-x", "one word", "unit:NAME"),
        ("job:abc", "a number", "job:ID"),
        ("pod:a/b/c", "[NAMESPACE/]NAME", "pod:"),
        ("container:x", "no", "docker:x"),
        ("k8s:x", "no", "pod:x"),
        ("unti:x", "no", "unit:x"),
        ("nosuchthing", "no", "draftmark why unit:nosuchthing"),
        ("no/such/file", "no", "check the path"),
        ("", "no", "check the path"),
    ],
)
def test_what_is_none_is_refused_with_advice(word: str, what: str, step: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(word)
    assert what in caught.value.what
    assert step in caught.value.next_step


def test_paths_and_a_service_go_together(tmp_path: Path) -> None:
    log = tmp_path / "unit:x"
    log.write_text("x")
    question = asked(["unit:llm", str(log), "-"])
    assert question.service == Service("unit", "llm")
    assert question.paths == (str(log), "-")


def test_what_exists_is_a_path_whatever_it_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unit:x").write_text("x")
    assert asked(["unit:x"]).paths == ("unit:x",)


def test_one_service_at_a_time() -> None:
    with pytest.raises(UsageError, match="one service"):
        asked(["unit:a", "unit:b"])
