"""`why.json` of trials whose server did not start or died: when it is written, and what the result tells of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tune.test_trial import D4, D8, OFF, Lab, speed

from draftmark.errors import FailedError, StartError, StorageError
from draftmark.model import Arm, Evidence, Identity, Trial, TrialStatus
from draftmark.ports import Failure
from draftmark.run.directory import RunDirectory
from draftmark.run.records import Action, RunRecord, TrialRecord, WhyRecord, encode_document
from draftmark.run.redact import Redactor
from draftmark.testing.fakes import FakeClient, FakeSupervisor, FakeWorld
from draftmark.tune import deaths
from draftmark.tune.result import derive


class FakePostMortem:
    """ports.PostMortem that remembers what it was asked, and when."""

    def __init__(self, world: FakeWorld, fault: Exception | None = None, cause: str = "config-invalid") -> None:
        self.world = world
        self.fault = fault
        self.cause = cause
        self.asked: list[Failure] = []

    def watch(self) -> None:
        self.world.events.append("watch")

    def examine(self, failure: Failure) -> dict[str, object]:
        self.world.events.append("examine")
        self.asked.append(failure)
        if self.fault is not None:
            raise self.fault
        return {
            "schema": "draftmark.why/1",
            "cause": self.cause,
            "confidence": "certain",
            "summary": "It was refused: key sk-hidden-1.",
            "evidence": ({"file": "server.log", "line": 2, "time": None, "text": "fatal sk-hidden-1"},),
            "phase": "startup",
        }


def lab_with(tmp_path: Path, fault: Exception | None = None, **world: Any) -> tuple[Lab, FakePostMortem]:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, **world))
    lab.post_mortem = found = FakePostMortem(lab.world, fault)
    lab.redactor = Redactor(values=("sk-hidden-1", "config-invalid"))
    return lab, found


def arms(lab: Lab) -> dict[str, dict[str, Any]]:
    return {arm["arm"]: arm for arm in derive(lab.directory.load())["arms"]}


def test_an_arm_that_does_not_start_is_examined_before_it_is_stopped(tmp_path: Path) -> None:
    lab, post_mortem = lab_with(tmp_path, starts=lambda arm: arm != D8)
    lab.sweep().run()
    events = lab.world.events
    at = events.index("start d8")
    assert events[at - 1 : at + 3] == ["watch", "start d8", "examine", "stop"]
    (asked,) = post_mortem.asked
    assert (asked.exit_code, asked.alive, asked.refusal) == (1, False, None)
    assert asked.because == "the server ended with exit status 1 before it was ready"
    path = tmp_path / "run" / "trials" / "03-d8" / "why.json"
    assert "sk-hidden-1" not in path.read_text()
    assert json.loads(path.read_text())["cause"] == "config-invalid"  # a name of our own, whatever a secret spells
    assert arms(lab)["d8"]["why"] == "trials/03-d8/why.json"
    assert arms(lab)["d4"]["why"] is None
    trial = next(t for t in derive(lab.directory.load())["trials"] if t["arm"] == "d8")
    assert trial["why"] == {
        "path": "trials/03-d8/why.json",
        "cause": "config-invalid",
        "confidence": "certain",
        "summary": "It was refused: key ***.",
        "evidence": {"file": "server.log", "line": 2, "time": None, "text": "fatal ***"},
    }


def test_a_death_in_the_measurement_is_examined_and_every_one_of_them(tmp_path: Path) -> None:
    lab, post_mortem = lab_with(tmp_path, dies_in=frozenset({"d4"}))
    lab.sweep().run()
    assert [failure.exit_code for failure in post_mortem.asked] == [1, 1, 1]
    assert "died with exit status 1 during copy@1" in post_mortem.asked[0].because
    assert arms(lab)["d4"]["why"] == "trials/08-d4/why.json"  # the latest


def test_a_server_that_came_back_had_died(tmp_path: Path) -> None:
    lab, post_mortem = lab_with(tmp_path)
    world = lab.world

    class Restarting(list[str]):
        def append(self, event: str) -> None:
            super().append(event)
            if event == "measure copy@1" and self.count(event) == 1:
                world.pid += 1

    world.events = Restarting()
    lab.sweep().run()
    (asked,) = post_mortem.asked
    assert "the server restarted (pid 101 became 102)" in asked.because
    assert (asked.alive, asked.exit_code) == (False, None)


def test_a_crash_at_the_first_token_is_seen_though_it_takes_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, post_mortem = lab_with(tmp_path)
    gone_at: list[float] = []

    def crash(_self: object) -> None:
        gone_at.append(lab.world.clock.now_s + 0.12)
        raise StartError("the connection was reset")

    def identity(self: FakeSupervisor) -> Identity | None:
        if gone_at and lab.world.clock.now_s >= gone_at[-1]:
            lab.world.running = None
        return seen(self)

    seen = FakeSupervisor.identity
    monkeypatch.setattr(FakeClient, "generate_one", crash)
    monkeypatch.setattr(FakeSupervisor, "identity", identity)
    with pytest.raises(FailedError):
        lab.sweep().run()
    (asked,) = post_mortem.asked
    assert (asked.alive, asked.exit_code, asked.because) == (False, 1, "the connection was reset")


@pytest.mark.parametrize(
    "world", [{"silent_off": frozenset({"d4"})}, {"cpu_beside": 1.0}, {"accept": 0.0}], ids=str
)
def test_what_did_not_die_is_not_examined(tmp_path: Path, world: dict[str, Any]) -> None:
    lab, post_mortem = lab_with(tmp_path, **world)
    lab.sweep().run()
    assert any(r.trial.status is TrialStatus.VOID for r in lab.directory.load().trials)
    assert post_mortem.asked == []
    assert not list((tmp_path / "run").rglob("why.json"))
    assert {arm["why"] for arm in arms(lab).values()} == {None}


def test_a_post_mortem_that_fails_is_noted_and_the_run_goes_on(tmp_path: Path) -> None:
    lab, _ = lab_with(tmp_path, RuntimeError("no rule for sk-hidden-1"), starts=lambda arm: arm != D8)
    lab.sweep().run()
    result = derive(lab.directory.load())
    assert result["complete"] is True
    assert arms(lab)["d8"]["why"] is None
    assert "why the server of 03-d8 failed was not found out (RuntimeError: no rule for ***)" in result["warnings"]


def test_a_document_that_cannot_be_written_as_json_is_a_failure_too(tmp_path: Path) -> None:
    lab, post_mortem = lab_with(tmp_path, starts=lambda arm: arm != D8)
    post_mortem.cause = "\udcff"
    lab.sweep().run()
    assert any("was not found out" in warning for warning in derive(lab.directory.load())["warnings"])


def test_watching_that_fails_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: object) -> None:
        raise OSError("no more processes")

    lab, _ = lab_with(tmp_path)
    monkeypatch.setattr(FakePostMortem, "watch", broken)
    lab.sweep().run()
    assert arms(lab)["d4"]["status"] == "measured"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"schema": "draftmark.why/1", "cause": "conf', "trials/03-d8/why.json cannot be read (torn or damaged"),
        (b"\xff\xfe", "trials/03-d8/why.json cannot be read (torn or damaged"),
        (b'{"schema":"draftmark.why/9","cause":"a","confidence":"b","summary":"c"}', "schema draftmark.why/9"),
        (None, "trials/03-d8/why.json is gone"),
    ],
)
def test_a_lost_or_torn_document_is_told_and_not_fatal(tmp_path: Path, content: bytes | None, told: str) -> None:
    lab, _ = lab_with(tmp_path, starts=lambda arm: arm != D8)
    lab.sweep().run()
    before = encode_document(derive(lab.directory.load()))
    path = tmp_path / "run" / "trials" / "03-d8" / "why.json"
    whole = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    result = derive(RunDirectory.open(tmp_path / "run").load())
    assert any(told in warning for warning in result["warnings"]), result["warnings"]
    assert arms(lab)["d8"]["why"] is None
    assert arms(lab)["d8"]["because"] == "fatal: out of everything"
    path.write_bytes(whole)
    assert encode_document(derive(lab.directory.load())) == before


def test_a_baseline_that_does_not_start_says_why_and_leaves_a_result(tmp_path: Path) -> None:
    lab, _ = lab_with(tmp_path, starts=lambda arm: arm != OFF)
    with pytest.raises(FailedError) as caught:
        lab.sweep().run()
    assert caught.value.evidence[0] == "config-invalid (certain): It was refused: key ***."
    assert [trial.number for trial in lab.after] == [1]


def test_a_full_disk_is_still_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from draftmark.run.directory import TrialWriter

    def full(*_: object) -> None:
        raise StorageError("full")

    lab, _ = lab_with(tmp_path, starts=lambda arm: arm != D8)
    monkeypatch.setattr(TrialWriter, "data", full)
    with pytest.raises(StorageError):
        lab.sweep().run()
    assert lab.world.running is None


def test_an_earlier_try_of_the_same_slot_is_forgotten(tmp_path: Path) -> None:
    info = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed)).info
    trial = Trial(number=2, round=1, arm=D4, status=TrialStatus.MEASURED, started_at="t", total_s=1.0)
    acts = [
        Action(at="", at_s=0, what=what, trial=2, detail={})
        for what in ("start", "why", "start", "why-failed", "start")
    ]
    record = RunRecord(info=info, actions=tuple(acts), trials=(TrialRecord(trial=trial, requests=()),))
    assert list(deaths.untold(record)) == []


def test_a_measured_trial_has_no_death() -> None:
    why = WhyRecord(
        schema="draftmark.why/1",
        cause="x",
        confidence="likely",
        summary="s",
        evidence=(Evidence(file="f", line=None, time=None, text="t"),),
    )
    trial = Trial(number=1, round=1, arm=Arm(0), status=TrialStatus.MEASURED, started_at="t", total_s=1.0)
    assert deaths.told(TrialRecord(trial=trial, requests=(), why=why)) is None
