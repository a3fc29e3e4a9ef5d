"""A live service is calibrated by how it started: `fit` and `plan` of a unit, with a systemd that is a script."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.main import main

DATA = Path(__file__).resolve().parents[1] / "data" / "sglang"
CAPTURE = DATA / "captured-0.5.17-k3.log"
UNIT = """[Service]
ExecStart=/usr/bin/python3 -m sglang.launch_server --model-path {model} --mem-fraction-static 0.62 \
--disable-radix-cache --speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 \
--speculative-num-draft-tokens 4
"""
SYSTEMCTL = """#!/bin/sh
case "$*" in
*--version*) echo 'systemd 252 (252.39)';;
*environment*) ;;
*show*) printf 'Id=sglang-q.service\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\nMainPID=4711\\n\
InvocationID=abc123\\nFragmentPath={unit}\\nType=simple\\nKillMode=mixed\\nTimeoutStopUSec=5min\\n';;
esac
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def draftmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a verb; `journal`: what the unit's present run has written."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    tools, unit, written = tmp_path / "bin", tmp_path / "sglang-q.service", tmp_path / "journal"
    tools.mkdir()
    unit.write_text(UNIT.format(model=DATA / "h200" / "model"))
    scripts = {
        "systemctl": SYSTEMCTL.format(unit=unit),
        "journalctl": f"#!/bin/sh\ncase \"$*\" in *_SYSTEMD_INVOCATION_ID=abc123*) cat '{written}';; esac\n",
        "nvidia-smi": "#!/bin/sh\necho 'NVIDIA H200, 143771'\n",
    }
    for name, text in scripts.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")

    def run(*words: str, journal: bytes) -> dict[str, Any]:
        written.write_bytes(journal)
        status = main([*words, "--json"])
        out, err = capfd.readouterr()
        assert status == 0, err
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_fit_is_calibrated_by_the_running_service(draftmark: Run) -> None:
    found = draftmark("fit", "unit:sglang-q", "--depth", "0,3,6", journal=CAPTURE.read_bytes())
    assert found["calibrated_from"] == "journal of sglang-q.service, start of 2026-11-29 16:50:47"
    arms = {arm["arm"]: arm for arm in found["arms"]}
    assert (arms["d3"]["low"]["kv_tokens"], arms["d3"]["kv_tokens"]) == (338_982, 338_982)
    assert arms["d6"]["fits"] is False


def test_plan_says_so_and_refuses_by_it(draftmark: Run) -> None:
    found = draftmark("plan", "unit:sglang-q", "--depth", "3,5,6", journal=CAPTURE.read_bytes())
    assert found["calibrated_from"] == "journal of sglang-q.service, start of 2026-11-29 16:50:47"
    assert any(note.startswith("what fits is calibrated from: journal of") for note in found["notes"])
    arms = {arm["arm"]: arm for arm in found["arms"]}
    assert (arms["d5"]["verdict"], arms["d5"]["fit"]["kv_tokens"]) == ("start", 30_870)
    assert arms["d6"]["verdict"] == "refused"
    assert "nothing is left for KV" in arms["d6"]["because"]


@pytest.mark.parametrize(
    "journal", [b"", b"\x00\xff", b"[2026-11-29 17:00:00] Decode batch, #running-req: 1\n" * 99]
)
def test_a_journal_without_the_start_is_said(draftmark: Run, journal: bytes) -> None:
    """Rotated away, or not to be read: then the card alone tells."""
    found = draftmark("fit", "unit:sglang-q", "--depth", "3", "--engine-version", "0.5.17", journal=journal)
    assert found["calibrated_from"] is None
    assert found["assumptions"][0].startswith("no start of the service that tells its memory is in its journal")
    assert found["arms"][0]["kv_tokens"] == pytest.approx(338_982, rel=0.05)
    planned = draftmark("plan", "unit:sglang-q", "--depth", "3,5", journal=journal)
    assert planned["calibrated_from"] is None
    assert any(note.startswith("no start of the service") for note in planned["notes"])


def test_a_service_that_was_given_another_model_since_it_started(draftmark: Run) -> None:
    other = CAPTURE.read_bytes().replace(b"mem usage=63.11 GB", b"mem usage=15.11 GB")
    found = draftmark("plan", "unit:sglang-q", "--depth", "3,5", journal=other)
    assert found["calibrated_from"] is None
    assert found["arms"][0]["fit"]["kv_tokens"] == pytest.approx(338_982, rel=0.05)


def test_a_prediction_that_would_not_let_the_service_start_refuses_nothing(draftmark: Run, tmp_path: Path) -> None:
    """It does run: whatever the arithmetic lacks, it is not to decide what is tried."""
    unit = tmp_path / "sglang-q.service"
    unit.write_text(unit.read_text().replace("0.62", "0.5"))
    found = draftmark("plan", "unit:sglang-q", "--depth", "3,5,6", journal=b"")
    assert {arm["verdict"] for arm in found["arms"]} == {"start"}
    assert any("the prediction is off" in note for note in found["notes"])
