"""A run with knobs, against a world that a test owns: what is asked for, what is kept, and who shares it."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from draftmark.errors import Interrupted
from draftmark.model import Arm, Knob, Message, Prompt, Refusal, Workload
from draftmark.run.directory import RunDirectory
from draftmark.run.records import FORECAST, OTHERS, RunInfo
from draftmark.testing.fakes import FakeEngine, FakeWorld, NullObserver, fake_ends
from draftmark.testing.loads import FakeLoad
from draftmark.tune.knobs.run import Setting, Vet
from draftmark.tune.knobs.sharing import KnobStudy
from draftmark.tune.measuring import Axis, Limits
from draftmark.tune.result import derive
from draftmark.tune.runner import Journal, Sweep
from draftmark.tune.steering import steer
from draftmark.tune.trial import TrialRunner

CHAT = Workload("chat", tuple(Prompt(f"c{i}", (Message("user", "x"),), 48) for i in range(4)))
MEM = Knob(name="mem", flag="--mem", levels=("0.8", "0.82", "0.84", "0.86", "0.88", "0.9"), runs=1)
SLOTS = Knob(name="slots", flag="--slots", levels=("16", "32", "64", None), runs=3)
DEPTHS = tuple(Arm(k) for k in (0, 1, 4))


def truth(arm: Arm, _workload: str, concurrency: int) -> float:
    """Mem is worth 25 % under load, at 0.88."""
    length = math.fsum(0.8**j for j in range(arm.depth + 1))
    mem = MEM.levels.index(dict(arm.knobs).get("--mem", "0.82"))
    load = math.exp(-0.025 * (mem - 4) ** 2) if concurrency > 1 else 1.0
    return float(100 * concurrency**0.8 * load * length / (1 + 0.12 * arm.depth))


@dataclasses.dataclass
class Notebook:
    """A study in memory."""

    kept: list[Setting] = dataclasses.field(default_factory=list)
    of_others: tuple[Setting, ...] = ()
    announced: list[int | None] = dataclasses.field(default_factory=list)

    def keep(self, own: Sequence[Setting]) -> None:
        if [each.status for each in own] == ["running"]:
            self.announced.append(own[0].number)
        else:
            self.kept = list(own)

    def others(self) -> Sequence[Setting]:
        return self.of_others


class Lab:
    """A run with two knobs in a fake world."""

    def __init__(
        self,
        path: Path,
        *,
        arms: tuple[Arm, ...] = (Arm(0),),
        vet: Vet | None = None,
        study: KnobStudy | None = None,
        knobs: tuple[Knob, ...] = (MEM, SLOTS),
        budget: int = 9,
        **world: Any,
    ) -> None:
        self.world = FakeWorld(truth_tok_s=truth, **{"noise": 0.005, "chain": 0.8, **world})
        self.vet, self.study = vet, study
        info = RunInfo(
            draftmark="0", service="cmd:fake-server", engine="fake", engine_version=None, command=("fake-server",),
            redacted=False, host={}, started_at=self.world.clock.now_iso(), settings={}, workloads=(CHAT,),
            concurrency=(1, 8), rounds=2, tie_margin=0.02, baseline=Arm(0), arms=arms, refused={}, schedule=(),
            search=FORECAST, knobs=knobs, budget=budget,
        )  # fmt: skip
        self.directory = RunDirectory.create(path, info)
        self.told: list[str] = []

    def sweep(self) -> Sweep:
        journal = Journal(self.directory, self.world.clock)
        supervisor, drain, ends = fake_ends(self.world)
        return Sweep(
            directory=self.directory,
            trials=TrialRunner(
                engine=FakeEngine(self.world),
                supervisor=supervisor,
                drain=drain,
                load=FakeLoad(self.world),
                clock=self.world.clock,
                limits=Limits(max_foreign_cores=0.25),
                axes=tuple(Axis(workload=CHAT, concurrency=c, warmup=0, repeat=4) for c in (1, 8)),
                observer=NullObserver(),
                act=journal.write,
                port_holder=lambda _url: None,
            ),
            ends=ends,
            journal=journal,
            after=lambda _trial: None,
            tell=self.told.append,
            vet=self.vet,
            study=self.study,
        )

    def run(self) -> dict[str, Any]:
        self.sweep().run()
        return derive(self.directory.load())

    @property
    def tried(self) -> list[Arm]:
        return [r.trial.arm for r in self.directory.load().trials]


def test_without_depths_the_knobs_are_searched_where_it_runs(tmp_path: Path) -> None:
    notebook = Notebook()
    lab = Lab(tmp_path / "run", study=notebook)
    result = lab.run()
    assert {arm.depth for arm in lab.tried} == {0}
    assert (lab.tried[0], lab.tried[-1]) == (Arm(0), Arm(0))
    (mem, slots) = result["knobs"]
    assert (mem["dropped"], slots["dropped"]) == (False, True)
    assert (mem["runs"], slots["runs"]) == ("0.82", None)
    assert mem["throughput"]["low"] > 1.05
    assert result["exit_status"] == 10
    (recommended,) = [arm for arm in result["arms"] if arm["arm"] == result["choice"]["recommended"]]
    best = truth(Arm(0, (("--mem", "0.88"),)), "chat", 8)
    (chosen,) = {arm for arm in lab.tried if arm.name == recommended["arm"]}
    assert truth(chosen, "chat", 8) > 0.96 * best
    assert not any("--slots" in dict(arm.knobs) and len(arm.knobs) > 1 for arm in lab.tried)
    assert len(result["trials"]) - 2 <= 9 + 2
    assert [s.levels["mem"] for s in notebook.kept if s.status == "measured"][:3] == ["0.82", "0.8", "0.9"]
    tried = [r.trial for r in lab.directory.load().trials if r.trial.arm.knobs]
    assert notebook.announced == [trial.number for trial in tried]
    assert derive(RunDirectory.open(lab.directory.path).load()) == result


def test_with_depths_the_best_of_them_comes_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", arms=DEPTHS)
    result = lab.run()
    settings = [arm for arm in lab.tried if arm.knobs]
    assert {arm.depth for arm in settings} == {4}
    first = lab.tried.index(settings[0])
    assert not any(arm.knobs for arm in lab.tried[:first])
    assert result["knobs"][0]["at_depth"] == 4
    assert result["exit_status"] == 10
    assert "mem=" in result["choice"]["recommended"]


def test_what_cannot_start_is_never_started_and_said(tmp_path: Path) -> None:
    def vet(arm: Arm) -> Refusal | None:
        return Refusal("does-not-fit", "too little") if dict(arm.knobs).get("--mem", "0") > "0.86" else None

    notebook = Notebook()
    lab = Lab(tmp_path / "run", vet=vet, study=notebook)
    result = lab.run()
    assert max(dict(arm.knobs).get("--mem", "0") for arm in lab.tried) == "0.86"
    assert all(arm.knobs == () or arm.depth == 0 for arm in lab.tried)
    refused = [arm for arm in result["arms"] if arm["status"] == "refused"]
    assert [arm["because"] for arm in refused] == ["too little"] * len(refused)
    assert "off-mem=0.9" in {arm["arm"] for arm in refused}
    assert {s.because for s in notebook.kept if s.status == "left"} == {"too little"}


def test_a_setting_that_does_not_start_is_not_tried_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", starts=lambda arm: dict(arm.knobs).get("--mem", "0") < "0.88")
    result = lab.run()
    assert [dict(a.knobs).get("--mem") for a in lab.tried].count("0.9") == 1
    assert result["complete"] is True
    assert {arm["status"] for arm in result["arms"] if arm["arm"] == "off-mem=0.9"} == {"did-not-start"}


@pytest.mark.parametrize("at", [12])
def test_an_interrupted_run_goes_on_as_it_would_have(tmp_path: Path, at: int) -> None:
    whole = Lab(tmp_path / "whole", noise=0.0)
    whole.run()
    cut = Lab(tmp_path / "cut", noise=0.0)
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
    result = cut.run()
    assert cut.tried == whole.tried
    assert result["complete"] is True
    assert steer(cut.directory.load()).slot is None


def test_what_others_have_measured_is_not_measured_again(tmp_path: Path) -> None:
    base = truth(Arm(0), "chat", 8)
    others = tuple(
        Setting(
            number=None, depth=0, levels={"mem": mem, "slots": None}, status="measured",
            ratios=(1.0, truth(Arm(0, (("--mem", mem),)), "chat", 8) / base),
        )
        for mem in ("0.8", "0.9")
    )  # fmt: skip
    lab = Lab(tmp_path / "run", study=Notebook(of_others=others))
    result = lab.run()
    assert "0.8" not in {dict(arm.knobs).get("--mem") for arm in lab.tried}
    assert result["knobs"][0]["chance"] > 0.9
    assert [a.what for a in lab.directory.load().actions].count(OTHERS) == 1


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="Optuna is not installed")
def test_two_runs_share_a_study(tmp_path: Path) -> None:
    from draftmark.tune.knobs.optuna_study import OptunaStudy, study_name

    url = f"sqlite:///{tmp_path / 'study.db'}"

    def study(run: str) -> OptunaStudy:
        return OptunaStudy(url, study_name("fake", (MEM,)), (MEM,), 2, run)

    one = Lab(tmp_path / "one", study=study("one"), knobs=(MEM,), budget=3)
    one.run()
    two = Lab(tmp_path / "two", study=study("two"), knobs=(MEM,), budget=3)
    result = two.run()
    assert len(two.tried) < len(one.tried)
    again = {arm for arm in two.tried if arm.knobs} & {arm for arm in one.tried if arm.knobs}
    assert len(again) <= 1  # the choice, to prove it here
    assert result["complete"] is True
