"""The nouns: what Draftmark talks about. Frozen, with their invariants; no I/O, only the standard library.

Units are in the names: `_s` seconds, `_ms` milliseconds, `_tok_s` tokens per second. An unknown figure is None,
never 0. Times named `at_s` are seconds on one monotonic clock counted from the start of the measurement.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum


class ServiceKind(StrEnum):
    """How a service is named on the command line."""

    UNIT = "unit"
    CMD = "cmd"
    DOCKER = "docker"
    URL = "url"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class ServiceRef:
    """A parsed service reference, such as `cmd:"llama-server -m x.gguf"`.

    Attributes:
        kind: The supervisor that runs it.
        target: Unit name, command line, container name or URL; empty for `embedded:`.
    """

    kind: ServiceKind
    target: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.target}"


# --- arms -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration that could be tried.

    Attributes:
        depth: Draft tokens proposed per verification; 0 is speculation off.
        knobs: Further flags of the engine, as (flag, value) pairs in a stable order.
    """

    depth: int
    knobs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"depth {self.depth} is negative")

    @property
    def name(self) -> str:
        """Short, unique among the arms of a run, fit for a directory name."""
        base = "off" if self.depth == 0 else f"d{self.depth}"
        return "-".join([base, *(f"{k.lstrip('-')}={v}" for k, v in self.knobs)])

    @property
    def label(self) -> str:
        """For people: `off`, `depth 4`, `depth 4, mem-fraction=0.85`."""
        base = "off" if self.depth == 0 else f"depth {self.depth}"
        return ", ".join([base, *(f"{k.lstrip('-')}={v}" for k, v in self.knobs)])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an arm is not started: known beforehand, with the fact it rests on.

    Attributes:
        code: `dead-depth` (would draft nothing), `does-not-fit`, `bad-flag`, ….
        because: One sentence for people.
    """

    code: str
    because: str


# --- load -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing to ask, with its sampling, so that the same text is asked the same way of every arm.

    Attributes:
        id: Unique within its workload.
        messages: The conversation to send.
        max_tokens: Most tokens the answer may have.
        temperature: 0 is greedy.
        seed: Sampling seed; None leaves it to the server.
    """

    id: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A named set of prompts of one kind; kinds are reported apart, because speculation differs between them.

    Attributes:
        name: `copy`, `chat`, or the stem of the user's file.
        prompts: In the order they are sent.
        source: `built-in` or the file's name.
        about: One line: what kind of text it is.
    """

    name: str
    prompts: tuple[Prompt, ...]
    source: str = "built-in"
    about: str = ""

    def __post_init__(self) -> None:
        if not self.prompts:
            raise ValueError(f"workload {self.name} has no prompts")

    @property
    def sha256(self) -> str:
        """Hash of everything that is sent; runs with different hashes are not compared."""
        body = [
            [p.id, [[m.role, m.content] for m in p.messages], p.max_tokens, p.temperature, p.seed]
            for p in self.prompts
        ]
        return hashlib.sha256(json.dumps(body, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What one request did. One line of `requests.jsonl`; every figure of a measurement follows from these.

    Attributes:
        tag: `bench-27`: sent as the request id, so that the server's log can tell ours from others.
        workload: Name of the workload it belongs to.
        prompt_id: Which prompt.
        concurrency: The closed loop's number of slots.
        warmup: Sent to fill the slots; not counted in any figure.
        sent_at_s: The first byte was written.
        first_byte_at_s: First byte of the answer's body.
        first_token_at_s: The first chunk that carries text.
        last_token_at_s: The last chunk that carries text.
        end_at_s: The answer was complete, or the error was seen.
        chunks: (seconds since `sent_at_s`, cumulative output tokens) per chunk with text.
        chunk_counts: Where the per-chunk counts come from: `server` (cumulative counts in the stream),
            `spread` (the server's total shared evenly over the chunks), `chunks` (one a chunk: an assumption).
        prompt_tokens: As the server counts them.
        output_tokens: As the server counts them; None when it gave no count.
        drafted_tokens: Draft tokens proposed for this request, from the server; None if not reported.
        accepted_tokens: Draft tokens accepted.
        finish: The server's finish reason.
        error: Kind of error, such as `http-500`, `reset`, `no-end`; `cut` when we ended it; None when it completed.
        error_detail: The server's own words, cut at 300 characters.
        text_sha256: Hash of the text received, to see whether two arms said the same.
    """

    tag: str
    workload: str
    prompt_id: str
    concurrency: int
    warmup: bool = False
    sent_at_s: float
    first_byte_at_s: float | None = None
    first_token_at_s: float | None = None
    last_token_at_s: float | None = None
    end_at_s: float
    chunks: tuple[tuple[float, float], ...] = ()
    chunk_counts: str = "spread"
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    finish: str | None = None
    error: str | None = None
    error_detail: str | None = None
    text_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and percentiles of one figure (linear interpolation between ranks). None where nothing was seen."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What became of the drafts over one measurement (never since server start).

    Attributes:
        drafts: Verification rounds that had a draft; None where the engine does not count them.
        drafted_tokens: Tokens proposed.
        accepted_tokens: Tokens accepted.
        output_tokens: Tokens put out in the same span.
        source: `counters` (before and after the measurement) or `requests` (sums over the answers).
    """

    drafts: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    output_tokens: int | None
    source: str

    @property
    def accept_len(self) -> float | None:
        """Tokens gained per verification round, bonus token included: 1 + accepted / drafts."""
        if not self.drafts or self.accepted_tokens is None:
            return None
        return 1.0 + self.accepted_tokens / self.drafts

    @property
    def tokens_per_step(self) -> float | None:
        """Output tokens per target pass, rounds without a draft included: output / (output - accepted).

        With n-gram drafting most rounds have no draft at all, so this, not accept_len, bounds the gain.
        """
        if not self.output_tokens or self.accepted_tokens is None:
            return None
        steps = self.output_tokens - self.accepted_tokens
        return self.output_tokens / steps if steps > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """How the load generator itself fared; a client that lagged voids the measurement.

    Attributes:
        loop_lag_ms_p99: How late its event loop ran what was due, 99th percentile.
        loop_lag_ms_max: The longest single lag: a pause of the whole process is one lag, which no percentile shows.
        loop_pauses_ms: Sum of the lags over 100 ms.
        cpu_s: CPU seconds of its process.
    """

    loop_lag_ms_p99: float | None = None
    loop_lag_ms_max: float | None = None
    loop_pauses_ms: float | None = None
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steady part of a measurement: every slot busy.

    Attributes:
        start_at_s: When the last slot got its first token.
        end_at_s: When a slot first fell empty with nothing left to send.
        whole: True when no steady part was long enough, and the whole measurement is used instead.
    """

    start_at_s: float
    end_at_s: float
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One workload at one concurrency, as the load run saw it.

    Attributes:
        workload: Name of the workload.
        concurrency: Slots of the closed loop.
        requests: Completed requests, warm-up left out.
        errors: Count per kind.
        duration_s: First send to last end, warm-up left out.
        window: Where `output_tok_s` was counted.
        output_tok_s: Aggregate output tokens per second over the window.
        decode_tok_s: Per prompt id: (output tokens - 1) / (last token - first token), in the order sent; one
            value per completed request. The latency axis at concurrency 1.
        ttft_ms: Send to first chunk with text.
        tpot_ms: (last - first token) / (tokens - 1), one value a request.
        itl_ms: Amortised inter-token latency: each chunk gap shared by its tokens, pooled per token.
        chunk_gap_ms: Gaps between chunks, whatever they carry. Not inter-token latency.
        e2e_ms: Send to end.
        output_tokens: Sum over completed requests, the server's own counts where given.
        acceptance: None when speculation is off or nothing was reported.
        client: The load generator's own health.
        assumptions: What had to be assumed, in words (a server without usage, …).
        disturbed: Why the figures are not to be trusted, in words; empty when nothing was seen.
    """

    workload: str
    concurrency: int
    requests: int
    errors: dict[str, int]
    duration_s: float
    window: Window | None
    output_tok_s: float | None
    decode_tok_s: tuple[tuple[str, float], ...]
    ttft_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    chunk_gap_ms: Spread
    e2e_ms: Spread
    output_tokens: int
    prompt_tokens: int | None = None
    acceptance: Acceptance | None = None
    client: ClientHealth = field(default_factory=ClientHealth)
    assumptions: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`copy@4`: names the axis this measurement belongs to."""
        return f"{self.workload}@{self.concurrency}"


# --- service ----------------------------------------------------------------------------------------------


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
class Counters:
    """An engine's cumulative counters at one moment. None where it does not expose them."""

    drafts: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    output_tokens: int | None = None
    raw: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Requests inside the server now. None where the engine does not say."""

    running: int | None
    queued: int | None


# --- trials -----------------------------------------------------------------------------------------------


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
        stop: How the stop went.
        requests: Number of request records written; tells a cut file apart.
        counters: Per axis (`copy@1`): engine counters over that measurement, as differences.
        client: Per axis: the load generator's health.
        disturbed: Per axis: reasons why it is not to be trusted.
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
    stop: StopReport | None = None
    requests: int = 0
    counters: dict[str, Counters] = field(default_factory=dict)
    client: dict[str, ClientHealth] = field(default_factory=dict)
    disturbed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def directory(self) -> str:
        """`03-d6`."""
        return f"{self.number:02d}-{self.arm.name}"
