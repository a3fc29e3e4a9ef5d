"""What a scheduler did in one turn, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from draftmark.sim.requests import Request


@dataclass(slots=True)
class Prefill:
    """A pass over prompts, for the log."""

    sequences: int
    tokens: int
    running: int
    queued: int
    pending: int
    used: int
    slots: int
    seconds: float


@dataclass(slots=True)
class Decode:
    """What a decode line tells: of the rounds since the last one."""

    running: int
    queued: int
    used: int
    slots: int
    graph: bool
    tokens: int
    seconds: float
    rounds: int
    taken: int


@dataclass(slots=True)
class Retraction:
    """Requests were sent back to the queue, or, the last of all, given up."""

    requests: int
    gained: int
    ratio_before: float
    ratio: float
    aborted: str | None = None


Event = Prefill | Decode | Retraction


@dataclass(slots=True)
class Turn:
    """One thing done: how long it takes, whom it gave tokens, what the log tells of it."""

    seconds: float
    gained: list[tuple[Request, int]] = field(default_factory=list)
    failed: list[Request] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Totals:
    """Counts since the start. `rounds` and `taken` are set back by a flush."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    all_rounds: int = 0
    rounds: int = 0
    taken: int = 0
    retracted: int = 0
    throughput: float = 0.0

    @property
    def accept_len(self) -> float:
        """Tokens a round; 0 before the first."""
        return 1.0 + self.taken / self.rounds if self.rounds else 0.0
