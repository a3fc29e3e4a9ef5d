"""What somebody else does to the service during a run: its configuration changed, it stopped, it restarted."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.tune.test_trial import D4, Lab, speed

from draftmark.errors import FailedError, RefusedError, UnrestoredError
from draftmark.model import Arm, Hand, Intervention
from draftmark.report.html import render_html
from draftmark.report.markdown import render_markdown
from draftmark.testing.fakes import FakeWorld
from draftmark.tune.compare import compare
from draftmark.tune.result import derive
from draftmark.tune.startup import InterventionError


def result(lab: Lab) -> dict[str, Any]:
    return derive(lab.directory.load())


@pytest.fixture
def of(tmp_path: Path) -> Any:
    return lambda **world: Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, serves_before=True, **world))


def test_what_somebody_starts_before_a_trial_is_not_stopped_by_it(of: Any) -> None:
    """Its requests are not cut: it is put back when it is idle."""
    lab = of()
    lab.world.running = Arm(0)
    lab.world.hand = Intervention(Hand.STARTED, "somebody else has started fake.service", "a line")
    with pytest.raises(InterventionError, match="put back"):
        lab.sweep().trials.run(lab.info.schedule[0], lab.directory.trial("01-off"))
    assert "stop" not in lab.world.events
    assert not any(event.startswith("start") for event in lab.world.events)
    assert not lab.directory.load().trials


@pytest.mark.parametrize("seen_at", ["start d4", "restore"])
def test_a_service_that_was_changed_gives_no_verdict(of: Any, seen_at: str) -> None:
    """Also when it is noticed only after the last trial."""
    lab = of(altered_at=frozenset({seen_at}))
    with pytest.raises(FailedError, match=r"configuration|changed the service") as raised:
        lab.sweep().run()
    assert raised.value.exit_status == 50
    assert raised.value.evidence == ("/etc/fake.conf was changed",)
    assert "restore" in lab.world.events
    assert lab.world.running is not None
    document = result(lab)
    assert document["altered"] == ["/etc/fake.conf was changed"]
    assert document["exit_status"] == 50
    assert document["choice"]["recommended"] is None
    assert document["axes"] == []
    assert {arm["status"] for arm in document["arms"] if arm["trials"]} == {"void"}
    assert not any(arm["axes"] or arm["latency"] or arm["throughput"] for arm in document["arms"])
    assert not document["complete"]
    for page in (document["verdict"], render_markdown(document), render_html(document, title="x")):
        assert "changed the service" in page
        assert "No verdict" in page
        assert "fake.conf" in page


def test_a_run_whose_service_was_changed_is_neither_resumed_nor_compared(of: Any) -> None:
    lab = of(altered_at=frozenset({"start d8"}))
    with pytest.raises(FailedError):
        lab.sweep().run()
    lab.world.altered_at = frozenset()
    done = len(lab.world.events)
    with pytest.raises(RefusedError, match="another service"):
        lab.sweep().run()
    assert len(lab.world.events) == done
    with pytest.raises(RefusedError, match="was changed during one of these runs"):
        compare(result(lab), result(lab))


def test_a_change_is_on_record_before_the_service_is_put_back(of: Any) -> None:
    """A Draftmark that is killed then leaves no verdict either."""
    lab = of(altered_at=frozenset({"start d4"}))
    with pytest.raises(FailedError):
        lab.sweep().run()
    whats = [action.what for action in lab.directory.load().actions]
    assert whats.index("altered") < whats.index("restored")


def test_a_service_that_does_not_come_back_after_a_change_is_not_said_to_be_as_it_was(of: Any) -> None:
    lab: Lab = of(altered_at=frozenset({"restore"}))
    lab.world.hangs = lambda arm: not arm.depth and lab.world.events[-1] == "restore"
    sweep = lab.sweep()
    ends = dataclasses.replace(sweep.ends, ready_s=1.0)
    with pytest.raises(UnrestoredError) as raised:
        dataclasses.replace(sweep, ends=ends).run()
    assert "as it was" not in raised.value.what
    assert "somebody else has changed" in raised.value.what
    assert "/etc/fake.conf was changed" in raised.value.evidence
    assert result(lab)["altered"]


def test_a_service_that_somebody_stops_is_left_stopped(of: Any) -> None:
    lab = of(hands_in={"d4": Hand.STOPPED})
    with pytest.raises(InterventionError) as raised:
        lab.sweep().run()
    assert raised.value.exit_status == 30
    assert "left so" in raised.value.what
    starts = [event for event in lab.world.events if event.startswith("start")]
    assert starts == ["start off", "start d4"]
    assert lab.world.running is None
    document = result(lab)
    trial = document["trials"][1]
    assert trial["status"] == "void"
    assert trial["because"] == "somebody else has stopped fake.service during copy@1 (systemd: Stopping fake)"
    assert trial["why"] is None
    assert any(said.startswith("the run ended early: somebody else has stopped") for said in document["warnings"])
    assert not document["complete"]


def test_a_restart_by_somebody_costs_one_trial_and_the_run_goes_on(of: Any) -> None:
    lab = of(hands_in={"d4": Hand.RESTARTED})
    hands: dict[str, Hand] = lab.world.hands_in
    dataclasses.replace(lab.sweep(), after=lambda trial: hands.clear() if trial.arm == D4 else None).run()
    document = result(lab)
    assert [trial["status"] for trial in document["trials"]].count("void") == 1
    assert document["complete"]
    assert document["choice"]["recommended"] == "d4"
    assert any(said.startswith("trial 2 is void, and the run went on:") for said in document["warnings"])
    assert lab.world.running is not None


def test_a_service_that_somebody_keeps_restarting_is_given_up(of: Any) -> None:
    lab = of(hands_in=dict.fromkeys(("off", "d4", "d8"), Hand.RESTARTED))
    lab.sweep().run()
    document = result(lab)
    assert [(trial["status"], trial["disturbed"]) for trial in document["trials"]] == [("void", [])] * 3
    assert "stopped early: 3 trials in a row were disturbed" in document["warnings"]
    assert document["exit_status"] == 40


def test_a_service_that_is_stopped_or_started_while_none_measures_ends_the_run_too(of: Any) -> None:
    for hand, what in ((Hand.STOPPED, "left so"), (Hand.STARTED, "put back")):
        lab = of()
        sweep = lab.sweep()

        def meddle(_trial: object, hand: Hand = hand, lab: Lab = lab) -> None:
            lab.world.hand = Intervention(hand, f"somebody else has {hand.value} fake.service", "a line")

        with pytest.raises(InterventionError, match=what):
            dataclasses.replace(sweep, after=meddle).run()
        assert len([event for event in lab.world.events if event.startswith("start")]) == 1
        shutil.rmtree(lab.directory.path)
