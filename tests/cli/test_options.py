"""Readers of single arguments: what they take, and what they refuse before anything starts."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from draftmark.cli import compose, options
from draftmark.cli.engines import starts
from draftmark.cli.target import CommandTarget
from draftmark.cli.unit_target import UnitTarget
from draftmark.engines.llamacpp.engine import LlamaCpp
from draftmark.engines.sglang.engine import SGLang
from draftmark.errors import UsageError
from draftmark.model import Arm, Foreign
from draftmark.service.reference import parse_reference


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(exit_on_error=False)
    options.workload(made)
    options.sweep(made)
    return made


@pytest.mark.parametrize("text", ["1", "8", "007", "9999999"])
def test_whole_numbers(text: str) -> None:
    assert options.positive(text) == int(text)


@pytest.mark.parametrize(
    "text",
    ["0", "", " 1", "1 ", "1\n", "+1", "-1", "1_0", "1.0", "1e3", "٣", "¹", "１", "10000000", "9" * 5000],  # noqa: RUF001
)
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from 1 up") as caught:
        options.positive(text)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("text", ["1", "0.5", ".5", "2.", "1e-3", "1E2", "9999999"])
def test_numbers(text: str) -> None:
    assert options.positive_number(text) == float(text)


@pytest.mark.parametrize(
    "text", ["0", "", "nan", "inf", "1_0", "1_0.5", "٣", "+1", "-1", " 1", "0x1", "1e8", "1e999", "9" * 5000]
)
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number above 0") as caught:
        options.positive_number(text)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("text", "good"), [("0", True), ("0.02", True), ("1", False), ("٣", False), ("nan", False)]
)
def test_shares(text: str, good: bool) -> None:
    if good:
        assert options.share(text) == float(text)
    else:
        with pytest.raises(argparse.ArgumentTypeError, match="is not a share"):
            options.share(text)


@pytest.mark.parametrize("name", ["--workload", "--concurrency"])
@pytest.mark.parametrize("text", ["", " ", "\t"])
def test_an_empty_list_is_not_the_default(name: str, text: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=f"{name}: the list is empty"):
        parser().parse_args([name, text])


@pytest.mark.parametrize(
    ("name", "most", "read"),
    [
        ("--rounds", 100, lambda args: args.rounds),
        ("--requests", 1_000_000, lambda args: args.requests),
        ("--max-tokens", 9_999_999, lambda args: args.max_tokens),
    ],
)
def test_the_largest_that_is_taken(name: str, most: int, read: Callable[[argparse.Namespace], int]) -> None:
    assert read(parser().parse_args([name, str(most)])) == most
    with pytest.raises(argparse.ArgumentError, match=f"{name}: .*at most {most}"):
        parser().parse_args([name, str(most + 1)])


def test_lists_and_defaults_pass_unchanged() -> None:
    args = parser().parse_args(["--workload", "copy,chat", "--concurrency", "1,8"])
    assert (args.workload, args.concurrency, args.depth, args.rounds) == ("copy,chat", "1,8", None, None)


def test_the_help_tells_how_many_rounds_there_are() -> None:
    taken = parser().parse_args([])
    service, embedded = (compose.rounds(taken, embedded=each) for each in (False, True))
    told = " ".join(parser().format_help().split())
    assert f"how often each arm is started (default {service}; embedded: {embedded})" in told


def chosen(command: str) -> CommandTarget:
    ref = parse_reference(f"cmd:{command}")
    engine = starts(command.split(), (LlamaCpp(), SGLang(version="0.5.20")))
    assert engine is not None
    return CommandTarget(
        ref=ref, shown=str(ref), engine=engine, command=tuple(command.split()), env={}, version="0.5.20"
    )


CHAIN = (
    "python3 -m sglang.launch_server --model-path m --speculative-algorithm NEXTN --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)
ADAPTIVE = Arm(3, (("--speculative-adaptive", ""),))


def test_an_adaptive_service_is_its_own_baseline() -> None:
    target = chosen(f"{CHAIN} --speculative-adaptive")
    baseline, arms = compose.arms(parser().parse_args(["--depth", "off,3"]), target)
    assert (baseline, arms) == (ADAPTIVE, (ADAPTIVE, Arm(0), Arm(3)))
    assert target.engine.with_arm(target.command, baseline) == target.command
    assert compose.arms(parser().parse_args(["--depth", "off,adaptive"]), target)[1] == (Arm(0), ADAPTIVE)


def test_adaptive_among_depths() -> None:
    baseline, arms = compose.arms(parser().parse_args(["--depth", "0..2,adaptive"]), chosen(CHAIN))
    assert (baseline, arms) == (Arm(3), (Arm(3), Arm(0), Arm(1), Arm(2), ADAPTIVE))
    with pytest.raises(UsageError, match="llama-server does not adapt"):
        compose.arms(parser().parse_args(["--depth", "off,adaptive"]), chosen("llama-server -m m.gguf"))


def test_other_members_of_a_service_follow_with_the_whole_arm() -> None:
    engine = SGLang(version="0.5.20")
    target = UnitTarget(
        engine=engine,
        members=(),
        asked="unit:a",
        foreign=Foreign.ABORT,
        patience_s=1,
        lease_s=60,
        program=None,
        api="openai-chat",
    )
    rank0, rank1 = (tuple(f"{CHAIN} --node-rank {rank}".split()) for rank in (0, 1))
    followed = target._follow(rank1, engine.with_arm(rank0, ADAPTIVE))
    assert engine.arm(followed) == ADAPTIVE
    assert followed[-2:] == ("--node-rank", "1")


def test_headers() -> None:
    made = argparse.ArgumentParser()
    options.header(made)
    given = ["--header", "Authorization: Bearer a:b", "--header", "X-Y:"]
    assert options.headers(made.parse_args(given)) == {"Authorization": "Bearer a:b", "X-Y": ""}
    with pytest.raises(UsageError, match="NAME: VALUE"):
        options.headers(made.parse_args(["--header", "no colon"]))


def test_what_keeps_a_choice_names_it_and_how_it_was_found() -> None:
    """Not a whole new sweep with the defaults."""
    engine = SGLang(version="0.5.20")
    target = UnitTarget(
        engine=engine, members=(), asked="unit:a --host gpu1", foreign=Foreign.ABORT, patience_s=1, lease_s=60,
        program=None, api="openai-chat",
    )  # fmt: skip
    command = tuple(CHAIN.split())
    for arm, depth in ((Arm(4), "4"), (Arm(0), "off"), (ADAPTIVE, "adaptive")):
        told = target.to_run(engine.with_arm(command, arm), "--concurrency 2 --lease 30")
        assert told == f"draftmark tune unit:a --host gpu1 --depth {depth} --concurrency 2 --lease 30 --keep"
    assert target.to_run(command) == "draftmark tune unit:a --host gpu1 --depth 3 --keep"
