"""Readers of single arguments: what they take, and what they refuse before anything starts."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from draftmark.cli import compose, options


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
