"""What a report shows of a run: the result document as frozen records. Unknown figures are None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from draftmark.report.figures import UNKNOWN

ALL = "all"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Against the baseline, with the simultaneous interval where there is one."""

    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def reading(self) -> str:
        """What the interval allows to be said: `better`, `worse`, or `level`."""
        if self.low is not None and self.low > 1:
            return "better"
        if self.high is not None and self.high < 1:
            return "worse"
        return "level"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One arm on one axis, or on a summary over workloads (which has no trial values).

    Attributes:
        values: tok/s of the single trials, in the order of the rounds.
    """

    tok_s: float | None = None
    ratio: Ratio | None = None
    values: tuple[float, ...] = ()
    ttft_ms_p50: float | None = None
    tpot_ms_p50: float | None = None
    accept_len: float | None = None
    tokens_per_step: float | None = None
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None


NOTHING = Figure()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmView:
    """One configuration and what became of it. `status` is None while it waits for its first trial.

    Attributes:
        max_running: Requests that it takes at once; None where its engine does not say.
        kv_tokens: Tokens in its KV pool, likewise.
    """

    name: str
    depth: float | None
    label: str
    status: str | None
    because: str | None
    fit: str | None
    why: str | None
    latency: Figure
    throughput: Figure
    accept_len: float | None
    tokens_per_step: float | None
    start_s: float | None
    trials: tuple[float, ...]
    axes: Mapping[str, Figure]
    max_running: float | None = None
    kv_tokens: float | None = None

    @property
    def measured(self) -> bool:
        """Whether there is any figure to show."""
        if self.status == "predicted":
            return False
        return any(figure.tok_s is not None for figure in (self.latency, self.throughput, *self.axes.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisView:
    """The decision on one axis: a workload, or all of them, at one concurrency."""

    name: str
    workload: str
    concurrency: int
    baseline: float | None
    values: Mapping[str, float]
    ratios: Mapping[str, Ratio]
    best: str | None
    choice: str | None
    ties: tuple[str, ...]
    verdict: str | None
    because: str | None
    noise: float | None
    drift: Ratio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceView:
    """Names of the arms that were chosen; None where the figures settle nothing."""

    latency: str | None = None
    throughput: str | None = None
    recommended: str | None = None
    ties: tuple[str, ...] = ()
    because: str | None = None
    by_workload: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathView:
    """What the post-mortem of a trial says; the whole of it is at `path`, in the run directory.

    Attributes:
        evidence: The first line that proves it, with its place: `server.log:2  fatal: …`.
    """

    path: str | None
    cause: str
    confidence: str | None
    summary: str | None
    evidence: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """An arm started once. `at_s` counts from the start of the run."""

    number: int
    round: int | None
    arm: str
    status: str | None
    because: str | None
    at_s: float | None
    start_s: float | None
    measure_s: float | None
    total_s: float | None
    stop: str | None
    stop_s: float | None
    disturbed: tuple[str, ...]
    death: DeathView | None = None
    max_running: float | None = None

    @property
    def counts(self) -> bool:
        """Whether its figures entered the decision."""
        return self.status == "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """What was asked of the server, with the hash that makes two runs comparable."""

    name: str
    about: str | None
    source: str | None
    prompts: float | None
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """The whole run."""

    draftmark: str | None
    service: str
    engine: str | None
    engine_version: str | None
    command: tuple[str, ...]
    host: Mapping[str, str]
    started_at: str | None
    finished_at: str | None
    workloads: tuple[WorkloadView, ...]
    concurrency: tuple[int, ...]
    rounds: float | None
    tie_margin: float | None
    baseline: str | None
    arms: tuple[ArmView, ...]
    axes: tuple[AxisView, ...]
    front: tuple[str, ...]
    choice: ChoiceView
    verdict: str | None
    exit_status: int | None
    restarts: float | None
    downtime_s: float | None
    restored: bool | None
    kept: str | None
    complete: bool | None
    trials: tuple[TrialView, ...]
    warnings: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[ArmView, ...]:
        """Arms with figures."""
        return tuple(arm for arm in self.arms if arm.measured)

    @property
    def limited(self) -> bool:
        """Whether it is known of any arm how much it takes at once."""
        return any(arm.max_running is not None or arm.kv_tokens is not None for arm in self.arms)

    @property
    def unmeasured(self) -> tuple[ArmView, ...]:
        """Arms without figures: refused, did not start, void, or not reached."""
        return tuple(arm for arm in self.arms if not arm.measured)

    @property
    def set_aside(self) -> tuple[TrialView, ...]:
        """Trials that count nowhere, and those that were disturbed in part."""
        return tuple(trial for trial in self.trials if not trial.counts or trial.disturbed)

    @property
    def own_axes(self) -> tuple[AxisView, ...]:
        """Axes of a single workload, the lowest concurrency first, workloads in their own order."""
        order = {workload.name: place for place, workload in enumerate(self.workloads)}
        own = [axis for axis in self.axes if axis.workload != ALL]
        return tuple(sorted(own, key=lambda axis: (axis.concurrency, order.get(axis.workload, len(order)))))

    @property
    def shown_axes(self) -> tuple[AxisView, ...]:
        """Axes worth showing: the pooled one adds nothing when there is a single workload."""
        own = self.own_axes
        if len({axis.workload for axis in own}) == 1:
            return own
        pooled = [axis for axis in self.axes if axis.workload == ALL]
        return tuple(sorted([*own, *pooled], key=lambda axis: (axis.concurrency, axis.workload == ALL)))

    @property
    def verdict_sentence(self) -> str:
        """The one sentence that a reader should take away. There is always one."""
        if self.verdict:
            return self.verdict
        if not self.measured:
            return "No verdict: nothing was measured yet."
        return "No verdict: the figures at hand settle nothing yet."

    def arm(self, name: str) -> ArmView | None:
        """The arm of that name."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def death(self, arm: ArmView) -> DeathView | None:
        """The arm's latest post-mortem."""
        own = (trial.death for trial in self.trials if trial.arm == arm.name)
        return next((death for death in own if death is not None and death.path == arm.why), None)

    def label(self, name: str | None) -> str:
        """What people call the arm of that name."""
        if name is None:
            return UNKNOWN
        arm = self.arm(name)
        return arm.label if arm else name
