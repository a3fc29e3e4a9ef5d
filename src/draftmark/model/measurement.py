"""What a load run saw."""

from __future__ import annotations

from dataclasses import dataclass, field


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
        histogram: Verification rounds by the number of drafts accepted in them, from none on, summed over the
            answers that told; empty where none did.
        by_position: How often the first, second, … draft was accepted; empty where the engine does not count that.
    """

    drafts: int | None
    drafted_tokens: int | None
    accepted_tokens: int | None
    output_tokens: int | None
    source: str
    histogram: tuple[int, ...] = ()
    by_position: tuple[int, ...] = ()

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
class Category:
    """What the prompts of one kind of text came to. Acceptance differs between kinds more than anything else does.

    Attributes:
        name: As the data set calls it.
        requests: Completed requests.
        output_tokens: Sum over them.
        ttft_ms: Send to first chunk with text.
        tpot_ms: One value a request.
        acceptance: Summed over the answers; None where the server does not tell.
    """

    name: str
    requests: int
    output_tokens: int
    ttft_ms: Spread
    tpot_ms: Spread
    acceptance: Acceptance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """How many requests were served as well as was asked for.

    Attributes:
        limits_ms: Longest that a request may take, by figure: `ttft`, `tpot`, `e2e`.
        requests: Measured requests that ended by themselves, the failed ones included: those miss it.
        good: Of these, the completed ones within every limit.
        req_s: `good` per second of the measurement.
    """

    limits_ms: dict[str, float]
    requests: int
    good: int
    req_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the figure of another run of the same load would lie, 19 times in 20."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """How the load generator itself fared; a client that lagged voids the measurement.

    Attributes:
        loop_lag_ms_p99: How late its event loop ran what was due, 99th percentile.
        loop_lag_ms_max: The longest single lag: a pause of the whole process is one lag, which no percentile shows.
        loop_pauses_ms: Sum of the lags over 100 ms.
        send_late_ms_p99: Open loop: how late it began to send what was due and free to go, 99th percentile. Waiting
            for a slot is not in it, nor opening a connection: it is the client's own fault.
        send_late_ms_max: The longest of these.
        cpu_s: CPU seconds of its process.
    """

    loop_lag_ms_p99: float | None = None
    loop_lag_ms_max: float | None = None
    loop_pauses_ms: float | None = None
    send_late_ms_p99: float | None = None
    send_late_ms_max: float | None = None
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steady part of a measurement: every slot busy, or, in an open loop, requests coming as planned.

    Attributes:
        start_at_s: Closed loop: when the last slot got its first token. Open loop: when the first requests have had
            the time to be answered.
        end_at_s: Closed loop: when a slot first fell empty with nothing left to send. Open loop: the end of the
            schedule.
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
        concurrency: Slots of the closed loop; in an open loop the most that may be under way at once, 0 for no
            limit.
        requests: Completed requests, warm-up left out.
        errors: Count per kind.
        duration_s: First send to last end, warm-up left out; in an open loop from the first intended send.
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
        loop: `closed` or `open`: the two answer different questions.
        cut: Requests that we broke off ourselves, at the time limit or when stopped; no errors, and not completed.
        request_rate_wanted: Open loop: requests per second of the schedule.
        request_rate_sent: Requests per second as they really went out.
        completed_req_s: Completed requests per second of the measurement.
        total_tok_s: Prompt and output tokens of completed requests per second of the measurement.
        queue_ms: Open loop: intended to real send, which no plain latency holds.
        ttft_intended_ms: Open loop: intended send to first chunk with text.
        e2e_intended_ms: Open loop: intended send to end.
        chunk_tokens: Tokens per chunk, pooled.
        chunk_sizes: (tokens, chunks that had so many), from few to many.
        categories: By kind of text, where the prompts say theirs.
        notes: What a reader must know to read the figures, in words.
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
    loop: str = "closed"
    cut: int = 0
    request_rate_wanted: float | None = None
    request_rate_sent: float | None = None
    completed_req_s: float | None = None
    total_tok_s: float | None = None
    queue_ms: Spread = field(default_factory=Spread)
    ttft_intended_ms: Spread = field(default_factory=Spread)
    e2e_intended_ms: Spread = field(default_factory=Spread)
    chunk_tokens: Spread = field(default_factory=Spread)
    chunk_sizes: tuple[tuple[int, int], ...] = ()
    categories: tuple[Category, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`copy@4`: names the axis this measurement belongs to."""
        return f"{self.workload}@{self.concurrency}"
