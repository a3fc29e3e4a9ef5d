"""What a load run is told, and what it brings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from draftmark.errors import UsageError
from draftmark.load.protocols import APIS
from draftmark.model import ClientHealth, Prompt, RequestRecord, Workload

_WARMUP_GAP_S = 1.0
_WARMUP_GAPS = 16


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What a load run brought.

    Attributes:
        records: In the order in which the requests ended, warm-up included.
        client: The load generator's own health.
        assumptions: What had to be assumed, in words.
        stopped_because: Why it ended before everything was sent, in words; None when it did not.
        unsent: Measured requests that were planned and never sent, by the reason in words. With the measured
            records they make up the plan.
        disturbed: Why the sending itself was not as planned, in words; empty when it was.
    """

    records: tuple[RequestRecord, ...]
    client: ClientHealth
    assumptions: tuple[str, ...]
    stopped_because: str | None
    unsent: Mapping[str, int] = field(default_factory=dict)
    disturbed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt to be sent, with whatever follows it.

    Attributes:
        tag: Of its first request; a follow-up's has the turn behind it: `bench-27.1`.
        index: Its place among the measured ones, or among the warm-up.
        at_s: Open loop: when it goes out, seconds from the begin. Warm-up goes out before that.
    """

    tag: str
    prompt: Prompt
    warmup: bool
    index: int = 0
    at_s: float | None = None

    @property
    def turns(self) -> int:
        """Requests that it makes."""
        return 1 + len(self.prompt.follow_ups)


class Stop:
    """How a run is told to end and to hand over what it has. Belongs to the thread of its event loop."""

    def __init__(self) -> None:
        self.because: str | None = None
        self._seen = asyncio.Event()

    def request(self, because: str) -> None:
        """End the run soon; the first reason counts."""
        if self.because is None:
            self.because = because
        self._seen.set()

    async def requested(self) -> str:
        """Wait for it; the reason."""
        await self._seen.wait()
        return self.because or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Everything that a load run is told.

    Attributes:
        workload: What is asked: its prompts in order, from the start again when used up.
        concurrency: Closed loop: slots. Open loop: the most conversations under way at once; 0 for no limit.
        api: One of `APIS`.
        repeat: Closed loop: passes over the workload. Open loop: `send_at_s` says how many are asked.
        warmup: Prompts sent first, from the start of the workload, and marked; None is one a slot.
        extra: The engine's further body fields.
        request_timeout_s: Limit for one request.
        max_seconds: Limit for the whole; what was measured until then is kept.
        model: None asks `/v1/models`, and leaves the field out if that fails.
        first_tag: Number of the first request's tag.
        max_errors: So many connection-level failures in a row end the run; None is twice the most that were under
            way at once, at least 8.
        send_at_s: Open loop: when each measured prompt goes out, in seconds from the begin, none earlier than the
            one before; None is the closed loop.
        think_s: Pause before each measured request of a closed loop, and before each follow-up of an open one;
            taken in turn, from the start again when used up.
        stream: Ask for the answer as a stream; otherwise it comes whole, and nothing is known of its tokens' times.
        part: (k, n): of the whole plan, this is the share of the process k of n: the prompts k, k + n, k + 2n, …
            with their times and tags, and as many of the slots.

    Raises:
        UsageError: A figure out of its range, an unknown API, or prompts that it cannot be asked with.
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
    send_at_s: tuple[float, ...] | None = None
    think_s: tuple[float, ...] = ()
    stream: bool = True
    part: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        if self.api not in APIS:
            raise UsageError(f"unknown API {self.api!r}", next_step=f"use one of: {', '.join(APIS)}")
        for name, value, least in (
            ("concurrency", self.concurrency, 0 if self.open else 1),
            ("repeat", self.repeat, 1),
            ("warmup", 0 if self.warmup is None else self.warmup, 0),
        ):
            if value < least:
                raise UsageError(f"{name} is {value}; it must be at least {least}")
        for name, limit in (("request_timeout_s", self.request_timeout_s), ("max_seconds", self.max_seconds)):
            if limit is not None and not limit > 0:
                raise UsageError(f"{name} is {limit:g}; it must be above 0")
        if not all(0 <= pause < float("inf") for pause in self.think_s):
            raise UsageError("a think time is below 0 or without an end")
        k, n = self.part
        if not 0 <= k < n or 0 < self.concurrency < n:
            raise UsageError(f"{self.concurrency} slots cannot be shared among {n} processes")
        self._look_at_schedule()
        self._look_at_prompts()

    def _look_at_schedule(self) -> None:
        at = self.send_at_s
        if at is None:
            return
        if not at:
            raise UsageError("the schedule has no time in it")
        if not all(0 <= a <= b < float("inf") for a, b in pairwise((0.0, *at))):
            raise UsageError("the schedule does not go forward, from 0 on")

    def _look_at_prompts(self) -> None:
        for prompt in self.workload.prompts:
            if prompt.token_ids is None:
                continue
            if not prompt.token_ids:
                raise UsageError(f"prompt {prompt.id} has no token in it")
            if not APIS[self.api].token_ids:
                raise UsageError(
                    f"{self.api} is asked with messages, and prompt {prompt.id} is made of token ids",
                    next_step=f"ask over --api {' or '.join(a.name for a in APIS.values() if a.token_ids)}",
                )
            if prompt.follow_ups:
                raise UsageError(f"prompt {prompt.id} is made of token ids, which no follow-up can go on from")

    @property
    def open(self) -> bool:
        """Whether requests go out at their times, whatever became of the others."""
        return self.send_at_s is not None

    @property
    def conversations(self) -> int:
        """Measured prompts of the whole plan; as many requests where none has a follow-up."""
        return len(self.workload.prompts) * self.repeat if self.send_at_s is None else len(self.send_at_s)

    @property
    def total(self) -> int:
        """Measured requests of this part, follow-ups included."""
        k, n = self.part
        prompts = self.workload.prompts
        return sum(1 + len(prompts[i % len(prompts)].follow_ups) for i in range(k, self.conversations, n))

    @property
    def warmups(self) -> int:
        """Warm-up prompts of the whole plan."""
        return self.concurrency if self.warmup is None else self.warmup

    @property
    def slots(self) -> int:
        """Of the concurrency, this part's share."""
        k, n = self.part
        return self.concurrency // n + (k < self.concurrency % n)

    @property
    def lead_s(self) -> float:
        """Open loop: by how much the first warm-up request goes out before the begin."""
        return self.warmups * self._warmup_gap_s()

    def jobs(self) -> Iterator[Job]:
        """Warm-up, then the measured prompts, without a break between them; an open loop's in the order of time."""
        prompts = self.workload.prompts
        k, n = self.part
        lead, gap = self.lead_s, self._warmup_gap_s()
        for i in range(k, self.warmups, n):
            at = i * gap - lead if self.open else None
            yield Job(f"bench-{self.first_tag + i}", prompts[i % len(prompts)], True, i, at)
        first = self.first_tag + self.warmups
        for i in range(k, self.conversations, n):
            at = self.send_at_s[i] if self.send_at_s is not None else None
            yield Job(f"bench-{first + i}", prompts[i % len(prompts)], False, i, at)

    def think(self, job: Job, turn: int) -> float:
        """The pause before this turn of a job, in seconds."""
        if not self.think_s or job.warmup or (self.open and turn == 0):
            return 0.0
        return self.think_s[(job.index + turn) % len(self.think_s)]

    def _warmup_gap_s(self) -> float:
        """The warm-up of an open loop comes at the pace of the schedule's first requests."""
        if not self.send_at_s:
            return 0.0
        first = self.send_at_s[: _WARMUP_GAPS + 1]
        return min(_WARMUP_GAP_S, (first[-1] - first[0]) / max(1, len(first) - 1))
