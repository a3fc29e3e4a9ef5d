"""The command that keeps what a run has found: the same load, that arm, and the same care for the service."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from pathlib import Path

import pytest
from tests.run.test_directory import info

from draftmark.cli import again, tune
from draftmark.model import Workload
from draftmark.run.records import RunInfo


def parsed(*words: str) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser()
    tune.add_arguments(parser)
    return parser.parse_args(["unit:llm.service", *words]), parser


LOAD = (
    "--concurrency 2,16 --workload copy --requests 32 --max-tokens 64 --rounds 3 --tie-margin 0.05 "
    "--max-foreign-cpu 1000 --foreign wait --patience 600 --lease 30 --request-timeout 7.5"
)


def test_what_was_given_is_given_again() -> None:
    args, parser = parsed(*LOAD.split(), "--depth", "0..8", "--run", "x", "--json", "--host", "gpu1")
    once = again.options(args, parser, None)
    assert sorted(once.split()) == sorted(LOAD.split())
    second, parser = parsed(*shlex.split(once))
    assert again.options(second, parser, None) == once


@pytest.mark.parametrize("words", [(), ("--depth", "4", "--keep"), ("--foreign", "abort", "--lease", "60")])
def test_what_is_so_without_words_needs_none(words: tuple[str, ...]) -> None:
    assert again.options(*parsed(*words), None) == ""


def test_words_of_a_file_name_stay_one() -> None:
    assert again.options(*parsed("--prompts", "my prompts.jsonl"), None) == "--prompts 'my prompts.jsonl'"


def test_a_run_that_was_gone_on_with_has_its_own_load(tmp_path: Path) -> None:
    run: RunInfo = info()
    args, parser = parsed("--resume", str(tmp_path), "--lease", "30")
    assert again.options(args, parser, run) == "--concurrency 1 --workload copy --lease 30"


def test_prompts_of_a_file_are_not_named_as_a_workload() -> None:
    own = Workload("mine", info().workloads[0].prompts, source="mine.jsonl")
    args, parser = parsed("--resume", "x")
    assert again.options(args, parser, dataclasses.replace(info(), workloads=(own,))) == "--concurrency 1"
