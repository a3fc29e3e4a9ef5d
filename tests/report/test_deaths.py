"""An arm whose server died: its cause, sentence and line, in all three reports; and a document without them."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest

from draftmark.report.html import render_html
from draftmark.report.markdown import render_markdown
from draftmark.report.terminal import print_result

Load = Callable[[str], dict[str, Any]]
PATH = "trials/06-d10/why.json"
LINE = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static"


def died(load: Load, **why: Any) -> dict[str, Any]:
    result = load("eleven")
    trial = next(trial for trial in result["trials"] if trial["arm"] == "d10")
    trial["why"] = {
        "path": PATH,
        "cause": "cuda-oom-kv-pool-init",
        "confidence": "certain",
        "summary": "No room is left for the KV cache.",
        "evidence": {"file": "server.log", "line": 412, "time": None, "text": LINE},
        **why,
    }
    return result


def shown(result: dict[str, Any], screen: Any) -> dict[str, str]:
    """What a reader sees in each report, blanks as one."""
    console = screen(width=100)
    print_result(result, console.console)
    page = re.sub(r"(?s)<script.*?</script>|<style.*?</style>", "", render_html(result, title="t"))
    flat = {
        "terminal": console.text,
        "markdown": re.sub(r"\\(.)", r"\1", render_markdown(result)),
        "html": html.unescape(re.sub(r"<[^>]*>", "", page)),
    }
    return {name: " ".join(text.split()) for name, text in flat.items()}


@pytest.mark.parametrize("where", ["terminal", "markdown", "html"])
def test_cause_sentence_line_and_place(load: Load, screen: Any, where: str) -> None:
    told = shown(died(load), screen)[where]
    assert "cuda-oom-kv-pool-init (certain): No room is left for the KV cache." in told
    assert f"server.log:412 {LINE}" in told
    assert PATH in told


@pytest.mark.parametrize("where", ["terminal", "markdown", "html"])
def test_unsettled_is_said_once_and_what_was_seen_stays(load: Load, screen: Any, where: str) -> None:
    result = died(load, cause="unsettled", confidence="unsettled", summary="Nobody knows.", evidence=None)
    arm = next(arm for arm in result["arms"] if arm["arm"] == "d10")
    arm["because"] = "not ready after 600 s"
    told = shown(result, screen)[where]
    assert "not ready after 600 s. unsettled: Nobody knows." in told
    assert "(unsettled)" not in told


def test_the_line_is_not_told_twice(load: Load, screen: Any) -> None:
    result = died(load)
    next(arm for arm in result["arms"] if arm["arm"] == "d10")["because"] = LINE
    block = shown(result, screen)["terminal"].partition("not measured")[2].partition(PATH)[0]
    assert block.count(LINE) == 1


def test_a_trial_that_died_beside_measured_ones_names_the_cause(load: Load, screen: Any) -> None:
    result = load("normal")
    trial = next(trial for trial in result["trials"] if trial["status"] == "measured")
    trial["status"], trial["because"] = "void", "the server died with exit status -9 during copy@1"
    trial["why"] = {"path": "trials/01-off/why.json", "cause": "cgroup-oom", "confidence": "certain"}
    for told in shown(result, screen).values():
        assert "exit status -9 during copy@1; cgroup-oom (certain), trials/01-off/why.json" in told


@pytest.mark.parametrize("why", [None, "text", {}, {"cause": None}, {"cause": "x", "evidence": "y"}, []])
def test_a_post_mortem_of_the_wrong_shape_is_no_obstacle(load: Load, screen: Any, why: Any) -> None:
    result = died(load)
    next(trial for trial in result["trials"] if trial["arm"] == "d10")["why"] = why
    assert all(told for told in shown(result, screen).values())
