"""A finished run as a configuration of SGLang's adaptive speculation, and when there is none to write."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli import report
from draftmark.cli.adaptive_file import write_adaptive
from draftmark.errors import DraftmarkError, InconclusiveError, StorageError, UsageError
from draftmark.model import Arm, Message, Prompt, Workload
from draftmark.run.directory import RunDirectory
from draftmark.run.records import RunInfo

LINE = (
    "python3 -m sglang.launch_server --model-path m --speculative-algorithm NEXTN --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)
CHAIN = tuple(LINE.split())
COPY = Workload("copy", (Prompt("c", (Message("user", "x"),), 16),))
ADAPTIVE = Arm(3, (("--speculative-adaptive", ""),))
ARMS = (Arm(3), Arm(0), Arm(1), Arm(5), ADAPTIVE)


def run(**other: Any) -> RunInfo:
    made = RunInfo(
        draftmark="0",
        service="unit:llm.service",
        engine="sglang",
        engine_version="0.5.20",
        command=CHAIN,
        redacted=False,
        host={},
        started_at="2026-11-29T12:00:00.000Z",
        settings={"method": None},
        workloads=(COPY,),
        concurrency=(1, 8, 32),
        rounds=2,
        tie_margin=0.02,
        baseline=Arm(3),
        arms=ARMS,
        refused={},
        schedule=(),
    )
    return dataclasses.replace(made, **other)


def said(*chosen: str | None, workload: str = "copy", complete: bool = True) -> dict[str, Any]:
    axes = [
        {"workload": workload, "concurrency": level, "choice": name, "because": "so it is"}
        for level, name in zip((1, 8, 32), chosen, strict=False)
    ]
    return {"complete": complete, "axes": axes}


def test_the_best_depth_at_each_concurrency_becomes_a_slot(tmp_path: Path) -> None:
    path = tmp_path / "my adaptive.json"
    shown = write_adaptive(path, run(), said("d5", "d3", "off"))
    assert json.loads(path.read_text()) == {
        "1": {"candidate_steps": [3, 5]},
        "8": {"candidate_steps": [0, 3, 5]},
        "32": {"candidate_steps": [0, 3]},
    }
    assert "--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6" in shown
    assert f"--speculative-adaptive-config '{path}'" in shown
    with pytest.raises(UsageError, match="exists"):
        write_adaptive(path, run(), said("d5", "d3", "off"))


def test_of_several_workloads_all_together_decide(tmp_path: Path) -> None:
    both = (COPY, dataclasses.replace(COPY, name="chat"))
    result = said("d1", "d1", "d1")
    result["axes"] += said("d5", "d3", "off", workload="all")["axes"]
    write_adaptive(tmp_path / "a.json", run(workloads=both), result)
    assert set(json.loads((tmp_path / "a.json").read_text())) == {"1", "8", "32"}


@pytest.mark.parametrize(
    ("other", "chosen", "kind", "says"),
    [
        ({"engine": "llamacpp"}, ("d5", "d3", "off"), UsageError, "llamacpp does not adapt"),
        ({"engine_version": "0.5.10"}, ("d5", "d3", "off"), UsageError, "came with SGLang 0.5.12"),
        ({"command": (*CHAIN, "--enable-pdmux")}, ("d5", "d3", "off"), UsageError, "--enable-pdmux"),
        (
            {"command": (*CHAIN[:-4], "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8")},
            ("d5", "d3", "off"),
            UsageError,
            "a tree of drafts",
        ),
        ({}, ("d5", None, "off"), InconclusiveError, "no depth was settled with 8"),
        ({}, ("d5", "d3"), InconclusiveError, "nothing was measured with 32"),
        ({}, ("d3", "d3", "d3"), InconclusiveError, "nothing to adapt"),
        ({}, ("d5", "d3-speculative-adaptive", "off"), InconclusiveError, "which is no single depth"),
    ],
)
def test_where_there_is_nothing_to_write_the_reason_is_told(
    tmp_path: Path, other: dict[str, Any], chosen: tuple[str | None, ...], kind: type[DraftmarkError], says: str
) -> None:
    with pytest.raises(kind) as caught:
        write_adaptive(tmp_path / "a.json", run(**other), said(*chosen))
    assert says in str(caught.value)
    assert not (tmp_path / "a.json").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        write_adaptive(tmp_path / "none" / "a.json", run(), said("d5", "d3", "off"))


def test_the_report_verb_asks_for_a_finished_run(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run", run())
    args = argparse.Namespace(run_directory=directory.path, json=True, adaptive=tmp_path / "a.json")
    with pytest.raises(InconclusiveError, match="not finished"):
        report.run(args)
    assert (directory.path / "report.html").exists()


def test_a_simulated_run_is_written_like_one_of_the_engine_that_it_stands_for(tmp_path: Path) -> None:
    """The method stands behind the simulator's own `--`."""
    sim = "draftmark sim --model qwen35-35b --gpu h200 --sglang-version 0.5.17 --"
    words = (*sim.split(), *CHAIN[CHAIN.index("--speculative-algorithm") :])
    path = tmp_path / "a.json"
    shown = write_adaptive(path, run(command=words, engine_version="0.5.17"), said("d5", "d3", "off"))
    assert "--speculative-num-steps 5" in shown
    assert json.loads(path.read_text())["1"] == {"candidate_steps": [3, 5]}
