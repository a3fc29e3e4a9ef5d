"""What `--cluster` says where there is nothing to connect to, and of answers that cannot be used."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from draftmark import __version__
from draftmark.cli.cluster import _reserved, _sight
from draftmark.cli.main import main
from draftmark.cli.trial import _look
from draftmark.cluster.bridge import nodes_of
from draftmark.cluster.connection import Cluster
from draftmark.cluster.wire import Report
from draftmark.errors import HostError
from draftmark.model import Node
from draftmark.run.records import decode, encode_line
from draftmark.tune.job import Look, Sight, Word

SIM = "cmd:draftmark sim --model qwen35-35b --gpus h200 -- --speculative-algorithm NEXTN"
HAS_RAY = importlib.util.find_spec("ray") is not None


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["tune", *words])
    return status, capsys.readouterr().err


def test_without_ray_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "ray" else find(name, *a))
    status, said = run(capsys, SIM, "--cluster", "auto", "--run", str(tmp_path / "run"))
    assert status == 2
    assert "pip install 'draftmark[cluster]'" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: it has no wheel for this Python")
def test_a_cluster_that_is_not_there_is_an_error_with_a_next_step(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, said = run(capsys, SIM, "--cluster", "127.0.0.1:9", "--run", str(tmp_path / "run"))
    assert status == 50
    assert "the Ray cluster at 127.0.0.1:9 cannot be reached" in said
    assert "ConnectionRefusedError" in said
    assert "ray status" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((SIM, "--host", "gpu1"), "--host names one computer"),
        ((SIM, "--search", "forecast"), "a forecast asks for one start after the other"),
        ((SIM, "--knob", "mem-fraction=0.8..0.9"), "a search of knobs asks for one start after the other"),
        (("unit:llm.service",), "this is a service of one host"),
    ],
)
def test_options_that_contradict_it(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], part: str) -> None:
    status, said = run(capsys, *words, "--cluster", "auto")
    assert (status, part in said) == (2, True), said


@pytest.mark.parametrize("address", ["", "nonsense", "host:port", "http://h:1/", "h:1 "])
def test_what_is_no_address_is_not_tried(capsys: pytest.CaptureFixture[str], address: str) -> None:
    status, said = run(capsys, SIM, "--cluster", address)
    assert (status, "is no address of a Ray cluster" in said) == (2, True), said


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("it went away", "it went away"),
        ((1, b"", b"/usr/bin/python3: No module named draftmark\n"), "draftmark is not installed there"),
        ((1, b"noise\n", b"Traceback\nKeyError: 7\n"), "KeyError: 7"),
        ((0, encode_line(Word(sight=Sight(draftmark="0.0.9"))), b""), "it has draftmark 0.0.9, here is"),
        (
            (0, encode_line(Word(sight=Sight(draftmark=__version__, missing="there is no program x there"))), b""),
            "there is no program x there",
        ),
    ],
)
def test_a_node_that_cannot_be_used_says_why(answer: Any, words: str) -> None:
    found = _sight(answer)
    assert isinstance(found, str)
    assert words in found


def test_a_node_that_can_be_used_has_said_so() -> None:
    sight = Sight(draftmark=__version__, engine_version="0.5.17")
    assert _sight((0, b"a stray print\n" + encode_line(Word(sight=sight)), b"")) == sight


@pytest.mark.parametrize(
    ("cpus", "gpus", "need", "on_gpu", "taken"),
    [
        (8, 0, 0, False, (8, 0)),  # an engine on CPUs: the whole node
        (8, 4, 2, True, (0, 2)),
        (8, 1, 2, True, None),
        (8, 4, None, False, (0, 4)),  # whatever there is
        (8, 0, None, False, (8, 0)),
        (8, 0, None, True, None),  # layers are sent to a GPU by name
        (0, 0, 0, False, None),  # a head that runs nothing
    ],
)
def test_what_is_taken_of_a_node(
    cpus: float, gpus: float, need: int | None, on_gpu: bool, taken: tuple[float, float] | None
) -> None:
    assert _reserved(Node(id="1", name="a", address="x", cpus=cpus, gpus=gpus), need, on_gpu) == taken


def test_nodes_that_share_a_computer_have_names_and_numbers_of_their_own() -> None:
    def raylet(ident: str, host: str, address: str, alive: bool = True) -> dict[str, Any]:
        resources = {"CPU": 4.0, "GPU": 2.0}
        return {
            "NodeID": ident, "Alive": alive, "NodeManagerHostname": host, "NodeManagerAddress": address,
            "Resources": resources,
        }  # fmt: skip

    found = nodes_of(
        [
            raylet("f" * 8, "b", "10.0.0.2"),
            raylet("c" * 8, "a", "10.0.0.1"),
            raylet("d" * 8, "a", "10.0.0.1"),
            raylet("e" * 8, "z", "1", alive=False),
        ]
    )
    assert [(n.name, n.index, n.shared) for n in found] == [
        ("a-cccccc", 0, True), ("a-dddddd", 1, True), ("b", 0, False),
    ]  # fmt: skip
    assert (found[0].cpus, found[0].gpus) == (4.0, 2.0)


class NoRay:
    """cluster.connection.Cluster whose nodes are this process."""

    nodes: tuple[Node, ...] = tuple(
        Node(id=name, name=name, address="x", cpus=4.0, gpus=0.0, index=at, shared=True)
        for at, name in enumerate(("a", "b", "c"))
    )

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self.released: list[str] = []

    def __enter__(self) -> NoRay:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def release(self, node: str) -> None:
        self.released.append(node)

    def begin(self, *_: object) -> None:
        raise AssertionError("nothing is started by a plan")

    events = begin

    def look(self, wanted: Sequence[tuple[Node, bytes, float, float]]) -> dict[str, tuple[int, bytes, bytes] | str]:
        found: dict[str, tuple[int, bytes, bytes] | str] = {}
        for node, question, cpus, gpus in wanted:
            assert (cpus, gpus) == (4.0, 0.0)
            asked = decode(question, Look)
            assert asked.service.port_step == node.index
            found[node.name] = (0, encode_line(Word(sight=_look(asked))), b"")
        return {**found, "c": "it went away"}


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmark.cluster.connection.Cluster", NoRay)


LOAD = ("--cluster", "head:6379", "--depth", "0,2,3,4", "--rounds", "1", "--concurrency", "1", "--workload", "chat")


@pytest.mark.usefixtures("no_ray")
def test_a_plan_says_which_node_starts_what(capsys: pytest.CaptureFixture[str]) -> None:
    sim = f"cmd:{sys.executable} -m draftmark sim --model qwen35-35b --gpus h200 -- --speculative-algorithm NEXTN"
    chain = " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    assert main(["plan", sim + chain, *LOAD, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {n["node"]: n["starts"] for n in plan["nodes"]} == {
        "a": ["d3", "off", "d4", "d3"],
        "b": ["d3", "d2", "d3"],
    }
    assert plan["cluster"] == "head:6379"
    assert plan["restarts"] == 7
    assert "c is left out: it went away" in plan["notes"]
    assert all(arm["fit"] is not None for arm in plan["arms"])
    assumed = plan["assumed"]
    each_s = assumed["start_s"] + assumed["measure_s"] + assumed["stop_s"]
    assert plan["minutes"] == pytest.approx(4 * each_s / 60, abs=0.1)  # of the busiest node
    assert main(["plan", sim + chain, *LOAD]) == 0
    said = capsys.readouterr().out
    assert "a: d3 off d4 d3" in said
    assert "7 starts on 2 nodes" in said


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize(
    ("service", "words"),
    [
        ("cmd:python3 -m sglang.launch_server --model-path m --tp 2", "has the 2 GPUs that the engine needs"),
        ("cmd:python3 -m sglang.launch_server --model-path m --device cpu", "has no module sglang there"),
        ("cmd:/nowhere/draftmark sim --model qwen35-35b --gpus h200 --", "there is no program /nowhere/draftmark"),
    ],
)
def test_what_no_node_can_run_is_one_error(capsys: pytest.CaptureFixture[str], service: str, words: str) -> None:
    status, said = run(capsys, service, *LOAD)
    assert (status, words in said) == (30, True), said
    assert "a: " in said
    assert "next: " in said


@pytest.mark.usefixtures("no_ray")
def test_nodes_with_different_engines_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter(("0.5.17", "0.5.20", "0.5.20"))
    monkeypatch.setitem(globals(), "_look", lambda _: Sight(draftmark=__version__, engine_version=next(versions)))
    status, said = run(capsys, SIM, *LOAD)
    assert status == 30
    assert "a: 0.5.17" in said
    assert "b: 0.5.20" in said


def test_this_python_is_asked_for_ray_only_where_a_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import draftmark.cli.tune  # noqa: F401

    assert "ray" not in sys.modules


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (
            "Version mismatch: started with:\nRay: 2.60.0\nPython: 3.11.7\nThis:\nRay: 2.41.0\nPython: 3.12.1",
            "ray==…",
        ),
        ("Ray Client requires pip package `ray[client]`.", "pip install 'ray[client]'"),
        ("Connection refused", "ray start --head"),
    ],
)
def test_why_a_cluster_cannot_be_reached_has_its_own_next_step(tmp_path: Path, words: str, step: str) -> None:
    cluster = Cluster("h:1", tmp_path / "cluster.log")
    cluster._reports.put(Report(failed=("RuntimeError", words)))
    with pytest.raises(HostError) as caught:
        cluster._connected()
    assert step in caught.value.next_step
    assert caught.value.evidence[-1].endswith(words.splitlines()[-1])
