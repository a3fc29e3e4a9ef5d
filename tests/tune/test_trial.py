"""The life of a trial and of a sweep, in order, against a world that a test owns."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from draftmark.errors import FailedError, HostError, Interrupted, RefusedError, StorageError, UnrestoredError
from draftmark.load.client import LoadRun
from draftmark.model import (
    Arm,
    ClientHealth,
    Counters,
    FitFigures,
    Message,
    Prompt,
    Refusal,
    RequestRecord,
    ServerLimits,
    StopOutcome,
    Trial,
    TrialStatus,
    Workload,
)
from draftmark.ports import CpuSample, PostMortem
from draftmark.run.directory import RunDirectory
from draftmark.run.records import RunInfo, decode, encode_document
from draftmark.run.redact import Redactor
from draftmark.testing.fakes import FakeEngine, FakeWorld, NullObserver, fake_ends
from draftmark.testing.loads import FakeLoad
from draftmark.tune.disturbance import counters_astray, foreign_cores, load_faults, paused
from draftmark.tune.measuring import Axis, Limits
from draftmark.tune.plan import schedule
from draftmark.tune.result import derive
from draftmark.tune.runner import Journal, Sweep
from draftmark.tune.trial import TrialRunner

OFF, D4, D8 = Arm(0), Arm(4), Arm(8)
COPY = Workload("copy", tuple(Prompt(f"c{i}", (Message("user", "x"),), 16) for i in range(3)))
CHAT = Workload("chat", tuple(Prompt(f"t{i}", (Message("user", "y"),), 16) for i in range(3)))


def speed(arm: Arm, workload: str, concurrency: int) -> float:
    gain = {0: 1.0, 4: 1.5, 8: 1.45}[arm.depth] if workload == "copy" else 1.0
    return 40.0 * gain * (1.3 if concurrency > 1 else 1.0)


class Lab:
    """A world, a run directory, and a sweep over it."""

    def __init__(
        self,
        path: Path,
        world: FakeWorld,
        *,
        rounds: int = 3,
        limits: Limits | None = None,
        arms: tuple[Arm, ...] = (OFF, D4, D8),
    ) -> None:
        self.world = world
        self.info = RunInfo(
            draftmark="0",
            service="cmd:fake-server",
            engine="fake",
            engine_version=None,
            command=("fake-server",),
            redacted=False,
            host={},
            started_at=world.clock.now_iso(),
            settings={"requests": {"1": 3, "4": 4}},
            workloads=(COPY, CHAT),
            concurrency=(1, 4),
            rounds=rounds,
            tie_margin=0.02,
            baseline=OFF,
            arms=arms,
            refused={},
            schedule=schedule(arms, rounds, OFF),
        )
        self.directory = RunDirectory.create(path, self.info)
        self.limits = limits or Limits(max_foreign_cores=0.25)
        self.port_holder: str | None = None
        self.after: list[Trial] = []
        self.post_mortem: PostMortem | None = None
        self.redactor = Redactor(values=())

    def sweep(self) -> Sweep:
        world = self.world
        journal = Journal(self.directory, world.clock)
        axes = tuple(
            Axis(workload=w, concurrency=c, warmup=0, repeat=1 if c == 1 else 2)
            for c in (1, 4)
            for w in (COPY, CHAT)
        )
        supervisor, drain, ends = fake_ends(world)
        return Sweep(
            directory=self.directory,
            trials=TrialRunner(
                engine=FakeEngine(world),
                supervisor=supervisor,
                drain=drain,
                load=FakeLoad(world),
                clock=world.clock,
                limits=self.limits,
                axes=axes,
                observer=NullObserver(),
                act=journal.write,
                port_holder=lambda _url: self.port_holder,
                redactor=self.redactor,
                post_mortem=self.post_mortem,
            ),
            ends=ends,
            journal=journal,
            after=self.after.append,
        )


def test_order_of_a_trial(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    lab.sweep().run()
    one_trial = [
        "generate",
        "verify",
        "measure copy@1",
        "measure chat@1",
        "measure copy@4",
        "measure chat@4",
        "stop",
    ]
    assert lab.world.events[:8] == ["start off", *one_trial]
    starts = [event for event in lab.world.events if event.startswith("start")]
    names = ["off", "d4", "d8", "d8", "d4", "off", "off", "d4", "d8", "off"]
    assert starts == [f"start {name}" for name in names]
    assert len(lab.world.events) == 8 * len(names) + 1
    assert lab.world.events[-1] == "restore"
    whats = [action.what for action in lab.directory.load().actions]
    assert whats[0] == "begin"
    assert whats[1:8] == ["start", "ready", "measure", "measure", "measure", "measure", "stop"]
    assert whats[-1] == "finish"
    assert [trial.number for trial in lab.after] == list(range(1, 11))


def test_the_result_finds_what_is_there_and_invents_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, noise=0.015))
    lab.sweep().run()
    result = derive(lab.directory.load())
    by_axis = {axis["axis"]: axis for axis in result["axes"]}
    assert by_axis["copy@1"]["verdict"] == "better"
    assert by_axis["copy@1"]["choice"] in ("d4", "d8")
    assert by_axis["copy@1"]["ratios"]["d4"]["ratio"] == pytest.approx(1.5, rel=0.1)
    assert by_axis["chat@1"]["verdict"] != "better"
    assert by_axis["chat@4"]["verdict"] != "better"
    arm = next(arm for arm in result["arms"] if arm["arm"] == "d4")
    assert arm["status"] == "measured"
    assert arm["accept_len"] is not None
    assert arm["tokens_per_step"] == pytest.approx(2.0, rel=0.1)
    assert result["restarts"] == 10
    assert result["exit_status"] == 10
    assert result["complete"] is True
    off = next(arm for arm in result["arms"] if arm["arm"] == "off")
    assert off["accept_len"] is None


def test_same_records_same_bytes(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, noise=0.02))
    lab.sweep().run()
    first = encode_document(derive(lab.directory.load()))
    assert encode_document(derive(RunDirectory.open(tmp_path / "run").load())) == first


def test_an_arm_that_does_not_start_is_tried_once_and_the_sweep_goes_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, starts=lambda arm: arm != D8))
    lab.sweep().run()
    assert lab.world.events.count("start d8") == 1
    trial = next(r.trial for r in lab.directory.load().trials if r.trial.arm == D8)
    assert trial.status is TrialStatus.DID_NOT_START
    assert trial.because == "fatal: out of everything"
    assert trial.evidence[0].line == 2
    assert trial.stop is not None
    assert trial.stop.outcome is StopOutcome.ALREADY_DEAD
    result = derive(lab.directory.load())
    arm = next(arm for arm in result["arms"] if arm["arm"] == "d8")
    assert (arm["status"], arm["latency"]) == ("did-not-start", None)


def test_a_baseline_that_does_not_start_ends_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, starts=lambda arm: arm != OFF))
    with pytest.raises(FailedError, match="does not start") as caught:
        lab.sweep().run()
    assert "fatal: out of everything" in caught.value.evidence
    lab.world.starts = lambda _arm: True  # mended: going on tries it again
    lab.sweep().run()
    assert lab.world.events.count("start off") == 5
    assert derive(lab.directory.load())["complete"] is True


@pytest.mark.parametrize("lost", ["d4"])
def test_speculation_that_is_silently_off_is_void(tmp_path: Path, lost: str) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, silent_off=frozenset({lost})))
    lab.sweep().run()
    trial = next(r.trial for r in lab.directory.load().trials if r.trial.arm == D4)
    assert trial.status is TrialStatus.VOID
    assert "without the speculation" in (trial.because or "")
    assert trial.requests == 0


def test_a_depth_that_drafts_nothing_is_void_and_no_tie(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=lambda *_: 40.0, accept=0.0))
    lab.sweep().run()
    result = derive(lab.directory.load())
    arm = next(arm for arm in result["arms"] if arm["arm"] == "d4")
    assert arm["status"] == "void"
    assert "drafted no token" in arm["because"]
    assert all("d4" not in axis["ties"] for axis in result["axes"])


def test_a_server_that_dies_in_the_measurement_is_void(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, dies_in=frozenset({"d4"})))
    lab.sweep().run()
    trial = next(r.trial for r in lab.directory.load().trials if r.trial.arm == D4)
    assert trial.status is TrialStatus.VOID
    assert "died with exit status 1 during copy@1" in (trial.because or "")
    result = derive(lab.directory.load())
    assert all("d4" not in axis["values"] for axis in result["axes"])


def test_a_busy_neighbour_ends_in_inconclusive(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, cpu_beside=1.0))
    lab.sweep().run()
    assert lab.world.events.count("stop") == 3  # and not ten trials that count nowhere
    result = derive(lab.directory.load())
    assert result["exit_status"] == 40
    assert any("other work used 1.00 CPU cores" in (t["because"] or "") for t in result["trials"])
    assert any("stopped early" in warning for warning in result["warnings"])


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    lab.port_holder = "pid 7 (nginx)"
    with pytest.raises(RefusedError, match="something else listens") as caught:
        lab.sweep().run()
    assert "pid 7 (nginx)" in str(caught.value)
    assert "start off" not in lab.world.events


@pytest.mark.parametrize("at", [1, 5, 9, 17, 30, 55, 79])
def test_interrupted_and_resumed_repeats_no_finished_trial(tmp_path: Path, at: int) -> None:
    world = FakeWorld(truth_tok_s=speed, noise=0.01)
    lab = Lab(tmp_path / "run", world)

    class Bomb(list[str]):
        def append(self, event: str) -> None:
            super().append(event)
            if len(self) == at and event != "stop":
                raise Interrupted(2)

    world.events = Bomb()
    with pytest.raises(Interrupted):
        lab.sweep().run()
    assert world.running is None
    before = lab.directory.finished()
    world.events = list(world.events)
    done = len(world.events)
    lab.sweep().run()
    starts = [event for event in world.events[done:] if event.startswith("start")]
    assert len(starts) == 10 - len(before)
    result = derive(lab.directory.load())
    assert result["complete"] is True
    assert [t["number"] for t in result["trials"]] == list(range(1, 11))


def test_a_full_disk_stops_the_server_before_the_error_is_told(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    sweep = lab.sweep()

    def full(*_args: object, **_more: object) -> LoadRun:
        raise StorageError("full")

    broken = dataclasses.replace(sweep, trials=dataclasses.replace(sweep.trials, load=full))
    with pytest.raises(StorageError):
        broken.run()
    assert lab.world.running is None
    assert lab.world.events[-2:] == ["stop", "restore"]
    assert lab.directory.finished() == frozenset()


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    lab.sweep().run()
    before = encode_document(derive(lab.directory.load()))
    actions = (tmp_path / "run" / "actions.jsonl").read_bytes()
    lab.sweep().run()
    assert (tmp_path / "run" / "actions.jsonl").read_bytes() == actions
    assert encode_document(derive(lab.directory.load())) == before


def test_lost_copied_and_doubled_records_are_told(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    lab.sweep().run()
    trials = tmp_path / "run" / "trials"
    shutil.copytree(trials / "02-d4", trials / "06-d4")
    shutil.copytree(trials / "02-d4", trials / "77-d4")
    shutil.rmtree(trials / "09-d8")
    lines = (trials / "01-off" / "requests.jsonl").read_bytes().splitlines(keepends=True)
    (trials / "01-off" / "requests.jsonl").write_bytes(b"".join([lines[0], *lines]))
    result = derive(lab.directory.load())
    assert result["complete"] is False
    assert [t["number"] for t in result["trials"]] == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    told = " ".join(result["warnings"])
    assert "not trials of this run, counted nowhere: 06-d4, 77-d4" in told
    assert "records of trial 9 are gone" in told
    assert "doubled in 01-off" in told


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ((0, 0), (48, 10), None),
        ((100, 0), (150, 10), None),  # one or two a request may be counted differently
        ((100, 50), (20, 10), "counters fell"),
        ((100, 0), (400, 10), "others used the server"),
        ((100, 0), (110, 10), "it restarted"),
        ((None, None), (None, None), None),
    ],
)
def test_counters_that_contradict_us(
    before: tuple[int | None, int | None], after: tuple[int | None, int | None], part: str | None
) -> None:
    ours = [dataclasses.replace(request(None), output_tokens=16) for _ in range(3)]
    old, new = (Counters(output_tokens=o, drafted_tokens=d) for o, d in (before, after))
    found = counters_astray(old, new, ours)
    assert (found is None) if part is None else (part in str(found))
    failed = [*ours, request("reset")]
    assert counters_astray(Counters(output_tokens=0), Counters(output_tokens=900), failed) is None


def test_a_stream_that_stood_still() -> None:
    def stream(gaps: list[float]) -> RequestRecord:
        times = [0.1]
        for gap in gaps:
            times.append(times[-1] + gap)
        return dataclasses.replace(request(None), chunks=tuple((t, float(i + 1)) for i, t in enumerate(times)))

    assert paused([stream([0.1] * 30)]) is None
    assert paused([stream([0.1] * 30 + [0.9])]) is None
    assert paused([stream([0.4] * 30 + [3.0])]) is None  # a slow server, not a stopped one
    assert "stood still for 3.0 s" in str(paused([stream([0.1] * 20 + [3.0] + [0.1] * 10)]))
    assert paused([stream([5.0])]) is None


def test_foreign_cores() -> None:
    before = CpuSample(busy_s=10, group_s=5, own_s=1, cpus=2)
    after = CpuSample(busy_s=14, group_s=7, own_s=1.5, cpus=2)
    assert foreign_cores(before, after, 2.0) == pytest.approx(0.75)
    assert foreign_cores(before, after, 0.1) is None
    less = CpuSample(busy_s=11, group_s=7, own_s=1.5, cpus=2)
    assert foreign_cores(before, less, 2.0) == 0.0


def request(error: str | None, *, warmup: bool = False) -> RequestRecord:
    return RequestRecord(
        tag="t", workload="w", prompt_id="p", concurrency=1, warmup=warmup, sent_at_s=0, end_at_s=1, error=error
    )


def test_load_faults() -> None:
    def run(records: list[RequestRecord], lag: float | None = 1.0, stopped: str | None = None) -> LoadRun:
        return LoadRun(
            records=tuple(records),
            client=ClientHealth(loop_lag_ms_p99=lag),
            assumptions=(),
            stopped_because=stopped,
        )

    assert load_faults(run([request(None)]), 0.05, 100) == ()
    assert load_faults(run([request("reset", warmup=True), request(None)]), 0.05, 100) == ()
    assert "1 of 2 requests failed (reset)" in load_faults(run([request("reset"), request(None)]), 0.05, 100)[0]
    assert "lagged by 150 ms" in load_faults(run([request(None)], lag=150), 0.05, 100)[0]
    assert load_faults(run([], lag=None, stopped="the server went away"), 0.05, 100) == ("the server went away",)


def test_refused_arms_are_in_the_result(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    info = dataclasses.replace(
        lab.info, arms=(*lab.info.arms, Arm(2)), refused={"d2": Refusal("dead-depth", "depth 2 drafts nothing")}
    )
    run = RunDirectory.create(tmp_path / "other", info)
    arm = next(arm for arm in derive(run.load())["arms"] if arm["arm"] == "d2")
    assert (arm["status"], arm["because"]) == ("refused", "depth 2 drafts nothing")


def test_a_wrapper_that_drops_the_flags_is_noticed(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, wrapped_depth=0))
    lab.sweep().run()
    trials = {trial.arm: trial for trial in lab.after}
    assert trials[OFF].status is TrialStatus.MEASURED
    assert trials[D4].status is TrialStatus.VOID
    assert trials[D4].because == "its process has off, not depth 4: a wrapper does not pass the flags on"


def test_an_adaptive_arm_is_tried_beside_depths(tmp_path: Path) -> None:
    adaptive = Arm(4, (("--adaptive", ""),))
    world = FakeWorld(truth_tok_s=lambda arm, w, c: 1.3 * speed(arm, w, c) if arm.knobs else speed(arm, w, c))
    lab = Lab(tmp_path / "run", world, arms=(OFF, D4, adaptive, D8))
    lab.sweep().run()
    result = derive(lab.directory.load())
    assert {trial.status for trial in lab.after} == {TrialStatus.MEASURED}
    assert result["depths"] == [0, 4, 8]
    assert result["choice"]["latency"] == "d4-adaptive"
    assert "depth 4, adaptive" in result["verdict"]
    assert all("d4-adaptive" not in axis["because"] for axis in result["axes"])
    assert (tmp_path / "run" / "trials" / "03-d4-adaptive").is_dir()


def test_among_ties_of_one_depth_the_arm_without_a_knob_is_chosen(tmp_path: Path) -> None:
    adaptive = Arm(4, (("--adaptive", ""),))
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed), arms=(OFF, adaptive, D4))
    lab.sweep().run()
    choice = derive(lab.directory.load())["choice"]
    assert choice["latency"] == "d4"
    assert "d4-adaptive" in choice["ties"]


def test_a_wrapper_that_drops_adaptive_alone_is_noticed(tmp_path: Path) -> None:
    adaptive = Arm(4, (("--adaptive", ""),))
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, wrapped_depth=4), arms=(OFF, D4, adaptive))
    lab.sweep().run()
    trials = {trial.arm: trial for trial in lab.after}
    assert trials[D4].status is TrialStatus.MEASURED
    assert (trials[adaptive].because or "").startswith("its process has depth 4, not depth 4, adaptive")


def test_adaptive_speculation_that_drafts_nothing_is_no_dead_depth(tmp_path: Path) -> None:
    adaptive = Arm(4, (("--adaptive", ""),))
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, accept=0.0), arms=(OFF, D4, adaptive))
    lab.sweep().run()
    trials = {trial.arm: trial for trial in lab.after}
    assert trials[D4].status is TrialStatus.VOID
    assert trials[adaptive].status is TrialStatus.MEASURED


@pytest.mark.parametrize("event", ["start d4", "stop"])
def test_a_host_that_is_lost_and_comes_back_is_put_back(tmp_path: Path, event: str) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, cut_at=frozenset({event})))
    with pytest.raises(HostError, match="the connection was lost"):
        lab.sweep().run()
    assert lab.world.running is None
    assert lab.directory.load().actions[-1].what == "restored"


def test_that_the_service_is_not_back_outweighs_that_it_is_not_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    sweep = lab.sweep()

    def away(_ends: object, **_how: bool) -> bool:
        shutil.rmtree(lab.directory.path)
        lab.directory.path.touch()
        raise UnrestoredError("it is still away")

    monkeypatch.setattr(type(sweep.ends), "put_back", away)
    with pytest.raises(UnrestoredError, match="still away"):
        sweep.run()


@pytest.mark.parametrize("error", [FailedError("it has put it back"), UnrestoredError("it is still away")])
def test_a_host_that_stays_away_is_told(tmp_path: Path, error: FailedError | UnrestoredError) -> None:
    class Away(FakeWorld):
        def happens(self, event: str) -> None:
            self.events.append(event)
            if "start d4" in self.events:
                raise HostError("fakehost: the connection was lost")

    lab = Lab(tmp_path / "run", Away(truth_tok_s=speed, back_at=error))
    with pytest.raises(type(error), match=error.what):
        lab.sweep().run()
    last = lab.directory.load().actions[-1]
    assert (last.what, last.detail) == ("not-restored", {"because": error.what})


def test_how_long_a_start_may_take_is_learned_from_the_baseline() -> None:
    learned = Limits(start_timeout_s=600, as_baseline_starts=True)
    assert learned.start_s(None) == 600
    assert learned.start_s(20) == 160
    assert learned.start_s(200) == 600
    assert Limits(start_timeout_s=600).start_s(20) == 600


def test_an_arm_that_hangs_is_given_up_by_the_baselines_measure(tmp_path: Path) -> None:
    world = FakeWorld(truth_tok_s=speed, hangs=lambda arm: arm == D8)
    lab = Lab(tmp_path / "run", world, limits=Limits(as_baseline_starts=True))
    lab.sweep().run()
    hung = next(trial for trial in lab.after if trial.arm == D8)
    assert hung.status is TrialStatus.DID_NOT_START
    assert hung.because is not None
    assert hung.because.startswith("not ready after 6")


def test_a_resume_that_has_only_to_keep_stops_what_serves_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    lab.sweep().run()
    actions = tmp_path / "run" / "actions.jsonl"
    actions.write_text("".join(line for line in actions.read_text().splitlines(True) if '"finish"' not in line))
    lab.world.running = OFF
    lab.world.events.clear()
    dataclasses.replace(lab.sweep(), directory=RunDirectory.open(tmp_path / "run"), to_keep=lambda: D4).run()
    assert lab.world.events[:2] == ["stop", "start d4"]
    assert lab.world.events[-1] == "keep"


def test_a_ctrl_c_is_told_as_such_though_our_own_request_is_still_inside(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed))
    sweep = lab.sweep()

    def interrupted(*_args: object, **_more: object) -> LoadRun:
        lab.world.inside = 1
        raise Interrupted(2)

    with pytest.raises(Interrupted):
        dataclasses.replace(sweep, trials=dataclasses.replace(sweep.trials, load=interrupted)).run()
    assert lab.world.running is None
    assert lab.directory.load().actions[-1].what == "restored"


def test_the_service_that_was_put_back_counts_as_a_restart(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, serves_before=True))
    lab.sweep().run()
    result = derive(lab.directory.load())
    assert result["restarts"] == 10 + 1
    assert result["downtime_s"] > sum(trial.downtime_s or 0.0 for trial in lab.after)


def test_how_much_an_arm_takes_at_once_is_recorded_and_told(tmp_path: Path) -> None:
    limits = {
        "off": ServerLimits(max_running_requests=181, kv_tokens=638_839),
        "d4": ServerLimits(max_running_requests=48, kv_tokens=338_982),
        "d8": ServerLimits(max_running_requests=3),
    }
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, limits=limits))
    lab.sweep().run()
    record = lab.directory.load()
    assert {trial.trial.arm.name: trial.trial.limits for trial in record.trials} == limits
    result = derive(record)
    assert [arm["limits"] for arm in result["arms"]] == [
        {"max_running_requests": 181, "kv_tokens": 638_839},
        {"max_running_requests": 48, "kv_tokens": 338_982},
        {"max_running_requests": 3, "kv_tokens": None},
    ]
    assert result["trials"][0]["limits"]["max_running_requests"] == 181
    told = [warning for warning in result["warnings"] if "requests at once" in warning]
    assert told == [
        "depth 4 runs at most 48 requests at once, the baseline 181",
        "depth 8 runs at most 3 requests at once, the baseline 181; with 4 at once the queue is measured, too",
    ]


def test_arms_that_take_the_same_are_told_together_and_an_engine_that_says_nothing_not_at_all(
    tmp_path: Path,
) -> None:
    limits = {"off": ServerLimits(max_running_requests=2), "d4": ServerLimits(max_running_requests=2)}
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, limits=limits))
    lab.sweep().run()
    result = derive(lab.directory.load())
    assert result["arms"][2]["limits"] is None
    assert [w for w in result["warnings"] if "at once" in w] == [
        "off and depth 4 run at most 2 requests at once; with 4 at once the queue is measured, too"
    ]


def test_the_log_tells_where_the_server_does_not(tmp_path: Path) -> None:
    world = FakeWorld(truth_tok_s=speed, found=FitFigures(kv_tokens=900, max_running_requests=7))
    lab = Lab(tmp_path / "run", world)
    lab.sweep().run()
    record = lab.directory.load()
    assert derive(record)["arms"][0]["limits"] == {"max_running_requests": 7, "kv_tokens": 900}
    old = dataclasses.replace(record.trials[0].trial, limits=None, figures=None)
    bare = encode_document(old).replace(b'"limits": null', b'"before": null')
    assert decode(bare, Trial) == old
