"""The other verbs' documents on the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from draftmark.report.terminal import print_bench, print_compare, print_inspect, print_plan

SPREAD = {"mean": 24.1, "p50": 23.2, "p90": 30.0, "p95": 31.5, "p99": 1410.0, "max": 2001.4}
NOTHING = dict.fromkeys(SPREAD)
LEVEL: dict[str, Any] = {
    "workload": "copy", "concurrency": 4, "requests": 48, "errors": {}, "duration_s": 12.3, "output_tok_s": 55.04,
    "ttft_ms": SPREAD, "tpot_ms": SPREAD, "itl_ms": SPREAD, "chunk_gap_ms": NOTHING, "e2e_ms": SPREAD,
    "accept_len": 3.5, "tokens_per_step": 1.6, "assumptions": [], "disturbed": [],
}  # fmt: skip
BENCH: dict[str, Any] = {"schema": "draftmark.bench/1", "service": "url:http://127.0.0.1:30000", "levels": [LEVEL]}


def test_bench_shows_every_latency_and_ends_with_the_rate(screen: Any) -> None:
    printed = screen()
    print_bench(BENCH, printed.console)
    assert "48 requests in 12.3 s, no errors" in printed.text
    assert "accept length 3.50" in printed.text
    for name in ("time to first token", "time per output token", "inter-token", "gap between chunks", "end to end"):
        assert name in printed.text
    (row,) = [line for line in printed.lines if "gap between chunks" in line]
    assert row.split()[-6:] == ["\u2013"] * 6
    assert printed.lines[-1] == "copy, 4 at once: 55.0 tok/s"
    assert max(cell_len(line) for line in printed.lines) <= 80


def test_bench_tells_errors_assumptions_and_disturbance(screen: Any) -> None:
    level = LEVEL | {"errors": {"http-500": 2}, "assumptions": ["one token a chunk"], "disturbed": ["foreign load"]}
    printed = screen()
    print_bench(BENCH | {"levels": [level, LEVEL | {"concurrency": 1}]}, printed.console)
    assert "errors: 2 http-500" in printed.text
    assert "assumed: one token a chunk" in printed.text
    assert "disturbed: foreign load" in printed.text
    assert printed.lines[-2:] == [
        "copy, 4 at once: 55.0 tok/s, disturbed: see above",
        "copy, 1 at a time: 55.0 tok/s",
    ]


def test_bench_with_unknown_figures_shows_no_zero(screen: Any) -> None:
    level = dict.fromkeys(LEVEL) | {"workload": "copy", "concurrency": 1}
    printed = screen()
    print_bench({"schema": "draftmark.bench/1", "levels": [level]}, printed.console)
    assert "errors not counted" in printed.text
    assert "0" not in printed.text.replace("p50", "").replace("p90", "")


def test_inspect_ends_with_the_hazards(screen: Any) -> None:
    document = {
        "schema": "draftmark.inspect/1",
        "engine": {"name": "sglang", "flags": ["--a", "--b"], "radix cache": True, "draft": None},
        "hazards": [{"what": "the drain is cut short", "evidence": ["TimeoutStopSec=15"], "next_step": "raise it"}],
    }
    printed = screen()
    print_inspect(document, printed.console)
    assert printed.text.index("sglang") < printed.text.index("hazard: the drain is cut short")
    assert "  | TimeoutStopSec=15" in printed.lines
    assert "next: raise it" in printed.text
    assert "radix cache  yes" in printed.text
    assert printed.lines[-1] == "1 hazard for tuning."


def test_inspect_says_when_it_saw_none(screen: Any) -> None:
    printed = screen()
    print_inspect({"engine": {"name": "vllm"}, "hazards": []}, printed.console)
    assert printed.lines[-1] == "No hazard for tuning was seen."


DIFF = ["-A 3", "+A " + "4" * 90]
PLAN: dict[str, Any] = {
    "arms": [
        {"arm": "off", "label": "off", "verdict": "start", "because": None, "command_diff": []},
        {"arm": "d4", "label": "depth 4", "verdict": "start", "because": None, "command_diff": DIFF},
        {"arm": "d9", "label": "depth 9", "verdict": "refused", "because": "does not fit", "command_diff": []},
    ],
    "restarts": 7, "minutes": 11.6, "schedule": ["off", "d4", "off"],
}  # fmt: skip


def test_plan_shows_the_diff_whole_and_ends_with_the_price(screen: Any) -> None:
    printed = screen()
    print_plan(PLAN, printed.console)
    assert "    -A 3" in printed.lines
    assert "    +A " + "4" * 90 in printed.lines
    assert "depth 9 refused: does not fit" in printed.flat
    assert "order: off d4 off" in printed.text
    assert printed.lines[-1] == "2 of 3 arms to start: 7 restarts, about 12 min."


def test_plan_with_an_unknown_price(screen: Any) -> None:
    printed = screen()
    print_plan(PLAN | {"restarts": None, "minutes": None}, printed.console)
    assert printed.lines[-1] == "2 of 3 arms to start: \u2013 restarts, about \u2013 min."


def test_plan_shows_the_drop_in_of_the_baseline_and_of_one_arm_more(screen: Any) -> None:
    def arm(name: str, diff: list[str], text: str) -> dict[str, Any]:
        return {"arm": name, "label": name, "verdict": "start", "command_diff": diff, "drop_in": text}

    arms = [
        arm("off", [], "[Service]\nRestart=no"),
        arm("d4", ["+ --draft 4"], "[Service]\nExecStart=\nExecStart=x --draft 4\nRestart=no"),
        arm("d8", ["+ --draft 8"], "[Service]\nExecStart=\nExecStart=x --draft 8\nRestart=no"),
    ]
    printed = screen()
    print_plan(PLAN | {"arms": arms, "load_from": "gpu1 itself"}, printed.console)
    assert [line for line in printed.lines if line.startswith("drop-in of")] == [
        "drop-in of off, for as long as it is tried",
        "drop-in of d8, for as long as it is tried",
    ]
    assert printed.lines.count("  Restart=no") == 2
    assert "  ExecStart=x --draft 4" not in printed.lines
    assert "load: requests are sent from gpu1 itself" in printed.lines


def test_inspect_has_no_empty_rows_and_says_where_the_load_comes_from(screen: Any) -> None:
    printed = screen()
    facts = {"line": "x", "notes": [], "depth": 0, "drains": False, "running": None}
    print_inspect({"command": facts, "load_from": "this computer", "hazards": []}, printed.console)
    assert "notes" not in printed.text
    assert [line.split()[0] for line in printed.lines if line.startswith("  ")] == [
        "line",
        "depth",
        "drains",
        "running",
    ]
    assert "load: requests are sent from this computer" in printed.lines


def test_compare_ends_with_its_sentence(screen: Any) -> None:
    axis = {
        "axis": "copy@1",
        "arm": "d4",
        "ratio": 1.02,
        "low": 0.98,
        "high": 1.06,
        "a_tok_s": 65.1,
        "b_tok_s": None,
    }
    printed = screen()
    print_compare({"runs": ["runs/a", "runs/b"], "axes": [axis], "sentence": "level"}, printed.console)
    assert printed.lines[:2] == ["a  runs/a", "b  runs/b"]
    (row,) = [line for line in printed.lines if line.startswith("copy@1")]
    assert row.split() == ["copy@1", "d4", "65.1", "\u2013", "1.02x", "(0.98\u20131.06)"]
    assert printed.lines[-1] == "level"


@pytest.mark.parametrize("show", [print_bench, print_inspect, print_plan, print_compare])
def test_hostile_text_is_shown_not_obeyed(show: Any, screen: Any) -> None:
    evil = "\x1b[2J[red]x[/red]"
    document = {
        "service": evil, "levels": [LEVEL | {"workload": evil, "errors": {evil: 1}, "disturbed": [evil]}],
        evil: {evil: evil}, "hazards": [{"what": evil, "evidence": evil, "next_step": evil}],
        "arms": [{"label": evil, "verdict": evil, "because": evil, "command_diff": [evil]}], "schedule": [evil],
        "runs": [evil, evil], "axes": [{"axis": evil, "arm": evil}], "sentence": evil,
    }  # fmt: skip
    printed = screen()
    show(document, printed.console)
    assert "\x1b" not in printed.text
    assert "\\x1b[2J[red]x[/red]" in printed.flat


@pytest.mark.parametrize("show", [print_inspect, print_plan])
def test_the_roofline_is_told_in_sentences(screen: Any, show: Any) -> None:
    sentences = ["experts wait for memory", "a round takes 1 ms"]
    found = {"sentences": sentences, "assumptions": ["bf16"], "rounds": [{"depth": 1}]}
    printed = screen()
    show({"roofline": found, "hazards": []}, printed.console)
    assert "roofline: experts wait for memory\nroofline: a round takes 1 ms\n  assumed: bf16\n" in printed.text
    assert "rounds" not in printed.text
    nothing = screen()
    show({"roofline": None, "hazards": []}, nothing.console)
    assert "roofline" not in nothing.text
