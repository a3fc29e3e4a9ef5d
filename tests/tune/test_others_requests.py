"""Requests of others in a measurement: those that have ended, by the counters, and those in flight."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.tune.test_trial import D4, OFF, Lab, speed

from draftmark.cli.reporting import rederive
from draftmark.cli.rig import Rig, looks_away
from draftmark.errors import RefusedError
from draftmark.load.client import LoadRun
from draftmark.model import Activity, Foreign, Trial, TrialStatus
from draftmark.run.records import encode_document
from draftmark.testing.fakes import FakeClient, FakeEngine, FakeWorld, fake_ends
from draftmark.testing.loads import FakeLoad
from draftmark.tune.foreign import Watch, requests_of_others
from draftmark.tune.runner import Sweep


class Beside:
    """A load beside which others ask something, in the first measurement of the given start."""

    def __init__(self, world: FakeWorld, start: int, *, tokens: int = 0, staying: int = 0) -> None:
        self._load, self._world = FakeLoad(world), world
        self._start, self._tokens, self._staying = start, tokens, staying
        self._done = False

    def __call__(self, *args: Any, **more: Any) -> LoadRun:
        run = self._load(*args, **more)
        started = sum(event.startswith("start") for event in self._world.events)
        if started == self._start and not self._done:
            self._done = True
            old = self._world.counted
            self._world.counted = dataclasses.replace(old, output_tokens=(old.output_tokens or 0) + self._tokens)
            self._world.inside = self._staying
        return run


def sweep_beside(lab: Lab, beside: Beside, policy: Foreign) -> Sweep:
    sweep = lab.sweep()

    def they_end(_what: str, _limit_s: float) -> None:
        lab.world.inside = 0

    def after(trial: Trial) -> None:
        rederive(lab.directory, only=trial.number)

    trials = dataclasses.replace(
        sweep.trials,
        load=beside,
        watch=Watch(clock=lab.world.clock, policy=policy),
        drain=dataclasses.replace(sweep.trials.drain, on_wait=they_end),
    )
    return dataclasses.replace(sweep, trials=trials, after=after)


KINDS = [({"tokens": 500}, "others used the server"), ({"staying": 2}, "2 requests in flight that are not ours")]


@pytest.mark.parametrize(("what", "told"), KINDS)
@pytest.mark.parametrize("start", [1, 2])
def test_requests_of_others_in_a_measurement_end_the_run(
    tmp_path: Path, what: dict[str, int], told: str, start: int
) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, serves_before=True), rounds=1, arms=(OFF, D4))
    sweep = sweep_beside(lab, Beside(lab.world, start, **what), Foreign.ABORT)
    with pytest.raises(RefusedError, match="others use the service") as raised:
        sweep.run()
    assert raised.value.exit_status == 30
    assert told in raised.value.evidence[0]
    assert "restore" in lab.world.events
    last = lab.directory.load().trials[-1].trial
    assert (last.number, last.status) == (start, TrialStatus.VOID)
    assert told in (last.because or "")
    # What is on disk is good for a report, and to go on with.
    document = rederive(lab.directory)
    assert not document["complete"]
    lab.sweep().run()
    assert rederive(lab.directory)["complete"]


@pytest.mark.parametrize(("what", "told"), KINDS)
def test_where_others_are_waited_for_the_trial_alone_is_void(
    tmp_path: Path, what: dict[str, int], told: str
) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed), rounds=2, arms=(OFF, D4))
    sweep_beside(lab, Beside(lab.world, 2, **what), Foreign.WAIT).run()
    void = [r.trial for r in lab.directory.load().trials if r.trial.status is TrialStatus.VOID]
    assert [told in (trial.because or "") for trial in void] == [True]


@pytest.mark.parametrize(("what", "_told"), KINDS)
def test_where_others_are_ignored_they_are_measured_beside(
    tmp_path: Path, what: dict[str, int], _told: str
) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed), rounds=1, arms=(OFF, D4))
    sweep_beside(lab, Beside(lab.world, 2, **what), Foreign.IGNORE).run()
    assert {r.trial.status for r in lab.directory.load().trials} == {TrialStatus.MEASURED}


class Lingering(FakeClient):
    """A server that counts a request as running for so many looks after its answer has ended."""

    def __init__(self, world: FakeWorld, looks: int) -> None:
        super().__init__(world)
        self._left = looks

    def activity(self) -> Activity:
        self._left -= 1
        return Activity(running=int(self._left >= 0), queued=0)


@pytest.mark.parametrize(("looks", "theirs"), [(0, False), (4, False), (1000, True)])
def test_an_own_request_that_a_server_still_counts_for_a_moment_is_not_of_others(looks: int, theirs: bool) -> None:
    world = FakeWorld(truth_tok_s=speed)
    assert bool(requests_of_others(Lingering(world, looks), (), world.clock)) is theirs


def test_a_record_of_a_trial_that_ended_in_the_middle_of_a_measurement_is_read(tmp_path: Path) -> None:
    """As earlier versions wrote it: its counters, and no health of the client."""
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed), rounds=1, arms=(OFF, D4))
    lab.sweep().run()
    without: list[dict[str, Any]] = [{"client": {}}, {"counters": {}}, {"disturbed": {}}]
    for missing in without:
        trial = dataclasses.replace(
            lab.directory.load().trials[1].trial, status=TrialStatus.VOID, because="others", **missing
        )
        path = lab.directory.path / "trials" / trial.directory
        (path / "trial.json").write_bytes(encode_document(trial))
        assert rederive(lab.directory)["trials"][1]["status"] == "void"


@pytest.mark.parametrize(
    ("policy", "waits_s"), [(None, 5), (Foreign.IGNORE, 5), (Foreign.ABORT, 77), (Foreign.WAIT, 77)]
)
def test_where_others_are_ignored_a_stop_waits_for_our_own_requests_alone(
    policy: Foreign | None, waits_s: float
) -> None:
    world = FakeWorld(truth_tok_s=speed)
    supervisor, *_ = fake_ends(world)
    rig = Rig(
        engine=FakeEngine(world), supervisor=supervisor, port_holder=lambda _url: None, post_mortem=None, host=None,
        foreign=policy, patience_s=77.0,
    )  # fmt: skip
    assert rig.drain(world.clock, looks_away).timeout_s == waits_s
