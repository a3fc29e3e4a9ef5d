"""A run over several nodes, each a world that a test owns: who runs what, what is lost, and what counts."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from draftmark.errors import FailedError, HostError, Interrupted
from draftmark.model import Arm, Message, NodeEvent, Prompt, Trial, Workload
from draftmark.run.directory import RunDirectory, TrialWriter
from draftmark.run.records import RunInfo, Slot, encode_line
from draftmark.testing.fakes import FakeClock, FakeEngine, FakeWorld, NullObserver, fake_ends
from draftmark.testing.loads import FakeLoad
from draftmark.tune.compare import unlike
from draftmark.tune.job import Failed, Job, Service, Word
from draftmark.tune.lanes import makespan, work
from draftmark.tune.measuring import Axis, Limits
from draftmark.tune.parallel import ParallelSweep
from draftmark.tune.result import derive
from draftmark.tune.runner import Journal
from draftmark.tune.trial import TrialRunner

OFF = Arm(0)
DEPTHS = tuple(Arm(k) for k in range(8))
CHAT = Workload("chat", tuple(Prompt(f"c{i}", (Message("user", "x"),), 40) for i in range(2)))
TRIAL_S = 60.0

Truth = Callable[[Arm, str, int], float]


GAIN = (1.0, 1.4, 1.7, 1.9, 2.3, 2.0, 1.8, 1.6)  # by depth


def curve(pace: float = 1.0) -> Truth:
    """Depth 4 is best; a node's pace goes with everything."""

    def tok_s(arm: Arm, _workload: str, concurrency: int) -> float:
        return float(pace * 100.0 * concurrency**0.8 * GAIN[arm.depth])

    return tok_s


class FakeNodes:
    """tune.parallel.Nodes, each a world; time goes by as the trials need it.

    Attributes:
        dies: By node: with which of its trials it is lost, from 1.
        fails: By node: what its Draftmark says instead of a trial.
    """

    def __init__(self, worlds: dict[str, FakeWorld]) -> None:
        self.worlds = worlds
        self.names: Sequence[str] = tuple(worlds)
        self.dies: dict[str, int] = {}
        self.fails: dict[str, Failed] = {}
        self.ran: dict[str, list[Arm]] = {name: [] for name in worlds}
        self.released: list[str] = []
        self.now_s = 0.0
        self.pace: dict[str, float] = {}
        self._due: list[tuple[float, int, str, Job, Path]] = []
        self.interrupt_at: int | None = None
        self.handed = 0

    def begin(self, node: str, job: Job, into: Path) -> None:
        assert node == job.node
        assert not any(entry[2] == node for entry in self._due), f"{node} runs two at once"
        self.handed += 1
        if self.handed == self.interrupt_at:
            raise Interrupted(2)
        due_s = self.now_s + TRIAL_S * self.pace.get(node, 1.0)
        heapq.heappush(self._due, (due_s, self.handed, node, job, into))

    def release(self, node: str) -> None:
        self.released.append(node)

    def events(self, timeout_s: float) -> Sequence[NodeEvent]:
        self.now_s, _, node, job, into = heapq.heappop(self._due)
        self.ran[node].append(job.slot.arm)
        if len(self.ran[node]) == self.dies.get(node):
            return [NodeEvent(node=node, lost="it went away", evidence=("the actor died",))]
        if node in self.fails:
            said = encode_line(Word(failed=self.fails[node]))
            return [NodeEvent(node=node, said=said), NodeEvent(node=node, over=True)]
        self._run(self.worlds[node], job, into)
        words = [Word(phase=("measuring", None)), Word(progress=(1, 4, 10.0, 0)), Word(act=("ready", {"pid": 7}))]
        lines = [b"a stray print\n", *map(encode_line, words)]
        return [*(NodeEvent(node=node, said=each) for each in lines), NodeEvent(node=node, over=True)]

    def _run(self, world: FakeWorld, job: Job, into: Path) -> None:
        assert isinstance(world.clock, FakeClock)
        world.clock.now_s = max(world.clock.now_s, self.now_s - TRIAL_S)
        supervisor, drain, _ = fake_ends(world)
        runner = TrialRunner(
            engine=FakeEngine(world),
            supervisor=supervisor,
            drain=drain,
            load=FakeLoad(world),
            clock=world.clock,
            limits=job.limits,
            axes=job.axes,
            observer=NullObserver(),
            act=lambda *_: None,
            port_holder=lambda _url: None,
            node=job.node,
        )
        runner.run(job.slot, TrialWriter(into, into), baseline_start_s=job.baseline_start_s)


class Watched:
    """tune.parallel.Crowd that remembers."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, str]] = []
        self.ended: list[Trial] = []

    def phase(self, node: str, slot: Slot, what: str, limit_s: float | None) -> None:
        self.phases.append((node, what))

    def progress(self, node: str, done: int, total: int, tok_s: float | None, errors: int) -> None:
        return

    def trial_ends(self, trial: Trial) -> None:
        self.ended.append(trial)

    def free(self, node: str, note: str) -> None:
        return


class Lab:
    """A run directory, and nodes."""

    def __init__(self, path: Path, paces: dict[str, float], *, rounds: int = 2, noise: float = 0.01) -> None:
        self.info = RunInfo(
            draftmark="0", service="cmd:fake-server", engine="fake", engine_version=None, command=("fake-server",),
            redacted=False, host={}, started_at=FakeClock().now_iso(), settings={}, workloads=(CHAT,),
            concurrency=(1,), rounds=rounds, tie_margin=0.02, baseline=OFF, arms=DEPTHS, refused={},
            schedule=(), cluster="head:6379",
        )  # fmt: skip
        self.directory = RunDirectory.create(path, self.info)
        self.nodes = FakeNodes(
            {
                name: FakeWorld(truth_tok_s=curve(pace), noise=noise, chain=0.8, seed=number)
                for number, (name, pace) in enumerate(paces.items())
            }
        )
        self.watched, self.told = Watched(), list[str]()

    def run(self) -> dict[str, Any]:
        axes = tuple(Axis(workload=CHAT, concurrency=c, warmup=0, repeat=1 if c == 1 else 8) for c in (1,))

        def job(node: str, slot: Slot, start_s: float | None) -> Job:
            return Job(
                service=Service(reference="cmd:fake-server"), node=node, slot=slot, axes=axes, limits=Limits(),
                api="openai", baseline_start_s=start_s,
            )  # fmt: skip

        ParallelSweep(
            directory=self.directory,
            nodes=self.nodes,
            job=job,
            journal=Journal(self.directory, FakeClock()),
            observer=self.watched,
            after=lambda _trial: None,
            learn=lambda _log: None,
            tell=self.told.append,
        ).run()
        return derive(self.directory.load())

    @property
    def trials(self) -> list[Trial]:
        return [r.trial for r in self.directory.load().trials]


FOUR = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}


def by_arm(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {arm["arm"]: arm for arm in result["arms"]}


def test_every_arm_is_started_as_often_as_asked_and_every_node_measures_the_baseline_around_its_own(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path / "run", FOUR)
    result = lab.run()
    for arms in lab.nodes.ran.values():
        assert arms[0] == arms[-1] == OFF
        assert OFF not in arms[1:-1]
    started = [arm for arms in lab.nodes.ran.values() for arm in arms if arm != OFF]
    assert sorted(arm.depth for arm in started) == sorted(list(range(1, 8)) * 2)
    assert all(len(set(arms[1:-1])) == len(arms) - 2 for arms in lab.nodes.ran.values())  # by another node again
    assert result["complete"] is True
    assert result["restored"] is True
    assert result["exit_status"] == 10
    assert result["choice"]["latency"] == "d4"
    assert {t.node for t in lab.trials} == set(FOUR)
    assert [t.number for t in lab.trials] == list(range(1, len(lab.trials) + 1))
    assert ("a", "measuring") in lab.watched.phases
    total, busiest, plan = makespan(lab.info, 4)
    assert total == len(lab.trials)
    assert busiest == max(map(len, lab.nodes.ran.values()))
    assert len(plan) == 4


def test_four_nodes_take_at_most_four_tenths_of_the_time_of_one(tmp_path: Path) -> None:
    one, four = Lab(tmp_path / "one", {"a": 1.0}), Lab(tmp_path / "four", FOUR)
    one.run()
    four.run()
    assert four.nodes.now_s <= 0.4 * one.nodes.now_s
    assert len(one.trials) == 2 * len(work(one.info)) // 2 + 2


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of small files: a busy disk would take most of the time."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)


@pytest.mark.parametrize("slow", ["a", "d"])
def test_a_node_of_half_the_speed_changes_no_verdict(tmp_path: Path, slow: str) -> None:
    alike = Lab(tmp_path / "alike", FOUR, noise=0.0).run()
    lab = Lab(tmp_path / "run", {**FOUR, slow: 0.5}, noise=0.0)
    unlike_ = lab.run()
    assert unlike_["choice"] == alike["choice"]
    assert alike["choice"]["recommended"] == "d4"
    assert unlike_["exit_status"] == alike["exit_status"] == 10
    for name, arm in by_arm(alike).items():
        other = by_arm(unlike_)[name]
        assert other["latency"]["ratio"] == pytest.approx(arm["latency"]["ratio"], rel=1e-3)
        assert other["latency"]["low"] == pytest.approx(arm["latency"]["low"], rel=0.02)
    # The table is of one machine, the mean one: no arm looks slow for where it ran.
    rows = by_arm(unlike_)
    off = rows["off"]["axes"]["chat@1"]
    for name, arm in rows.items():
        figures = arm["axes"]["chat@1"]
        assert figures["tok_s"] / off["tok_s"] == pytest.approx(rows[name]["latency"]["ratio"], rel=1e-3)
        for value in figures["values"]:
            assert value == pytest.approx(figures["tok_s"], rel=1e-3)
    halves = {n["node"]: n["baseline_tok_s"]["1"][0] for n in unlike_["nodes"]}
    assert halves[slow] == pytest.approx(0.5 * halves["b"], rel=0.01)


def test_a_slow_node_gets_less_to_do(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FOUR)
    lab.nodes.pace = {"d": 3.0}
    result = lab.run()
    assert result["complete"] is True
    assert len(lab.nodes.ran["d"]) < min(len(lab.nodes.ran[n]) for n in "abc")


def test_what_a_lost_node_had_is_started_again_elsewhere(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FOUR)
    lab.nodes.dies = {"b": 3}
    result = lab.run()
    lost = lab.nodes.ran["b"][2]
    assert result["complete"] is True
    done = [(t.arm, t.round) for t in lab.trials if t.arm != OFF]
    assert sorted(done, key=str) == sorted(((p.arm, p.round) for p in work(lab.info)), key=str)
    assert any(lost in arms for node, arms in lab.nodes.ran.items() if node != "b")
    assert sum(t.node == "b" for t in lab.trials) == 2  # what it had finished counts
    assert "b" in lab.nodes.released
    assert any("b is lost: it went away; depth" in line for line in lab.told)
    assert "b was lost: it went away" in result["warnings"]
    assert any("b measured the baseline only before its arms" in line for line in result["warnings"])
    assert result["choice"]["latency"] == "d4"
    assert not list((lab.directory.path / "trials").glob(".*"))


def test_a_draftmark_that_fails_on_a_node_is_a_lost_node(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FOUR)
    lab.nodes.fails = {"c": Failed(what="something else listens on http://127.0.0.1:1", evidence=("pid 9",))}
    result = lab.run()
    assert result["complete"] is True
    assert not any(t.node == "c" for t in lab.trials)
    assert any("something else listens" in line for line in lab.told)


def test_no_node_left_is_an_error_that_keeps_what_was_measured(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", {"a": 1.0, "b": 1.0})
    lab.nodes.dies = {"a": 4, "b": 5}
    with pytest.raises(HostError) as caught:
        lab.run()
    assert "a: it went away" in caught.value.evidence
    assert "the actor died" in caught.value.evidence
    assert "is kept" in caught.value.next_step
    kept = len(lab.trials)
    assert kept == 3 + 4
    again = Lab.__new__(Lab)  # the same run, on other nodes
    again.__dict__.update(lab.__dict__)
    again.nodes = FakeNodes({n: FakeWorld(truth_tok_s=curve(), noise=0.01, chain=0.8) for n in ("x", "y")})
    result = again.run()
    assert result["complete"] is True
    assert again.nodes.ran["x"][0] == again.nodes.ran["x"][-1] == OFF
    arms = [t.arm for t in again.trials if t.arm != OFF]
    assert len(arms) == len(work(again.info))


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FOUR)
    lab.nodes.interrupt_at = 9
    with pytest.raises(Interrupted):
        lab.run()
    (lab.directory.path / "trials" / ".99").mkdir()  # what a killed controller leaves
    lab.nodes.interrupt_at, lab.nodes._due = None, []
    result = lab.run()
    assert result["complete"] is True
    assert sorted((t.arm.depth, t.round) for t in lab.trials if t.arm != OFF) == sorted(
        (p.arm.depth, p.round) for p in work(lab.info)
    )
    events = dict(lab.nodes.ran)
    assert lab.run()["complete"] is True
    assert lab.nodes.ran == events  # a run that is over is left as it is


def test_an_arm_that_does_not_start_is_tried_on_one_node_only(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FOUR)
    for each in lab.nodes.worlds.values():
        each.starts = lambda arm: arm.depth != 7
    result = lab.run()
    assert by_arm(result)["d7"]["status"] == "did-not-start"
    assert sum(arm == Arm(7) for arms in lab.nodes.ran.values() for arm in arms) == 1
    assert result["complete"] is True


def test_a_service_that_starts_on_no_node_is_an_error(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", {"a": 1.0, "b": 1.0})
    for each in lab.nodes.worlds.values():
        each.starts = lambda _arm: False
    with pytest.raises(FailedError, match="on no node") as caught:
        lab.run()
    assert any(line.startswith("a: ") for line in caught.value.evidence)
    assert sum(map(len, lab.nodes.ran.values())) == 2


def test_a_node_on_which_the_service_does_not_start_is_left_and_the_others_go_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FOUR)
    lab.nodes.worlds["b"].starts = lambda _arm: False
    result = lab.run()
    assert lab.nodes.ran["b"] == [OFF]
    assert result["complete"] is True
    assert any(
        line.startswith("b gets nothing more: the service as it is does not start there") for line in lab.told
    )


def test_a_node_that_drifts_is_told_counts_nowhere_and_its_arms_are_measured_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FOUR, noise=0.003)
    calm = Lab(tmp_path / "calm", FOUR, noise=0.003).run()
    lab.nodes.worlds["c"].drift = lambda at_s: 1.0 if at_s < 2.5 * TRIAL_S else 0.5
    result = lab.run()
    assert result["complete"] is True
    (node,) = [n for n in result["nodes"] if not n["counts"]]
    assert node["node"] == "c"
    assert "drift" in node["because"] or "slower" in node["because"]
    assert any(line.startswith("c gets nothing more") for line in lab.told)
    assert any(line.startswith("nothing of c counts") for line in result["warnings"])
    elsewhere = [(t.arm, t.round) for t in lab.trials if t.arm != OFF and t.node != "c"]
    assert sorted(elsewhere, key=str) == sorted(((p.arm, p.round) for p in work(lab.info)), key=str)
    assert result["choice"]["recommended"] == calm["choice"]["recommended"]
    assert by_arm(result)["d4"]["latency"]["ratio"] == pytest.approx(
        by_arm(calm)["d4"]["latency"]["ratio"], rel=0.03
    )


def test_nodes_that_all_drift_settle_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", {"a": 1.0, "b": 1.0}, noise=0.003)
    for each in lab.nodes.worlds.values():
        each.drift = lambda at_s: 1.0 if at_s < 4.5 * TRIAL_S else 0.5
    result = lab.run()
    assert result["exit_status"] == 40
    assert any("stopped early" in line for line in result["warnings"])


def test_no_more_nodes_are_opened_than_there_is_to_start(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", {f"n{i}": 1.0 for i in range(20)}, rounds=1)
    result = lab.run()
    assert result["complete"] is True
    assert sum(bool(arms) for arms in lab.nodes.ran.values()) == len(work(lab.info)) == 7
    assert makespan(lab.info, 20)[1] == 3


def test_runs_over_nodes_are_compared_with_nothing(tmp_path: Path) -> None:
    result = Lab(tmp_path / "run", FOUR).run()
    assert any("cluster" in line for line in unlike(result, result))
