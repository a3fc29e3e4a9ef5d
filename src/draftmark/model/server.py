"""A server that runs: who it is, what it says of itself, how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which incarnation of the server this is. If it changes during a measurement, the measurement is void.

    Attributes:
        pid: Main process.
        started_ticks: Kernel start time of that process (clock ticks since boot): tells a reused pid apart.
        invocation: Supervisor's own id, such as systemd's InvocationID; None where there is none.
    """

    pid: int
    started_ticks: int
    invocation: str | None = None


class Foreign(StrEnum):
    """What to do about requests that are not ours."""

    ABORT = "abort"  # end the run, and put the service back
    WAIT = "wait"  # until there are none
    IGNORE = "ignore"  # measure and stop nonetheless; the server's own drain has to look after them


class StopOutcome(StrEnum):
    """How a stop ended."""

    CLEAN = "clean"  # ended by itself after the first signal
    SLOW = "slow"  # needed a second SIGTERM, or more than half of its stop timeout
    KILLED = "killed"  # needed SIGKILL
    ALREADY_DEAD = "already-dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReport:
    """One stop, kept with its trial.

    Attributes:
        outcome: How it ended.
        signals: Signals sent, in order.
        seconds: From the first signal until every process of the group was gone.
        exit_code: Exit status of the main process, negative for a signal; None if unknown.
        waited_s: How long its requests were awaited before the first signal; None where it was not asked.
        in_flight: Requests that it still had then; None where the engine does not say.
        because: Why it needed more than one signal, in words.
    """

    outcome: StopOutcome
    signals: tuple[str, ...]
    seconds: float
    exit_code: int | None
    waited_s: float | None = None
    in_flight: int | None = None
    because: str | None = None


class Hand(StrEnum):
    """What somebody other than Draftmark did to the service."""

    STOPPED = "stopped"
    RESTARTED = "restarted"
    STARTED = "started"


@dataclass(frozen=True, slots=True)
class Intervention:
    """Somebody other than Draftmark has stopped or started the service while a run had it.

    Attributes:
        hand: What was done.
        what: In words, with the service's name.
        evidence: The line that shows it.
    """

    hand: Hand
    what: str
    evidence: str

    def __str__(self) -> str:
        return f"{self.what} ({self.evidence})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFacts:
    """What a server does when it is asked to end.

    Attributes:
        drains: It finishes the requests that it has.
        worst_s: Longest time from the signal to its end, requests done; None where nothing bounds it.
        children_need_main_only: Its children die of a SIGTERM of their own, and take the drain with them: only the
            main process may get the signal.
        exits_with_sigkill: A requested stop ends with SIGKILL to itself, which is no failure.
        source: Where that is known from.
    """

    drains: bool
    worst_s: float | None
    children_need_main_only: bool = False
    exits_with_sigkill: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One line of one source. `line` counts from 1; `time` is as the source wrote it."""

    file: str
    line: int | None
    time: str | None
    text: str


class Health(StrEnum):
    """What the engine's own health endpoint says."""

    UNREACHABLE = "unreachable"
    LOADING = "loading"
    READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationState:
    """Whether the running server really speculates, by its own word.

    Attributes:
        on: None when the engine does not say.
        depth: The depth in force; None when the engine does not say.
        source: What was read, such as `GET /slots` or `server log`.
    """

    on: bool | None
    depth: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much a running server takes at once, by its own word. None where the engine does not say.

    Attributes:
        max_running_requests: Requests that it works on at once; more wait in its queue.
        kv_tokens: Tokens in its KV pool.
    """

    max_running_requests: int | None = None
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """An engine's cumulative counters at one moment. None where it does not expose them.

    Attributes:
        by_position: How often the first, second, … draft of a round was accepted; empty where that is not counted.
    """

    drafts: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    output_tokens: int | None = None
    by_position: tuple[int, ...] = ()
    raw: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Requests inside the server now. None where the engine does not say."""

    running: int | None
    queued: int | None
