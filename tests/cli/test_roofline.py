"""`inspect` and `plan` say what the GPU bounds, and nothing where they cannot know."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.main import main
from draftmark.model import Arm, Message, Prompt, Workload
from draftmark.run.directory import RunDirectory
from draftmark.run.records import RunInfo, Slot
from draftmark.tune import result as derived

H200 = Path(__file__).parents[1] / "data" / "sglang" / "h200"
Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def draftmark(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Said]:
    """In this process, on a host whose driver tells of the card named; none without a name."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")

    def run(*words: str, card: str = "NVIDIA H200, 143771") -> tuple[int, str, str]:
        program.write_text(f"#!/bin/sh\necho {shlex.quote(card)}\n" if card else "#!/bin/sh\nexit 9\n")
        program.chmod(0o755)
        status = main(words)
        out, err = capfd.readouterr()
        return status, out, err

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def command(tmp_path: Path) -> str:
    shutil.copytree(H200 / "model", tmp_path / "model")
    flags = "--mem-fraction-static 0.62 --disable-radix-cache"
    return f"python3 -m sglang.launch_server --model-path {tmp_path / 'model'} {flags}"


def document(said: tuple[int, str, str]) -> Any:
    status, out, err = said
    assert status == 0, err
    return json.loads(out)["roofline"]


NEXTN = (
    "--speculative-algorithm NEXTN --speculative-num-steps 4 --speculative-eagle-topk 1 "
    "--speculative-num-draft-tokens 5"
)
VERSION = ("--engine", "sglang==0.5.17", "--json")


def test_inspect_asks_about_the_depth_that_is_served(draftmark: Said, command: str) -> None:
    found = document(draftmark("inspect", f"cmd:{command} {NEXTN}", *VERSION))
    assert found["card"]["name"] == "h200"
    assert {(each["depth"], each["concurrency"]) for each in found["rounds"]} == {
        (k, c) for k in (0, 4) for c in (1, 8, 32)
    }
    for each in found["rounds"]:
        assert each["floor_ms"] == pytest.approx(sum(part["floor_ms"] for part in each["parts"]), rel=0.01)
        assert each["tokens_verified"] == each["concurrency"] * (each["depth"] + 1)
        assert (each["gain_ceiling"], each["measured"]) == (None, [])
    bound = {(each["depth"], each["part"]): each["concurrency"] for each in found["compute_bound_from"]}
    assert bound[4, "experts"] == 1320
    assert bound[4, "recurrent state"] is None
    assert found["sentences"][0].startswith(
        "expert GEMMs read weights for c·(k+1) tokens at expert width 512: memory"
    )


def test_inspect_of_a_service_that_does_not_draft_yet(draftmark: Said, command: str) -> None:
    found = document(draftmark("inspect", f"cmd:{command}", *VERSION))
    assert (found["draft"], {each["depth"] for each in found["rounds"]}) == ("own-layers", {0, 3})


def test_a_model_without_layers_to_draft_with(draftmark: Said, tmp_path: Path) -> None:
    config = json.loads((H200.parents[1] / "model_config" / "llama-3.1-8b.json").read_text(encoding="utf-8"))
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text(json.dumps(config["config"]))
    words = f"cmd:python3 -m sglang.launch_server --model-path {tmp_path / 'llama'}"
    found = document(draftmark("inspect", words, *VERSION))
    assert {each["depth"] for each in found["rounds"]} == {0}
    assert found["sentences"][0] == (
        "dense GEMMs read their weights once for c tokens: memory-bound up to c = 206; tuning their kernels for "
        "arithmetic cannot help, drafting can"
    )


def test_plan_asks_about_its_arms_and_loads(draftmark: Said, command: str) -> None:
    words = (
        "plan",
        f"cmd:{command}",
        "--method",
        "NEXTN",
        "--depth",
        "off,1,3,10",
        "--concurrency",
        "1,16",
        *VERSION,
    )
    found = document(draftmark(*words))
    # Depth 10 does not fit, and is not started.
    assert {(each["depth"], each["concurrency"]) for each in found["rounds"]} == {
        (k, c) for k in (0, 1, 3) for c in (1, 16)
    }


def test_it_is_printed_and_wrapped(draftmark: Said, command: str) -> None:
    status, out, _ = draftmark("inspect", f"cmd:{command} {NEXTN}", *VERSION[:2])
    assert status == 0
    flat = " ".join(out.split())
    assert "roofline: expert GEMMs read weights for c·(k+1) tokens" in flat
    assert "compute_bound_from" not in flat


@pytest.mark.parametrize("card", ["", "NVIDIA GeForce GTX 1080, 8192"])
def test_nothing_is_said_of_a_card_that_is_not_known(draftmark: Said, command: str, card: str) -> None:
    assert document(draftmark("inspect", f"cmd:{command}", *VERSION, card=card)) is None
    status, out, _ = draftmark("inspect", f"cmd:{command}", *VERSION[:2], card=card)
    assert (status, "roofline" in out) == (0, False)


def test_nothing_is_said_of_a_model_that_is_not_known(draftmark: Said) -> None:
    words = "cmd:python3 -m sglang.launch_server --model-path somebody/something"
    assert document(draftmark("inspect", words, *VERSION)) is None


def test_nothing_is_said_of_other_engines(draftmark: Said, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    assert document(draftmark("inspect", f"cmd:llama-server -m {tmp_path / 'x.gguf'}", "--json")) is None


def run_of(path: Path, command: str) -> RunDirectory:
    prompt = Prompt("a", (Message("user", "say a"),), 8)
    return RunDirectory.create(
        path,
        RunInfo(
            draftmark="0", service="cmd:x", engine="sglang", engine_version="0.5.17",
            command=tuple(shlex.split(command)), redacted=False, host={}, started_at="2026-11-29T12:00:00.000Z",
            settings={}, workloads=(Workload("chat", (prompt,)),), concurrency=(1, 32), rounds=1, tie_margin=0.02,
            baseline=Arm(0), arms=(Arm(0),), refused={}, schedule=(Slot(number=1, round=1, arm=Arm(0)),),
        ),
    )  # fmt: skip


def test_measured_rounds_stand_beside_their_floors(
    draftmark: Said, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = json.loads((H200 / "nextn-0.92.result.json").read_text(encoding="utf-8"))
    monkeypatch.setattr(derived, "derive", lambda _record: result)
    run = run_of(tmp_path / "run", command)
    found = document(draftmark("inspect", f"cmd:{command} {NEXTN}", "--measured", str(run.path), *VERSION))
    rounds = {(each["depth"], each["concurrency"]): each for each in found["rounds"]}
    (alone,) = rounds[0, 1]["measured"]
    assert alone == {
        "workload": "chat",
        "round_ms": 3.905,
        "decoding": 1.0,
        "over_floor": pytest.approx(3.6, abs=0.1),
    }
    (crowd,) = rounds[4, 32]["measured"]
    assert crowd["decoding"] == pytest.approx(21, abs=0.1)
    assert 1 < crowd["over_floor"] < 2
    assert rounds[4, 1]["gain_ceiling"] == 5
    assert rounds[4, 1]["gain_ceiling"] > 608.91 / 252.01
    assert any("measured at depth 4 7.00 ms: 2.4 times its floor" in each for each in found["sentences"])


def test_rounds_of_another_model_are_refused(draftmark: Said, command: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", command.replace("0.62", "0.62 --tp-size 2"))
    status, _, err = draftmark("inspect", f"cmd:{command}", "--measured", str(run.path), *VERSION)
    assert status == 2
    assert "another number of GPUs" in err


SIM = "cmd:draftmark sim --model qwen35-122b --gpus 4xrtx-pro-6000 --sglang-version 0.5.12"


def test_a_simulated_server_has_the_roofline_of_what_it_simulates(draftmark: Said) -> None:
    """The founding case: experts of width 256 a card wait for memory at the 17 to 21 requests that were served."""
    told = document(draftmark("inspect", f"{SIM} -- {NEXTN}", "--json", card=""))
    assert "expert width 256 (1,024 over 4 cards): memory-bound up to c = 1,799 at depth 4" in told["sentences"][0]
