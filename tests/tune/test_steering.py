"""A run by forecast, against a world that a test owns: what is asked for, and that the records alone say so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmark.errors import Interrupted, RefusedError
from draftmark.model import Arm, Fit, FitArm, Foreign, Message, Prompt, Refusal, TrialStatus, Workload
from draftmark.run.directory import RunDirectory
from draftmark.run.records import FORECAST, RunInfo, RunRecord, fitted
from draftmark.testing.fakes import FakeEngine, FakeSupervisor, FakeWorld, NullObserver, fake_ends
from draftmark.testing.loads import FakeLoad
from draftmark.tune.foreign import Watch
from draftmark.tune.measuring import Axis, Limits
from draftmark.tune.plan import forecast_trials
from draftmark.tune.result import derive
from draftmark.tune.runner import Journal, Sweep
from draftmark.tune.steering import steer
from draftmark.tune.trial import TrialRunner

OFF = Arm(0)
DEPTHS = tuple(Arm(k) for k in (0, 1, 2, 3, 4, 5, 6, 8, 10))
CHAT = Workload("chat", tuple(Prompt(f"c{i}", (Message("user", "x"),), 200) for i in range(4)))

Truth = Callable[[Arm, str, int], float]


def curve(chance: float = 0.8, draft: float = 0.06, verify: float = 0.02) -> Truth:
    """Tokens a second by accept length and a round that grows with depth and requests."""

    def tok_s(arm: Arm, _workload: str, concurrency: int) -> float:
        k = arm.depth
        length = math.fsum(chance**j for j in range(k + 1))
        time = 1.0 + (0.05 if k else 0.0) + draft * k + verify * k * concurrency / 4
        return float(100.0 * concurrency**0.8 * length / time)

    return tok_s


def level(_arm: Arm, _workload: str, concurrency: int) -> float:
    return 100.0 * concurrency


class Lab:
    """A world, a run directory, and a run by forecast in it."""

    def __init__(
        self,
        path: Path,
        world: FakeWorld,
        *,
        arms: tuple[Arm, ...] = DEPTHS,
        concurrency: tuple[int, ...] = (1,),
        rounds: int = 2,
        refused: dict[str, Refusal] | None = None,
        live: bool = False,
        keeps: Arm | None = None,
        learn: Callable[[Path], dict[str, object] | None] = lambda _log: None,
    ) -> None:
        self.world = world
        self.info = RunInfo(
            draftmark="0", service="cmd:fake-server", engine="fake", engine_version=None, command=("fake-server",),
            redacted=False, host={}, started_at=world.clock.now_iso(), settings={}, workloads=(CHAT,),
            concurrency=concurrency, rounds=rounds, tie_margin=0.02, baseline=OFF, arms=arms, refused=refused or {},
            schedule=(), search=FORECAST,
        )  # fmt: skip
        self.directory = RunDirectory.create(path, self.info)
        self.live, self.keeps, self.learn = live, keeps, learn
        self.told: list[str] = []
        self.foreign: Foreign | None = None
        if live:
            world.serves_before, world.running = True, OFF

    def sweep(self) -> Sweep:
        world = self.world
        journal = Journal(self.directory, world.clock)
        supervisor, drain, ends = fake_ends(world)
        watch = Watch(clock=world.clock, policy=self.foreign) if self.foreign is not None else None
        return Sweep(
            directory=self.directory,
            trials=TrialRunner(
                engine=FakeEngine(world),
                supervisor=supervisor,
                drain=drain,
                load=FakeLoad(world),
                clock=world.clock,
                limits=Limits(max_foreign_cores=0.25),
                axes=tuple(
                    Axis(workload=CHAT, concurrency=c, warmup=0, repeat=1 if c == 1 else 4)
                    for c in self.info.concurrency
                ),
                observer=NullObserver(),
                act=journal.write,
                port_holder=lambda _url: None,
                watch=watch,
            ),
            ends=dataclasses.replace(ends, watch=watch),
            journal=journal,
            after=lambda _trial: None,
            keeps=self.keeps is not None,
            to_keep=lambda: self.keeps,
            live=self.live,
            learn=self.learn,
            tell=self.told.append,
        )

    def run(self) -> dict[str, Any]:
        self.sweep().run()
        return derive(self.directory.load())

    @property
    def started(self) -> list[str]:
        return [event.partition(" ")[2] for event in self.world.events if event.startswith("start ")]


def world(truth: Truth = level, **more: Any) -> FakeWorld:
    return FakeWorld(truth_tok_s=truth, **{"noise": 0.01, "chain": 0.8, **more})


def arms_of(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {arm["arm"]: arm for arm in result["arms"]}


def test_few_starts_find_the_best_depth_and_the_rest_is_forecast(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve()), concurrency=(1, 8))
    result = lab.run()
    best = max(DEPTHS, key=lambda arm: curve()(arm, "chat", 1))
    truth = {arm.name: curve()(arm, "chat", 1) for arm in DEPTHS}
    assert result["exit_status"] == 10
    assert truth[result["choice"]["recommended"]] > 0.96 * truth[best.name]
    assert (lab.started[0], lab.started[-1]) == ("off", "off")
    assert result["restarts"] == len(lab.started) <= 7
    assert result["complete"] is True
    predicted = [arm for arm in result["arms"] if arm["status"] == "predicted"]
    assert len(predicted) == len(DEPTHS) - len(set(lab.started))
    for arm in predicted:
        assert arm["latency"]["tok_s_low"] <= truth[arm["arm"]] <= arm["latency"]["tok_s_high"], arm["arm"]
        assert arm["throughput"]["low"] <= arm["throughput"]["ratio"] <= arm["throughput"]["high"]
        assert arm["accept_len_low"] <= sum(0.8**j for j in range(arm["depth"] + 1)) <= arm["accept_len_high"]
    assert [step["arm"] for step in result["steps"]] == lab.started
    assert lab.told == [step["because"] for step in result["steps"]] + [result["stop"]]
    (first, *_) = [step for step in result["steps"] if step["error"]]
    assert first["error"]["1"] == pytest.approx(
        first["predicted"]["1"]["tok_s"] / first["measured"]["1"] - 1, abs=1e-4
    )


def before(record: RunRecord, number: int) -> RunRecord:
    """As it was before that trial was asked for."""
    cut = next(i for i, a in enumerate(record.actions) if a.what == "next" and a.trial == number)
    kept = tuple(r for r in record.trials if r.trial.number < number)
    return dataclasses.replace(record, actions=record.actions[:cut], trials=kept)


@pytest.mark.no_cover
def test_the_records_alone_say_what_comes_next(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve(), noise=0.03), concurrency=(1, 8))
    lab.run()
    record = RunDirectory.open(lab.directory.path).load()
    for trial in (r.trial for r in record.trials):
        asked = steer(before(record, trial.number)).slot
        assert asked is not None
        assert (asked.number, asked.arm, asked.round) == (trial.number, trial.arm, trial.round)
    assert steer(record).slot is None
    assert derive(record) == derive(lab.directory.load())
    events = list(lab.world.events)
    lab.sweep().run()
    assert lab.world.events == events  # a run that is over is left as it is


@pytest.mark.no_cover
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupted_run_goes_on_as_it_would_have(tmp_path: Path, at: int) -> None:
    whole = Lab(tmp_path / "whole", world(curve(), noise=0.0))
    whole.run()
    cut = Lab(tmp_path / "cut", world(curve(), noise=0.0))
    measured = 0

    class Cut(FakeLoad):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal measured
            measured += 1
            if measured == at:
                raise Interrupted(2)
            return super().__call__(*args, **kwargs)

    first = cut.sweep()
    with pytest.raises(Interrupted):
        dataclasses.replace(first, trials=dataclasses.replace(first.trials, load=Cut(cut.world))).run()
    assert cut.world.running is None
    result = cut.run()

    def trials(lab: Lab) -> list[tuple[int, Arm, int]]:
        return [(r.trial.number, r.trial.arm, r.trial.round) for r in lab.directory.load().trials]

    assert trials(cut) == trials(whole)
    assert result["complete"] is True
    assert not cut.directory.load().strays


def test_what_does_not_fit_is_never_started(tmp_path: Path) -> None:
    why = Refusal("does-not-fit", "does not fit: nothing is left for KV")
    lab = Lab(tmp_path / "run", world(curve(0.95)), refused={"d8": why, "d10": why})
    result = lab.run()
    assert not {"d8", "d10"} & set(lab.started)
    assert arms_of(result)["d10"]["status"] == "refused"
    assert arms_of(result)["d10"]["because"] == why.because


def test_a_depth_that_does_not_start_takes_the_deeper_ones_with_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve(0.97, 0.02), starts=lambda arm: arm.depth < 6))
    result = lab.run()
    assert lab.started.count("d6") <= 1
    failed = [name for name in lab.started if int(name.removeprefix("d").replace("off", "0")) >= 6]
    assert len(failed) == 1
    deeper = [a for a in result["arms"] if a["depth"] > int(failed[0][1:])]
    assert all(a["status"] == "refused" and "did not start" in a["because"] for a in deeper)
    assert arms_of(result)[failed[0]]["status"] == "did-not-start"
    assert result["exit_status"] == 10


def test_the_log_of_the_baseline_says_what_fits(tmp_path: Path) -> None:
    deep = tuple(arm for arm in DEPTHS if arm.depth >= 5)
    fit = Fit(
        engine="fake", version=None, calibrated_from="server.log",
        arms=tuple(FitArm(arm=arm, fits=arm not in deep, because=("too little",)) for arm in DEPTHS),
    )  # fmt: skip
    read: list[str] = []

    def learn(log: Path) -> dict[str, object]:
        read.append(f"{log.parent.name}/{log.name}")
        return fitted(fit, {arm.name: Refusal("does-not-fit", "does not fit: too little") for arm in deep})

    # What was refused by the card alone, and fits, is tried.
    lab = Lab(
        tmp_path / "run", world(curve(0.95, 0.02)), learn=learn,
        refused={"d4": Refusal("does-not-fit", "by the card alone")},
    )  # fmt: skip
    result = lab.run()
    assert read == ["01-off/server.log"]
    assert not {arm.name for arm in deep} & set(lab.started)
    assert "d4" in lab.started
    assert {a["arm"] for a in result["arms"] if a["status"] == "refused"} == {arm.name for arm in deep}
    assert arms_of(result)["d4"]["fit"]["fits"] is True
    again = RunDirectory.open(lab.directory.path)
    assert derive(again.load()) == result


def test_a_service_that_runs_is_measured_as_it_runs(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve()), live=True)
    result = lab.run()
    events = lab.world.events
    assert events.index("measure chat@1") < events.index("stop")
    assert "off" not in lab.started
    last = len(events) - 1 - events[::-1].index("measure chat@1")
    assert events.index("restore") < last
    assert lab.world.running == OFF
    assert result["restarts"] == len(lab.started) + 1  # and the service as it was
    assert (result["restored"], result["exit_status"]) == (True, 10)
    first, *_, final = result["trials"]
    assert (first["arm"], first["start_s"], first["stop"]) == ("off", None, None)
    assert (final["arm"], final["start_s"], final["status"]) == ("off", None, "measured")
    assert result["downtime_s"] > 0


def test_what_is_to_be_kept_is_decided_before_the_service_is_put_back(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve()), live=True, keeps=Arm(3))
    result = lab.run()
    assert lab.started[-2:] == ["off", "d3"]
    assert (result["kept"], result["restored"]) == ("d3", False)


def test_a_service_in_use_is_not_even_measured(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve(), inside=2), live=True)
    lab.foreign = Foreign.ABORT
    with pytest.raises(RefusedError, match="others use"):
        lab.run()
    assert not [e for e in lab.world.events if e.startswith(("start", "stop", "measure"))]
    assert lab.world.running == OFF
    assert not list((lab.directory.path / "trials").iterdir())
    assert derive(lab.directory.load())["restarts"] == 0


def test_a_service_that_was_started_otherwise_is_started_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "run", world(curve()), live=True)
    truly = FakeSupervisor.commands
    events = lab.world.events
    monkeypatch.setattr(
        FakeSupervisor, "commands", lambda self: truly(self) if "stop" in events else [("fake-server", "--old")]
    )
    result = lab.run()
    assert (result["trials"][0]["status"], result["trials"][1]["arm"]) == ("void", "off")
    assert "other flags" in result["trials"][0]["because"]
    assert lab.started[0] == "off"


def test_one_that_does_not_draft_is_left_after_one_start(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve(), silent_off=frozenset({"d6"})))
    result = lab.run()
    assert lab.started.count("d6") == 1
    assert arms_of(result)["d6"]["status"] == TrialStatus.VOID
    assert result["exit_status"] == 10


def test_a_busy_host_ends_in_inconclusive(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve(), cpu_beside=1.5))
    result = lab.run()
    assert lab.started == ["off"] * 3
    assert (result["exit_status"], result["choice"]["recommended"]) == (40, None)


def test_an_adaptive_arm_is_measured_since_nothing_foretells_it(tmp_path: Path) -> None:
    adaptive = Arm(3, (("--adaptive", ""),))
    lab = Lab(tmp_path / "run", world(curve()), arms=(*DEPTHS, adaptive))
    result = lab.run()
    assert lab.started.count(adaptive.name) >= 1
    assert arms_of(result)[adaptive.name]["status"] == "measured"


def test_off_stays_where_drafts_cost_more_than_they_bring(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", world(curve(0.3, 0.3), chain=0.3))
    result = lab.run()
    assert (result["exit_status"], result["choice"]["recommended"]) == (0, "off")
    assert len(lab.started) <= 5


@pytest.mark.no_cover
@pytest.mark.slow
def test_no_winner_is_named_where_depth_makes_no_difference(tmp_path: Path) -> None:
    named = 0
    for seed in range(2):
        lab = Lab(tmp_path / str(seed), world(noise=0.03, seed=seed), concurrency=(1, 8))
        result = lab.run()
        named += result["exit_status"] == 10
        assert len(lab.started) <= forecast_trials(len(DEPTHS) - 1, 2)[1]
    assert not named
