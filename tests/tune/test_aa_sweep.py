"""A/A through the whole loop: the same configuration under every arm, on the noise of a real machine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmark.model import Arm, Message, Prompt, Workload
from draftmark.run.directory import RunDirectory
from draftmark.run.records import RunInfo
from draftmark.testing.fakes import FakeEngine, FakeWorld, NullObserver, fake_ends
from draftmark.testing.loads import FakeLoad
from draftmark.tune.measuring import Axis, Limits
from draftmark.tune.plan import schedule
from draftmark.tune.result import derive
from draftmark.tune.runner import Journal, Sweep
from draftmark.tune.trial import TrialRunner

ARMS = (Arm(0), Arm(4), Arm(8), Arm(16))
WORKLOADS = tuple(
    Workload(name, tuple(Prompt(f"{name}{i}", (Message("user", "x"),), 12) for i in range(3)))
    for name in ("a", "b")
)


def wandering(seed: int) -> Callable[[float], float]:
    """A machine whose speed wanders by up to a fifth over a minute: a random walk, a step every 5 s."""
    rng = random.Random(seed)
    points = [0.0]
    for _ in range(400):
        points.append(0.9 * points[-1] + rng.gauss(0.0, 0.03))

    def at(time_s: float) -> float:
        index, part = divmod(time_s / 5.0, 1.0)
        left, right = points[int(index) % 400], points[(int(index) + 1) % 400]
        return math.exp(left + (right - left) * part)

    return at


def sweep(path: Path, seed: int, gain: float) -> dict[str, object]:
    world = FakeWorld(
        truth_tok_s=lambda arm, _workload, _c: 40.0 * (gain if arm.depth else 1.0),
        noise=random.Random(seed).uniform(0.01, 0.04),
        drift=wandering(seed),
        seed=seed,
    )
    info = RunInfo(
        draftmark="0",
        service="cmd:fake-server",
        engine="fake",
        engine_version=None,
        command=("fake-server",),
        redacted=False,
        host={},
        started_at=world.clock.now_iso(),
        settings={},
        workloads=WORKLOADS,
        concurrency=(1, 4),
        rounds=3,
        tie_margin=0.02,
        baseline=ARMS[0],
        arms=ARMS,
        refused={},
        schedule=schedule(ARMS, 3, ARMS[0]),
    )
    directory = RunDirectory.create(path, info)
    journal = Journal(directory, world.clock)
    supervisor, drain, ends = fake_ends(world)
    Sweep(
        directory=directory,
        trials=TrialRunner(
            engine=FakeEngine(world),
            supervisor=supervisor,
            drain=drain,
            load=FakeLoad(world),
            clock=world.clock,
            limits=Limits(),
            axes=tuple(Axis(workload=w, concurrency=c, warmup=0, repeat=2) for c in (1, 4) for w in WORKLOADS),
            observer=NullObserver(),
            act=journal.write,
            port_holder=lambda _url: None,
        ),
        ends=ends,
        journal=journal,
        after=lambda _trial: None,
    ).run()
    return derive(directory.load())


@pytest.mark.no_cover
def test_twenty_sweeps_of_one_configuration_name_at_most_one_winner(tmp_path: Path) -> None:
    results = [sweep(tmp_path / str(seed), 7100 + seed, gain=1.0) for seed in range(20)]
    winners = [r["verdict"] for r in results if r["exit_status"] == 10]
    assert len(winners) <= 1, winners


@pytest.mark.no_cover
def test_a_real_gain_is_found_on_the_same_machine(tmp_path: Path) -> None:
    results = [sweep(tmp_path / str(seed), 9300 + seed, gain=1.35) for seed in range(10)]
    assert sum(r["exit_status"] == 10 for r in results) >= 9
