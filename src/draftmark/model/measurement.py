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
