"""Fakes for the pure parts: a clock that a test owns, a service that does not exist, a load that draws figures.

The fake load's noise is what was measured, not what would be convenient: on a shared two-core machine the same
arm's speed wandered by up to a fifth within a minute, with trials that follow one another moving together, and 1 to
4 % of noise a trial on top (SmolLM2-135M F32 on llama-server, ngram-simple, 16 trials of 8 depths in two orders).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from draftmark.errors import DraftmarkError, FailedError, HostError, RefusedError, StartError
from draftmark.model import (
    Activity,
    Arm,
    Counters,
    DrainFacts,
    Evidence,
    Fit,
    FitFigures,
    Hand,
    Health,
    Identity,
    Intervention,
    KnobKind,
    KnobSpec,
    Refusal,
    ServerLimits,
    SpeculationState,
    StopOutcome,
    StopReport,
    Trial,
)
from draftmark.ports import CpuSample, FitScene
from draftmark.run.records import Slot
from draftmark.service.interlock import Interlock
from draftmark.tune.closing import Ends
from draftmark.tune.drain import Drain
from draftmark.tune.startup import Starter, as_it_stands


class FakeClock:
    """ports.Clock whose time passes only when somebody sleeps or a fake works."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Seconds since the fake was made."""
        return self.now_s

    def now_iso(self) -> str:
        """Wall clock: the same seconds, counted from noon."""
        minutes, seconds = divmod(self.now_s, 60)
        hours, minutes = divmod(int(minutes), 60)
        return f"2026-11-29T{12 + hours:02d}:{minutes:02d}:{seconds:06.3f}Z"

    def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.now_s += seconds


@dataclass(slots=True)
class FakeWorld:
    """What really is the case, and what was done to it, in order.

    Attributes:
        truth_tok_s: True speed of an arm on a workload at a concurrency.
        noise: Standard deviation of a trial's logarithm.
        drift: Speed of the machine as a function of time; 1.0 is its normal.
        starts: Whether an arm starts.
        hangs: Whether an arm starts and never becomes ready.
        dies_in: Arms whose server is gone when its measurement ends.
        silent_off: Arms whose server goes on without speculation.
        cpu_beside: Cores that something else uses.
        wrapped_depth: Depth that the process gets, whatever its command line says.
        inside: Requests that are inside the server.
        serves_before: The service was up before the run.
        cut_at: Events at which the host is lost for a while.
        altered_at: Events at which somebody else is seen to have changed the configuration.
        hands_in: What somebody else does to the server of an arm while it is measured.
        back_at: How the wait for a lost host ends: None, or the error that it raises.
        fits: What the engine predicts of memory.
        found: What every server's log says of its memory.
        limits: What a server says that it takes at once, by the arm's name.
        chain: Chance of each draft, given that those before it were taken: answers then tell their rounds by drafts
            accepted.
        events: Everything that was done: `start d4`, `measure copy@1`, `stop`, ….
    """

    truth_tok_s: Callable[[Arm, str, int], float]
    noise: float = 0.0
    drift: Callable[[float], float] = lambda _t: 1.0
    starts: Callable[[Arm], bool] = lambda _arm: True
    hangs: Callable[[Arm], bool] = lambda _arm: False
    dies_in: frozenset[str] = frozenset()
    silent_off: frozenset[str] = frozenset()
    cpu_beside: float = 0.0
    wrapped_depth: int | None = None
    inside: int = 0
    serves_before: bool = False
    cut_at: frozenset[str] = frozenset()
    altered_at: frozenset[str] = frozenset()
    hands_in: Mapping[str, Hand] = field(default_factory=dict)
    hand: Intervention | None = None
    back_at: DraftmarkError | None = None
    fits: Fit | None = None
    found: FitFigures | None = None
    limits: Mapping[str, ServerLimits] = field(default_factory=dict)
    accept: float = 0.5
    chain: float | None = None
    seed: int = 1
    clock: FakeClock = field(default_factory=FakeClock)
    events: list[str] = field(default_factory=list)
    running: Arm | None = None
    pid: int = 100
    counted: Counters = field(
        default_factory=lambda: Counters(drafts=0, drafted_tokens=0, accepted_tokens=0, output_tokens=0)
    )
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.rng.seed(self.seed)

    def happens(self, event: str) -> None:
        """Note it; raises HostError where the host is lost just then."""
        self.events.append(event)
        if event in self.cut_at:
            self.cut_at -= {event}
            raise HostError("fakehost: the connection was lost")


class FakeEngine:
    """ports.Engine with the command line `fake-server --depth N --adaptive`."""

    name = "fake"

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    def recognises(self, command: Sequence[str]) -> bool:
        """Its own program's name."""
        return bool(command) and command[0] == "fake-server"

    def base_url(self, command: Sequence[str]) -> str:
        """Always the same place."""
        return "http://127.0.0.1:1"

    def depth(self, command: Sequence[str]) -> int:
        """What stands after --depth."""
        return int(command[command.index("--depth") + 1]) if "--depth" in command else 0

    def arm(self, command: Sequence[str]) -> Arm:
        """With --adaptive as its one knob."""
        return Arm(self.depth(command), (("--adaptive", ""),) if "--adaptive" in command else ())

    def started(self, command: Sequence[str]) -> Arm:
        """The arm that was asked for, its knobs included."""
        knobs = ((k.flag, k.runs) for k in self.knobs(command) if k.runs is not None)
        arm = self.arm(command)
        return replace(arm, knobs=(*arm.knobs, *knobs))

    def adaptive(self, command: Sequence[str]) -> Arm:
        """From 3 on."""
        return Arm(3, (("--adaptive", ""),))

    def knobs(self, command: Sequence[str]) -> tuple[KnobSpec, ...]:
        """A share and two whole numbers."""
        return tuple(
            KnobSpec(
                name=name,
                flag=f"--{name}",
                kind=kind,
                step=step,
                runs=command[command.index(f"--{name}") + 1] if f"--{name}" in command else None,
            )
            for name, kind, step in (("mem", KnobKind.SHARE, 0.01), ("slots", KnobKind.WHOLE, None))
        )

    def with_arm(self, command: Sequence[str], arm: Arm) -> tuple[str, ...]:
        """Replace --depth, --adaptive and what the arm names."""
        words = [word for word in command if word != "--adaptive"]
        for flag in ("--depth", *(flag for flag, value in arm.knobs if value)):
            if flag in words:
                index = words.index(flag)
                del words[index : index + 2]
        knobs = (word for knob in arm.knobs for word in knob if word)
        return (*words, *(("--depth", str(arm.depth)) if arm.depth else ()), *knobs)

    def refuse(self, command: Sequence[str], arm: Arm) -> Refusal | None:
        """Nothing is known beforehand."""
        return None

    def check(self, command: Sequence[str]) -> None:
        """No files."""

    def fit(self, command: Sequence[str], arms: Sequence[Arm], scene: FitScene) -> Fit | None:
        """As the fake is told."""
        return self._world.fits

    def fit_figures(self, log: Sequence[str]) -> FitFigures | None:
        """As the fake is told."""
        return self._world.found

    def decisive(self, log: Sequence[str], file: str) -> Evidence | None:
        """The first line that says fatal."""
        for number, line in enumerate(log, start=1):
            if "fatal" in line:
                return Evidence(file=file, line=number, time=None, text=line)
        return None

    def speculation_lost(self, log: Sequence[str], file: str) -> Evidence | None:
        """Never by the log."""
        return None

    def gpus(self, command: Sequence[str]) -> int | None:
        """None."""
        return 0

    def with_port(self, command: Sequence[str], port: int) -> tuple[str, ...]:
        """A flag more; it has but one place."""
        return (*command, "--port", str(port))

    def cpu_bound(self, command: Sequence[str]) -> bool | None:
        """As the embedded engine."""
        return True

    def headers(self, command: Sequence[str]) -> dict[str, str]:
        """None."""
        return {}

    def hazards(self, command: Sequence[str]) -> list[dict[str, str]]:
        """None."""
        return []

    def drain(self, command: Sequence[str]) -> DrainFacts:
        """At once."""
        return DrainFacts(drains=True, worst_s=1.0, source="the fake")

    def request_extra(self) -> dict[str, object]:
        """Nothing."""
        return {}

    def summary(self, command: Sequence[str]) -> dict[str, str]:
        """The method only."""
        return {"method": "fake"}

    def client(self, base_url: str, headers: object) -> FakeClient:
        """A client of the same world."""
        return FakeClient(self._world)


class FakeClient:
    """ports.EngineClient of a world."""

    base_url = "http://127.0.0.1:1"

    def __init__(self, world: FakeWorld) -> None:
        self._world = world

    def health(self) -> Health:
        """Ready as soon as it runs."""
        running = self._world.running
        if running is None:
            return Health.UNREACHABLE
        return Health.LOADING if self._world.hangs(running) else Health.READY

    def generate_one(self) -> None:
        """Always."""
        self._world.events.append("generate")

    def speculation(self) -> SpeculationState:
        """On, unless the world says that it was silently lost."""
        arm = self._world.running
        on = arm is not None and arm.depth > 0 and arm.name not in self._world.silent_off
        self._world.events.append("verify")
        return SpeculationState(on=on, depth=None, source="fake")

    def limits(self) -> ServerLimits:
        """As the world says."""
        return self._world.limits.get(self._world.running.name if self._world.running else "", ServerLimits())

    def counters(self) -> Counters:
        """As the fake load left them."""
        return self._world.counted

    def activity(self) -> Activity:
        """What the world says."""
        return Activity(running=self._world.inside, queued=0)

    def fresh(self) -> None:
        """Nothing is cached."""


class FakeSupervisor:
    """ports.Supervisor of a world."""

    original = ("fake-server",)

    def __init__(self, world: FakeWorld) -> None:
        self._world = world
        self._engine = FakeEngine(world)
        self._interlock = Interlock()
        self.altered: tuple[str, ...] = ()
        self.kept: tuple[str, ...] | None = None
        self._untouched = world.running is not None

    def start(self, command: Sequence[str], log: Path) -> Identity:
        """Start, or write the reason into the log and end."""
        self._interlock.check("a start")
        if self._world.running is not None:
            raise RefusedError("an instance is running already")
        arm = self._engine.started(command)
        self._world.happens(f"start {arm.name}")
        if self._alters(f"start {arm.name}"):
            raise FailedError("somebody else has changed the service meanwhile", evidence=self.altered)
        self._world.pid += 1
        self._world.clock.sleep(0.5)
        if not self._world.starts(arm):
            log.write_text("loading\nfatal: out of everything\n", encoding="utf-8")
            return Identity(pid=self._world.pid, started_ticks=1)
        if command[0] != "fake-server":
            raise StartError(f"no such program: {command[0]}")
        self._world.running = arm
        return Identity(pid=self._world.pid, started_ticks=1)

    def _alters(self, event: str) -> bool:
        if event in self._world.altered_at:
            self.altered = ("/etc/fake.conf was changed",)
        return bool(self.altered)

    def heed(self) -> Intervention | None:
        """As the world says; a stop for good."""
        found = self._world.hand
        if found is None or found.hand is not Hand.STOPPED:
            self._world.hand = None
        return found

    def identity(self) -> Identity | None:
        """Who runs now."""
        return Identity(pid=self._world.pid, started_ticks=1) if self._world.running is not None else None

    def exit_code(self) -> int | None:
        """1 when it is gone."""
        return None if self._world.running is not None else 1

    def gather_log(self) -> None:
        """It is written at once."""

    def measuring(self) -> AbstractContextManager[None]:
        """As every supervisor has to."""
        return self._interlock.measuring()

    def check(self) -> None:
        """It is."""

    def look(self) -> None:
        """Nobody else is there."""

    def keep(self, command: Sequence[str]) -> None:
        """From now on what runs is what is found."""
        self._world.happens("keep")
        self.kept = tuple(command)

    def restore(self, *, force: bool = False) -> bool:
        """What ran before runs on, or again."""
        self._world.happens("restore")
        self._alters("restore")
        if self._world.running is not None and not self._untouched:
            self.stop(force=force)
        if self._world.hand is not None:
            return False
        if self._world.serves_before and self._world.running is None:
            self._world.running = Arm(0)
            self._world.clock.sleep(0.5)
        return self._world.serves_before

    def stop(self, *, hurry: bool = False, force: bool = False) -> StopReport:
        """Stop at once."""
        self._interlock.check("a stop")
        self._world.happens("stop")
        self._untouched = False
        alive = self._world.running is not None
        self._world.running = None
        self._world.clock.sleep(0.1)
        return StopReport(
            outcome=StopOutcome.CLEAN if alive else StopOutcome.ALREADY_DEAD,
            signals=("TERM",) if alive else (),
            seconds=0.1,
            exit_code=0 if alive else 1,
        )

    def await_host(self, error: HostError) -> None:
        """As the world says."""
        self._world.events.append("await host")
        if self._world.back_at is not None:
            raise self._world.back_at from error

    def commands(self) -> list[tuple[str, ...]]:
        """What was started, unless the world has a wrapper that drops it."""
        if self._world.running is None:
            return []
        own = self._world.running
        runs = own if self._world.wrapped_depth is None else Arm(self._world.wrapped_depth)
        return [self._engine.with_arm(("fake-server",), runs)]

    def cpu(self) -> CpuSample:
        """Two cores: the server busy on one, the rest as the world says."""
        now = self._world.clock.now_s
        return CpuSample(busy_s=now * (1.0 + self._world.cpu_beside), group_s=now, own_s=0.0, cpus=2)


class NullObserver:
    """tune.trial.Observer that looks away."""

    def trial_begins(self, slot: Slot) -> None:
        """Nothing."""

    def phase(self, slot: Slot, what: str, limit_s: float | None) -> None:
        """Nothing."""

    def progress(self, done: int, total: int, tok_s: float | None, errors: int) -> None:
        """Nothing."""

    def trial_ends(self, trial: Trial) -> None:
        """Nothing."""


def fake_ends(world: FakeWorld) -> tuple[FakeSupervisor, Drain, Ends]:
    """What a sweep of a world is given beside its trials."""
    supervisor, engine = FakeSupervisor(world), FakeEngine(world)
    drain = Drain(supervisor=supervisor, clock=world.clock)
    starter = Starter(
        engine=engine, supervisor=supervisor, clock=world.clock, port_holder=lambda _url: None, timeout_s=600.0
    )
    ends = Ends(
        engine=engine,
        supervisor=supervisor,
        drain=drain,
        clock=world.clock,
        starter=starter,
        watch=None,
        reach=as_it_stands,
        ready_s=600.0,
        on_wait=lambda _what, _limit: None,
    )
    return supervisor, drain, ends
