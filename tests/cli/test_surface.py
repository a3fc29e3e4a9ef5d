"""`tune --surface`: words, document and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmark.cli.main import main

FOUNDING = Path(__file__).parents[1] / "data/surfaces/founding.json"


def test_each_step_has_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--surface", str(FOUNDING)]) == 10
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("restart ") for line in lines) <= 3
    assert any(line.startswith("stop: ") for line in lines)
    assert "never started: depth 10: nothing is left for KV" in lines
    assert lines[-1].startswith(("choice: depth 4 is ", "choice: depth 5 is "))


def test_with_json_stdout_is_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--surface", str(FOUNDING), "--json"]) == 10
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == "draftmark.tune/1"
    assert "restart 1: " in err


def test_the_baseline_kept_is_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slow.json"
    path.write_text('{"0": 100, "1": 80, "2": 60, "4": 40}')
    assert main(["tune", "--surface", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["choice"]["recommended"] == "off"
    assert document["restarts"] <= 2


@pytest.mark.parametrize("text", [None, "{}", "not json", "\x00"])
def test_a_file_that_is_no_surface_is_status_2(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    assert main(["tune", "--surface", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "bad.json" in err
    assert "Traceback" not in err


def test_what_a_file_says_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loud.json"
    path.write_text(json.dumps({"0": 100, "2": {"fits": False, "because": "\x1b[31mred\u202e"}}))
    assert main(["tune", "--surface", str(path)]) == 0
    assert r"depth 2: \x1b[31mred\u202e" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cluster", "auto", "--depth", "0..3"), "given with it: --depth, --cluster"),
        (("unit:llm.service",), "given with it: unit:llm.service"),
    ],
)
def test_what_concerns_a_server_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(["tune", "--surface", str(FOUNDING), *words]) == 2
    assert said in capsys.readouterr().err
