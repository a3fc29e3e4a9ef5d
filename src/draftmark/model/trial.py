"""An arm started once."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from draftmark.model.arms import Arm
from draftmark.model.fit import FitFigures
from draftmark.model.measurement import ClientHealth
from draftmark.model.server import Counters, Evidence, ServerLimits, SpeculationState, StopReport


class TrialStatus(StrEnum):
    """What became of a trial. The first five are the contract's `status` values."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    DID_NOT_START = "did-not-start"
    REFUSED = "refused"
    VOID = "void"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An arm started once: start, ready, verify, measure, stop. Written when it is over.

    Attributes:
        number: Slot in the schedule, from 1; also the number in its directory's name.
        round: Which round of the schedule, from 1.
        arm: What was tried.
        status: How it ended.
        because: Why, when it is not `measured`.
        evidence: Lines that show it.
        started_at: Wall clock, ISO 8601 UTC.
        start_s: Start to ready; None when never ready.
        downtime_s: Seconds in which the service could not answer others, this trial's start and stop.
        total_s: Whole trial.
        command: The command line that ran, secrets redacted.
        speculation: By the server's own word.
        figures: What it had of the memory, by its own log.
        limits: How much it takes at once, by its own word; None in records of before it was asked.
        stop: How the stop went.
        requests: Number of request records written; tells a cut file apart.
        counters: Per axis (`copy@1`): engine counters over that measurement, as differences.
        client: Per axis: the load generator's health.
        disturbed: Per axis: reasons why it is not to be trusted.
        node: Computer of a cluster that it ran on; None for the one that the service has.
    """

    number: int
    round: int
    arm: Arm
    status: TrialStatus
    because: str | None = None
    evidence: tuple[Evidence, ...] = ()
    started_at: str
    start_s: float | None = None
    downtime_s: float | None = None
    total_s: float
    command: tuple[str, ...] = ()
    speculation: SpeculationState | None = None
    figures: FitFigures | None = None
    limits: ServerLimits | None = None
    stop: StopReport | None = None
    requests: int = 0
    counters: dict[str, Counters] = field(default_factory=dict)
    client: dict[str, ClientHealth] = field(default_factory=dict)
    disturbed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    node: str | None = None

    @property
    def directory(self) -> str:
        """`03-d6`."""
        return f"{self.number:02d}-{self.arm.name}"
