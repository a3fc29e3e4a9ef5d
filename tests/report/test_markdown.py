"""The Markdown report."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from draftmark.report.markdown import code, render_markdown, text

Load = Callable[[str], dict[str, Any]]


def table_rows(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_verdict_comes_first(load: Load) -> None:
    document = load("normal")
    assert render_markdown(document).splitlines()[2] == f"**{document['verdict']}**"


def test_every_measured_arm_is_a_row_of_full_width(document: dict[str, Any]) -> None:
    rows = table_rows(render_markdown(document))
    measured = [arm["label"] for arm in document["arms"] if arm["axes"]]
    assert [row[0] for row in rows[2:]] == measured
    assert len({len(row) for row in rows}) <= 1


def test_refused_and_failed_arms_are_told(load: Load) -> None:
    markdown = render_markdown(load("eleven"))
    assert "- depth 1, refused: depth 1 drafts nothing" in markdown
    assert "- depth 10, did not start: CUDA out of memory" in markdown
    assert "`trials/06-d10/why.json`" in markdown


def test_choice_and_provenance(load: Load) -> None:
    document = load("normal")
    markdown = render_markdown(document)
    assert "- Recommended: depth 4" in markdown
    assert "- On chat: off" in markdown
    assert document["workloads"][0]["sha256"] in markdown
    assert "xllamacpp 2026.10.11549" in markdown
    assert "`llama-server -m SmolLM2-135M-Instruct-F32.gguf" in markdown


def test_no_choice_is_said(load: Load) -> None:
    assert "- Recommended: no choice" in render_markdown(load("inconclusive"))
    assert "Recommended" not in render_markdown(load("unmeasured"))


def test_hostile_text_stays_text(hostile: dict[str, Any]) -> None:
    markdown = render_markdown(hostile)
    rows = table_rows(markdown)
    assert len({len(row) for row in rows}) == 1
    outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown.replace("\\`", ""))
    assert not re.search(r"(?<!\\)<", outside_code)
    assert not re.search(r"(?<!\\)@", outside_code)
    assert sum(line.startswith("#") for line in markdown.splitlines()) == 1


def test_pipes_and_backticks() -> None:
    assert text("a|b") == r"a\|b"
    assert code("a|b") == r"`a\|b`"
    assert code("a``b") == "```a``b```"
    assert code("`a") == "`` `a ``"


def test_how_much_an_arm_takes_at_once_is_a_column_where_it_is_known(load: Load) -> None:
    result = load("normal")
    assert "requests at once" not in render_markdown(result)
    result["arms"][0]["limits"] = {"max_running_requests": 1181, "kv_tokens": 638839}
    rows = table_rows(render_markdown(result))
    assert rows[0][-1] == "requests at once"
    assert [row[-1] for row in rows[1:]].count("1,181") == 1


def test_the_same_document_gives_the_same_text(document: dict[str, Any]) -> None:
    assert render_markdown(document) == render_markdown(document)
