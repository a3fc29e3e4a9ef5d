"""From the options of a load to what a server is sent, and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.test_load_options import parse
from tests.load.driving import carry_out, measured
from tests.load.scripted import Request, answer, serving

from draftmark.cli import load_options
from draftmark.load.plan import LoadPlan, LoadRun


def sent(line: str, *, api: str = "openai-chat") -> tuple[list[Request], LoadRun]:
    """Carry out the first measurement of a command line; what came to the server, warm-up left out."""
    args = parse(line)
    found = load_options.asked(args, embedded=False)
    axis = load_options.axes(found, args, embedded=False)[0]
    plan = LoadPlan(
        workload=axis.workload,
        concurrency=axis.concurrency,
        repeat=axis.repeat,
        warmup=axis.warmup,
        send_at_s=found.send_at_s,
        think_s=found.think_s,
        api=api,
        model="m",
    )
    with serving(answer()) as server:
        run = carry_out(server.url, plan)
    counted = {r.tag for r in measured(run)}
    return [r for r in server.posts if r.headers["x-request-id"] in counted], run


def test_a_rate() -> None:
    posts, run = sent("--rate 100 --arrival constant --requests 10 --workload chat")
    assert len(posts) == 10  # of eight prompts
    assert [r.intended_at_s for r in measured(run)] == pytest.approx([i / 100 for i in range(10)])
    assert sum(r.warmup for r in run.records) == 4


def test_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = ({"timestamp": 40 * i, "input_length": 90, "output_length": 3 + i} for i in range(3))
    path.write_text("\n".join(map(json.dumps, rows)))
    posts, run = sent(f"--trace {path} --trace-speed 4")
    assert [r.intended_at_s for r in measured(run)] == pytest.approx([0.0, 0.01, 0.02])
    assert sorted((p.body["max_tokens"], p.body["ignore_eos"]) for p in posts) == [(3, True), (4, True), (5, True)]


def test_random_tokens() -> None:
    posts, _ = sent("--random-tokens 6:9 --concurrency 1 --requests 2", api="openai")
    assert [len(p.body["prompt"]) for p in posts] == [6, 6]
    assert posts[0].body["prompt"] != posts[1].body["prompt"]


def test_conversations(tmp_path: Path) -> None:
    path = tmp_path / "mt.jsonl"
    path.write_text(json.dumps({"question_id": 1, "category": "writing", "turns": ["first", "second"]}))
    posts, run = sent(f"--prompts {path} --multi-turn --concurrency 1 --requests 1 --output-tokens 5")
    assert [m["content"] for m in posts[1].body["messages"]] == ["first", "abcd", "second"]
    assert {p.body["ignore_eos"] for p in posts} == {True}
    assert [(r.turn, r.category) for r in measured(run)] == [(0, "writing"), (1, "writing")]
