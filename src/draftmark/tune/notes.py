"""What a trial gathers on its way, and how it ends before its time."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftmark.model import (
    ClientHealth,
    Counters,
    Evidence,
    FitFigures,
    ServerLimits,
    SpeculationState,
    StopReport,
    TrialStatus,
)
from draftmark.ports import Failure


@dataclass(slots=True)
class Notes:
    """What a trial gathers while it runs; frozen into a Trial at its end."""

    status: TrialStatus = TrialStatus.VOID
    because: str | None = None
    evidence: tuple[Evidence, ...] = ()
    began_s: float | None = None
    start_s: float | None = None
    speculation: SpeculationState | None = None
    figures: FitFigures | None = None
    limits: ServerLimits | None = None
    stop: StopReport | None = None
    counters: dict[str, Counters] = field(default_factory=dict)
    client: dict[str, ClientHealth] = field(default_factory=dict)
    disturbed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    drafted: int | None = None

    def count(self, drafted: int | None) -> None:
        """Sum the tokens drafted; stays None while no source has told a number."""
        if drafted is not None:
            self.drafted = (self.drafted or 0) + drafted


class Over(Exception):  # noqa: N818 - control flow inside a trial
    """The trial ends here, with its reason.

    Attributes:
        failure: Of the server itself, where that is why.
    """

    def __init__(
        self,
        status: TrialStatus,
        because: str,
        evidence: tuple[Evidence, ...] = (),
        failure: Failure | None = None,
    ) -> None:
        super().__init__(because)
        self.status = status
        self.because = because
        self.evidence = evidence
        self.failure = failure
