"""The run directory: what is written is read back, whatever happened in between."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import BadInputError, RefusedError, StorageError, UsageError
from draftmark.model import Arm, Message, Prompt, RequestRecord, Trial, TrialStatus, Workload
from draftmark.run import redact
from draftmark.run.directory import RunDirectory, TrialWriter, storing
from draftmark.run.lock import exclusive
from draftmark.run.records import Action, RunInfo, Slot, decode_lines, encode_document, encode_line

OFF, D4 = Arm(0), Arm(4)


def info() -> RunInfo:
    workload = Workload("copy", (Prompt("a", (Message("user", "say a"),), 8),))
    return RunInfo(
        draftmark="0",
        service="cmd:x",
        engine="llamacpp",
        engine_version=None,
        command=("llama-server",),
        redacted=False,
        host={"cpus": 2},
        started_at="2026-11-29T12:00:00.000Z",
        settings={},
        workloads=(workload,),
        concurrency=(1,),
        rounds=1,
        tie_margin=0.02,
        baseline=OFF,
        arms=(OFF, D4),
        refused={},
        schedule=(Slot(number=1, round=1, arm=OFF), Slot(number=2, round=1, arm=D4)),
    )


def request(number: int) -> RequestRecord:
    return RequestRecord(
        tag=f"bench-{number}", workload="copy", prompt_id="a", concurrency=1, sent_at_s=number, end_at_s=number + 1
    )


def trial(number: int, arm: Arm, requests: int) -> Trial:
    return Trial(
        number=number,
        round=1,
        arm=arm,
        status=TrialStatus.MEASURED,
        started_at="2026-11-29T12:00:01.000Z",
        total_s=1.0,
        requests=requests,
    )


def test_round_trip(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", info())
    writer = run.trial("01-off")
    for number in range(3):
        writer.request(request(number))
    writer.text("metrics.before.prom", "x 1\n")
    writer.finish(trial(1, OFF, 3))
    run.action(Action(at="t", at_s=0.5, what="finish", detail={"restored": True}))
    again = RunDirectory.open(tmp_path / "run")
    assert again.info == info()
    record = again.load()
    assert again.finished() == {1}
    assert record.trials[0].trial == trial(1, OFF, 3)
    assert record.trials[0].requests == tuple(request(n) for n in range(3))
    assert not record.trials[0].torn
    assert record.actions[-1].detail == {"restored": True}


def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", info())
    writer = run.trial("01-off")
    for number in range(3):
        writer.request(request(number))
    writer.finish(trial(1, OFF, 3))
    for name in ("trials/01-off/requests.jsonl", "actions.jsonl"):
        path = tmp_path / "run" / name
        data = path.read_bytes() if path.exists() else encode_line(Action(at="t", at_s=0, what="begin")) * 2
        path.write_bytes(data[:-7])
    record = RunDirectory.open(tmp_path / "run").load()
    assert len(record.trials[0].requests) == 2
    assert record.trials[0].torn
    assert len(record.actions) == 1


@given(st.integers(0, 400))
def test_any_cut_keeps_every_whole_line(cut: int) -> None:
    data = b"".join(encode_line(request(n)) for n in range(3))
    cut = min(cut, len(data))
    whole = data[:cut].count(b"\n")
    found = decode_lines(data[:cut], RequestRecord)
    # A cut just before the newline leaves a line that is complete all the same.
    assert len(found) in (whole, whole + 1)
    assert found == tuple(request(n) for n in range(len(found)))


def test_an_interrupted_trial_is_kept_aside(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", info())
    for _ in range(3):
        writer = run.trial("02-d4")
        writer.request(request(1))
        writer.close()
    assert run.finished() == frozenset()
    names = sorted(path.name for path in (tmp_path / "run" / "trials").iterdir())
    assert names == ["02-d4", "02-d4.interrupted-1", "02-d4.interrupted-2"]
    # Even a trial.json inside one that was put aside does not make it count.
    (tmp_path / "run" / "trials" / "02-d4.interrupted-1" / "trial.json").write_bytes(
        encode_document(trial(2, D4, 1))
    )
    assert run.finished() == frozenset()


def test_knobs_in_a_directory_name(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", info())
    arm = Arm(4, (("--mem-fraction", "0.85"),))
    writer = run.trial(f"07-{arm.name}")
    writer.finish(trial(7, arm, 0))
    assert run.finished() == {7}


def test_places_that_cannot_be_a_run(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(UsageError, match="not an empty directory"):
        RunDirectory.create(tmp_path / "full", info())
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        RunDirectory.create(tmp_path / "file", info())
    with pytest.raises(BadInputError, match="cannot write"):
        RunDirectory.create(tmp_path / "file" / "below", info())
    with pytest.raises(BadInputError, match="is not a run directory"):
        RunDirectory.open(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 1}')
    with pytest.raises(BadInputError, match="cannot be understood"):
        RunDirectory.open(tmp_path)


def test_a_damaged_trial_is_named(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", info())
    run.trial("01-off").finish(trial(1, OFF, 0))
    (tmp_path / "run" / "trials" / "01-off" / "trial.json").write_text("{")
    with pytest.raises(BadInputError, match="01-off"):
        run.load()


def test_disk_full(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, storing(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x.jsonl")
    assert caught.value.exit_status == 50
    assert "No space left" in str(caught.value)
    if Path("/dev/full").exists():
        writer = TrialWriter.at(Path("/dev/full"))
        with pytest.raises(StorageError):
            writer.request(request(1))
        writer.close()


def test_a_place_that_is_gone_in_mid_run_was_no_bad_choice_of_the_users(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", info())
    begin = Action(at="2026-11-29T12:00:01.000Z", at_s=0.0, what="begin", trial=None, detail={})
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(BadInputError):
        run.action(begin)
    run = RunDirectory.create(tmp_path / "run", info())
    run.action(begin)
    writer = run.trial("01-off")
    shutil.rmtree(tmp_path / "run")
    calls: list[Callable[[], object]] = [
        lambda: run.action(begin),
        lambda: run.write("result.json", b"{}"),
        lambda: writer.request(request(1)),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="removed or made read-only") as caught:
            call()
        assert caught.value.exit_status == 50


def test_documents_have_one_form() -> None:
    document = {"b": 1.0, "a": [1, 2], "none": None}
    assert encode_document(document) == encode_document(msgspec.json.decode(encode_document(document)))


def test_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with (
        exclusive("http://x:1", about="run A"),
        exclusive("http://x:2", about="run B"),
        pytest.raises(RefusedError) as caught,
        exclusive("http://x:1", about="run C"),
    ):
        pass
    assert f"pid {os.getpid()}: run A" in str(caught.value)
    with exclusive("http://x:1", about="run D"):
        pass


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("x", "--api-key", "sk-1", "-c", "4"), ("x", "--api-key", "***", "-c", "4")),
        (("x", "--api-key=sk-1"), ("x", "--api-key=***")),
        (("HF_TOKEN=abc", "x"), ("HF_TOKEN=***", "x")),
        (("x", "-hft", "abc"), ("x", "-hft", "***")),
        (("x", "--max-num-batched-tokens", "8192"), ("x", "--max-num-batched-tokens", "8192")),
        (("x", "--speculative-num-draft-tokens", "4"), ("x", "--speculative-num-draft-tokens", "4")),
        (("x", "--tokenizer", "m"), ("x", "--tokenizer", "m")),
        (("x", "--api-key-file", "/etc/key"), ("x", "--api-key-file", "/etc/key")),
        (("x", "http://u:p@h/"), ("x", "http://***@h/")),
        (("x", "Authorization: Bearer sk"), ("x", "Authorization: Bearer ***")),
    ],
)
def test_secrets_are_hidden_and_nothing_else(words: tuple[str, ...], shown: tuple[str, ...]) -> None:
    assert redact.command(words) == shown


def test_environment_is_redacted() -> None:
    assert redact.environment({"HF_TOKEN": "a", "CUDA_VISIBLE_DEVICES": "0", "DB": "pg://u:p@h"}) == {
        "HF_TOKEN": "***",
        "CUDA_VISIBLE_DEVICES": "0",
        "DB": "pg://***@h",
    }


def test_a_log_is_scrubbed(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", info())
    writer = run.trial("01-off")
    writer.log.write_bytes(b"args: --api-key sk-very-secret\nplain \xff line\n")
    writer.scrub_log(redact.Redactor.of(("x",), {}))
    assert b"sk-very-secret" in writer.log.read_bytes()  # nothing is known to be secret
    writer.scrub_log(redact.Redactor.of(("x", "--api-key", "sk-very-secret"), {}))
    assert b"sk-very-secret" not in writer.log.read_bytes()
    assert b"plain \xff line\n" in writer.log.read_bytes()
    assert [path.name for path in writer.path.iterdir()] == ["server.log"]


def test_only_a_run_in_which_nothing_was_done_is_discarded(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", info())
    run.discard_if_empty()
    assert not (tmp_path / "run").exists()
    run = RunDirectory.create(tmp_path / "run", info())
    run.action(Action(at="", at_s=0.0, what="begin"))
    run.discard_if_empty()
    assert {entry.name for entry in (tmp_path / "run").iterdir()} == {"run.json", "actions.jsonl", "trials"}
    run = RunDirectory.create(tmp_path / "second", info())
    run.trial("01-off").text("x", "y")
    run.discard_if_empty()
    assert (tmp_path / "second/trials/01-off/x").exists()
