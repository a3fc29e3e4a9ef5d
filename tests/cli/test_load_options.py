"""The options that shape a load: what they come to, and which do not go together."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

import pytest

from draftmark.cli import load_options, load_sizes, options
from draftmark.cli.load_conflicts import refuse_random_tokens
from draftmark.cli.load_options import Asked
from draftmark.cli.load_words import Span, span
from draftmark.errors import BadInputError, UsageError
from draftmark.load.arrivals import Constant, Gamma, Poisson, Ramp
from draftmark.load.workloads import load_workloads
from draftmark.load.workloads.prose import estimated_tokens
from draftmark.tune.measuring import Axis


def parse(line: str, *, tuning: bool = False) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    options.workload(parser)
    load_options.add_arguments(parser, tuning=tuning)
    parser.add_argument("--max-seconds", type=options.positive_number)
    return parser.parse_args(shlex.split(line))


def asked(line: str) -> Asked:
    return load_options.asked(parse(line), embedded=False)


def axes(line: str) -> tuple[Axis, ...]:
    args = parse(line)
    return load_options.axes(load_options.asked(args, embedded=False), args, embedded=False)


@pytest.fixture
def mooncake(tmp_path: Path) -> Path:
    path = tmp_path / "conversation.jsonl"
    rows = (
        {"timestamp": 1000 * i, "input_length": 600 + i, "output_length": 10 + i, "hash_ids": [1, 2 + i]}
        for i in range(12)
    )
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def mt_bench(tmp_path: Path) -> Path:
    path = tmp_path / "question.jsonl"
    rows = ({"question_id": i, "category": "writing", "turns": [f"one {i}", f"two {i}"]} for i in range(30))
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


# --- the closed loop ----------------------------------------------------------------------------------------


def test_without_options_all_is_as_it_was() -> None:
    found = asked("")
    assert found == Asked(workloads=load_workloads())
    args = parse("--concurrency 1,8 --requests 10")
    levels = load_sizes.concurrency(args, embedded=False)
    requests = load_sizes.requests_per_level(args, levels, embedded=False)
    assert axes("--concurrency 1,8 --requests 10") == load_sizes.axes(
        load_workloads(), levels, requests, embedded=False
    )


def test_of_a_file_no_more_is_taken_than_is_asked(mt_bench: Path) -> None:
    found = asked(f"--prompts {mt_bench} --requests 5 --concurrency 2")
    assert [p.id for p in found.workloads[0].prompts] == ["0", "1", "2", "3", "4"]
    seeded = asked(f"--prompts {mt_bench} --requests 5 --concurrency 2 --seed 3").workloads[0]
    assert len(seeded.prompts) == 5
    assert [p.id for p in seeded.prompts] != ["0", "1", "2", "3", "4"]
    assert seeded == asked(f"--prompts {mt_bench} --requests 5 --concurrency 2 --seed 3").workloads[0]


def test_a_seed_shuffles_the_built_in_sets_without_losing_any() -> None:
    (plain,), (seeded,) = asked("--workload chat").workloads, asked("--workload chat --seed 1").workloads
    assert plain.prompts != seeded.prompts
    assert {p.id for p in plain.prompts} == {p.id for p in seeded.prompts}


def test_think_times() -> None:
    assert asked("--think 2").think_s == (2.0,)
    drawn = asked("--think 1..3 --seed 4").think_s
    assert all(1 <= pause <= 3 for pause in drawn)
    assert len(set(drawn)) > 900
    assert drawn == asked("--think 1..3 --seed 4").think_s != asked("--think 1..3").think_s


def test_conversations(mt_bench: Path) -> None:
    found = asked(f"--prompts {mt_bench} --multi-turn")
    assert found.workloads[0].prompts[3].follow_ups == ("two 3",)
    assert found.shares
    with pytest.raises(UsageError, match="none of these prompts has a further turn"):
        asked("--multi-turn")


def test_forced_answers(mt_bench: Path) -> None:
    found = asked("--output-tokens 40")
    assert {(p.max_tokens, p.forced) for w in found.workloads for p in w.prompts} == {(40, True)}
    assert "ignore_eos" in found.notes[-1]
    with pytest.raises(BadInputError, match="no answer whose length"):
        asked(f"--prompts {mt_bench} --output-tokens data")


def test_shared_beginnings(mt_bench: Path) -> None:
    found = asked("--shared-prefix 2:3:300 --concurrency 1,8")
    assert (found.requests, found.shares, found.workloads[0].name) == (6, True, "shared-prefix")
    assert [(a.concurrency, len(a.workload.prompts), a.repeat) for a in axes("--shared-prefix 2:3:300")] == [
        (1, 6, 1),
        (8, 6, 2),
    ]
    own = asked(f"--shared-prefix 2:3:300 --prompts {mt_bench}").workloads[0]
    assert "one 0" in own.prompts[0].messages[0].content


def test_random_tokens() -> None:
    found = asked("--random-tokens 50:9 --concurrency 1,6")
    assert found.by_ids
    assert len(found.workloads[0].prompts) == 12
    assert "says nothing about real text" in found.notes[0]
    args = parse("--random-tokens 50:9", tuning=True)
    with pytest.raises(UsageError, match="random tokens do not choose a depth") as caught:
        refuse_random_tokens(args)
    assert caught.value.exit_status == 2
    refuse_random_tokens(parse("", tuning=True))


# --- the open loop ------------------------------------------------------------------------------------------


def test_a_rate_and_a_number_of_requests() -> None:
    found = asked("--rate 20 --requests 10")
    assert found.send_at_s == tuple(Poisson(20).offsets(10, 0))
    assert (found.requests, found.cap) == (10, 0)
    assert found.arrival is not None
    assert found.arrival["kind"] == "poisson"
    assert found.arrival["planned_req_s"] == pytest.approx(9 / found.send_at_s[-1])
    assert "not rescaled" in found.notes[0]
    made = axes("--rate 20 --requests 10 --concurrency 3")
    assert [(a.workload.name, a.concurrency, a.warmup) for a in made] == [("copy", 3, 3), ("chat", 3, 3)]
    assert axes("--rate 20 --requests 10")[0].warmup == 4
    assert all(len(a.workload.prompts) * a.repeat >= 10 for a in made)


@pytest.mark.parametrize(
    ("line", "schedule", "count"),
    [
        ("--rate 4 --arrival constant --requests 9", Constant(4), 9),
        ("--rate 4 --arrival poisson --requests 9 --seed 5", Poisson(4), 9),
        ("--rate 4 --burstiness 0.5 --requests 9 --seed 5", Gamma(4, 0.5), 9),
        ("--rate 4 --arrival gamma --burstiness 3 --requests 9 --seed 5", Gamma(4, 3), 9),
        ("--rate 0..4 --requests 8", Ramp(0, 4, 4.0), 8),
        ("--rate 1..4 --ramp-seconds 2 --requests 8", Ramp(1, 4, 2.0), 8),
        (
            "--rate 1..4 --arrival ramp --burstiness 1 --ramp-seconds 2 --requests 8 --seed 5",
            Ramp(1, 4, 2.0, 1.0),
            8,
        ),
    ],
)
def test_arrivals(line: str, schedule: Poisson, count: int) -> None:
    found = asked(line)
    assert found.send_at_s == tuple(schedule.offsets(count, 5))
    json.dumps(found.arrival)


@pytest.mark.parametrize(
    ("line", "count", "seconds"),
    [
        ("--rate 4 --arrival constant", 121, 30),
        ("--rate 4 --arrival constant --max-seconds 5", 21, 5),
        ("--rate 0.01 --arrival constant", 8, 800),
        ("--rate 0..4", 121, 60),
        ("--rate 100000 --arrival constant --max-seconds 9", 900_001, 9),
        ("--rate 100000 --arrival constant --max-seconds 900", 1_000_000, 900),
    ],
)
def test_how_many_where_it_is_not_said(line: str, count: int, seconds: float) -> None:
    found = asked(line)
    assert found.requests == count
    assert found.send_at_s is not None
    assert found.send_at_s[-1] <= seconds


def test_a_trace(mooncake: Path) -> None:
    found = asked(f"--trace {mooncake} --trace-speed 2 --requests 5")
    assert found.send_at_s == (0.0, 0.5, 1.0, 1.5, 2.0)
    (workload,) = found.workloads
    assert workload.name == "conversation"
    assert [(p.max_tokens, p.forced) for p in workload.prompts] == [(10 + i, True) for i in range(5)]
    assert estimated_tokens(workload.prompts[3].messages[0].content) == pytest.approx(603, rel=0.03)
    assert found.shares
    assert found.arrival is not None
    assert (found.arrival["form"], found.arrival["speed"]) == ("Mooncake", 2.0)
    assert "the first 5 requests" in found.notes[0]
    assert any("approximate" in note for note in found.notes)
    (axis,) = axes(f"--trace {mooncake} --concurrency 4")
    assert (len(axis.workload.prompts), axis.repeat, axis.concurrency, axis.warmup) == (12, 1, 4, 0)


def test_of_a_trace_what_fits_into_the_time(mooncake: Path) -> None:
    found = asked(f"--trace {mooncake} --trace-speed 2 --max-seconds 1.5")
    assert found.send_at_s == (0.0, 0.5, 1.0, 1.5)
    assert len(found.workloads[0].prompts) == 4
    assert asked(f"--trace {mooncake} --max-seconds 1.5 --requests 9").requests == 9


def test_a_trace_of_the_users_own_text(mooncake: Path, mt_bench: Path) -> None:
    (own,) = asked(f"--trace {mooncake} --prompts {mt_bench} --output-tokens 3").workloads
    assert "one" in own.prompts[0].messages[0].content
    assert {p.max_tokens for p in own.prompts} == {3}


def test_what_would_not_fit_into_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 9000000, "output_length": 5}\n' * 40)
    with pytest.raises(UsageError, match="over the limit of 1 GiB"):
        asked(f"--trace {path}")
    for line in ("--random-tokens 9999999:1 --requests 5", "--shared-prefix 9999:9999:99"):
        with pytest.raises(UsageError, match="over the limit of 1 GiB"):
            asked(line)


# --- what does not go together ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--rate 2 --trace t", "a trace has its own times"),
        ("--arrival poisson", "there is none"),
        ("--burstiness 2", "there is none"),
        ("--ramp-seconds 2", "there is none"),
        ("--trace-speed 2", "there is none"),
        ("--rate 2 --arrival constant --burstiness 2", "no burstiness to be chosen"),
        ("--rate 2 --arrival poisson --burstiness 2", "no burstiness to be chosen"),
        ("--rate 2 --arrival gamma", "gamma arrivals need a burstiness"),
        ("--rate 2..4 --arrival constant", "two rates are a ramp"),
        ("--rate 2 --arrival ramp", "from one rate to another"),
        ("--rate 2 --ramp-seconds 9", "from one rate to another"),
        ("--rate 2 --concurrency 1,8", "there is one"),
        ("--trace t --concurrency 1,8", "there is one"),
        ("--rate 2 --think 1", "an open loop has times"),
        ("--trace t --think 1", "an open loop has times"),
        ("--output-tokens 9 --max-tokens 9", "exclude each other"),
        ("--shared-prefix 1:1:1 --trace t", "exclude each other"),
        ("--random-tokens 1:1 --trace t", "exclude each other"),
        ("--random-tokens 1:1 --shared-prefix 1:1:1", "exclude each other"),
        ("--random-tokens 1:1 --prompts p", "exclude each other"),
        ("--random-tokens 1:1 --workload copy", "exclude each other"),
        ("--random-tokens 1:1 --output-tokens 4", "length already"),
        ("--random-tokens 1:1 --max-tokens 4", "length already"),
        ("--random-tokens 1:1 --api openai-chat", "messages, not with token ids"),
        ("--multi-turn --trace t", "exclude each other"),
        ("--multi-turn --random-tokens 1:1", "exclude each other"),
        ("--multi-turn --shared-prefix 1:1:1", "exclude each other"),
        ("--output-tokens data", "no data whose lengths"),
        ("--output-tokens data --workload copy", "no data whose lengths"),
    ],
)
def test_what_does_not_go_together(line: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        asked(line)
    assert caught.value.exit_status == 2
    assert caught.value.next_step
    (evidence,) = caught.value.evidence
    assert evidence.startswith("--")


@pytest.mark.parametrize("line", ["--rate 2 --think 1 --multi-turn", "--trace-speed 2 --trace t"])
def test_what_does_go_together(line: str, mt_bench: Path, mooncake: Path) -> None:
    asked(line.replace("--trace t", f"--trace {mooncake}") + (f" --prompts {mt_bench}" if "multi" in line else ""))


@pytest.mark.parametrize(("text", "found"), [("20", Span(20, 20)), ("2..20", Span(2, 20)), ("0..1e1", Span(0, 10))])
def test_spans(text: str, found: Span) -> None:
    assert span(text) == found


@pytest.mark.parametrize(
    "words",
    [
        "--rate 0",
        "--rate=-1",
        "--rate nan",
        "--rate 1..0",
        "--rate 1..",
        "--rate ..5",
        "--rate inf",
        "--think x",
        "--burstiness 0",
        "--trace-speed 0",
        "--shared-prefix 4:16",
        "--shared-prefix 4:0:3",
        "--random-tokens 5",
        "--random-tokens 5:x",
        "--output-tokens 0",
        "--output-tokens all",
        "--seed=-1",
        "--seed 1.5",
        "--seed 9999999999",
        "--arrival uniform",
    ],
)
def test_words_that_are_none(words: str) -> None:
    with pytest.raises(argparse.ArgumentError) as caught:
        parse(words)
    assert len(str(caught.value)) < 160


def test_for_tuning_only_what_makes_sense() -> None:
    assert parse("--seed 4", tuning=True).seed == 4
    with pytest.raises(SystemExit):
        parse("--rate 4", tuning=True)
