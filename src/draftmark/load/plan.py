"""What a closed loop is told, and what it brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from draftmark.errors import UsageError
from draftmark.load.protocols import APIS
from draftmark.model import ClientHealth, Prompt, RequestRecord, Workload


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What a closed loop brought.

    Attributes:
        records: In the order in which the requests ended, warm-up included.
        client: The load generator's own health.
        assumptions: What had to be assumed, in words.
        stopped_because: Why it ended before everything was sent, in words; None when it did not.
    """

    records: tuple[RequestRecord, ...]
    client: ClientHealth
    assumptions: tuple[str, ...]
    stopped_because: str | None


@dataclass(frozen=True, slots=True)
class Job:
    """One request to be sent."""

    tag: str
    prompt: Prompt
    warmup: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Everything that a closed loop is told.

    Attributes:
        workload: What is asked: its prompts in order, the whole list `repeat` times.
        concurrency: Slots.
        api: `openai-chat`, `openai` or `sglang`.
        repeat: Passes over the workload.
        warmup: Requests sent first, from the start of the workload, and marked; None is one a slot.
        extra: The engine's further body fields.
        request_timeout_s: Limit for one request.
        max_seconds: Limit for the whole; what was measured until then is kept.
        model: None asks `/v1/models`, and leaves the field out if that fails.
        first_tag: Number of the first request's tag.
        max_errors: So many connection-level failures in a row end the run; None is twice the slots, at least 8.

    Raises:
        UsageError: A figure out of its range, or an unknown API.
    """

    workload: Workload
    concurrency: int
    api: str = "openai-chat"
    repeat: int = 1
    warmup: int | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    request_timeout_s: float = 120.0
    max_seconds: float | None = None
    model: str | None = None
    first_tag: int = 1
    max_errors: int | None = None

    def __post_init__(self) -> None:
        if self.api not in APIS:
            raise UsageError(f"unknown API {self.api!r}", next_step=f"use one of: {', '.join(APIS)}")
        for name, value, least in (
            ("concurrency", self.concurrency, 1),
            ("repeat", self.repeat, 1),
            ("warmup", 0 if self.warmup is None else self.warmup, 0),
        ):
            if value < least:
                raise UsageError(f"{name} is {value}; it must be at least {least}")
        for name, limit in (("request_timeout_s", self.request_timeout_s), ("max_seconds", self.max_seconds)):
            if limit is not None and not limit > 0:
                raise UsageError(f"{name} is {limit:g}; it must be above 0")

    @property
    def total(self) -> int:
        """Measured requests."""
        return len(self.workload.prompts) * self.repeat

    @property
    def warmups(self) -> int:
        """Warm-up requests."""
        return self.concurrency if self.warmup is None else self.warmup

    def jobs(self) -> Iterator[Job]:
        """Warm-up, then the measured requests, without a break between them."""
        prompts = self.workload.prompts
        for i in range(self.warmups):
            yield Job(f"bench-{self.first_tag + i}", prompts[i % len(prompts)], warmup=True)
        for i in range(self.total):
            yield Job(f"bench-{self.first_tag + self.warmups + i}", prompts[i % len(prompts)], warmup=False)
