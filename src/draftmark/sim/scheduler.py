"""Continuous batching in simulated time: what runs next, how long it takes, what comes of it. Pure.

As SGLang's scheduler: prompts go first, as many as the pool, the running limit and the chunk allow, by an estimate
of what running requests will still need (`new_token_ratio`); else every running request takes one round. Where the
pool cannot hold the next round, requests are sent back to the queue, the last one first (0.5.14:
managers/schedule_policy.py, managers/schedule_batch.py).
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.sim.cost import RoundCost
from draftmark.sim.requests import Request
from draftmark.sim.turns import Decode, Prefill, Retraction, Totals, Turn

_CLIPPED = 4096  # CLIP_MAX_NEW_TOKENS: of an answer's length, what admission reckons with
_RATIO_FIRST = 0.7  # SGLANG_INIT_NEW_TOKEN_RATIO
_RATIO_LEAST = 0.7 * 0.14  # times SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
_RATIO_STEPS = 600
_RETRACTED_STEPS = 20  # what is kept free for all that run on after a retraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a start gave.

    Attributes:
        tokens: Of the KV pool.
        running: Requests at once.
        slots: State slots; None without recurrent state. `per_request`: what a running request takes of them.
        chunk: Prompt tokens of one pass.
        steps: Draft passes a round; `verified`: tokens verified a request and round; `drafts`: those proposed.
        reserved: Tokens of the pool that the next round may take, a request.
        graphs: Batch sizes that have a graph.
    """

    tokens: int
    running: int
    slots: int | None
    per_request: int
    chunk: int
    steps: int
    verified: int
    drafts: int
    reserved: int
    graphs: Sequence[int]


class Scheduler:
    """The queue, the batch and the pool."""

    def __init__(
        self, limits: Limits, cost: RoundCost, *, seed: int = 0, noise: float = 0.0, interval: int = 40
    ) -> None:
        self.limits = limits
        self.cost = cost
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.totals = Totals()
        self.used = 0
        self.passes = 0  # what a watchdog looks at
        self._partial: Request | None = None
        self._ratio = _RATIO_FIRST
        self._noise = noise
        self._random = random.Random(f"rounds {seed}")  # noqa: S311 - a simulation
        self._interval = interval
        self._since = Decode(0, 0, 0, 0, graph=True, tokens=0, seconds=0.0, rounds=0, taken=0)
        self._steps = 0

    # --- the queue ------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """A request comes in."""
        self.waiting.append(request)

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return not self.waiting and not self.running and self._partial is None

    @property
    def in_flight(self) -> int:
        """Requests inside."""
        return len(self.waiting) + len(self.running) + (self._partial is not None)

    def remaining(self) -> list[Request]:
        """All of them."""
        return [*self.running, *((self._partial,) if self._partial else ()), *self.waiting]

    def abort(self, request: Request) -> None:
        """Forget a request, wherever it is."""
        if request.finished is not None:
            return
        request.finished = "abort"
        if request is self._partial:
            self._partial = None
        elif request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        self._release(request)

    def flush(self) -> bool:
        """Count acceptance anew; refused while requests are inside."""
        if not self.idle:
            return False
        self.totals.rounds = self.totals.taken = 0
        return True

    def _release(self, request: Request) -> None:
        self.used -= request.cached
        request.cached = request.prefilled = 0

    @property
    def slots_used(self) -> int:
        """State slots of requests that run."""
        inside = len(self.running) + (self._partial is not None)
        return inside * self.limits.per_request if self.limits.slots is not None else 0

    # --- one turn -------------------------------------------------------------------------------------------------

    def turn(self) -> Turn | None:
        """Do the next thing; None when there is nothing to do."""
        if self.idle:
            return None
        self.passes += 1
        return self._prefill() or self._decode()

    def _varied(self, seconds: float) -> float:
        if not self._noise:
            return seconds
        return seconds * max(0.2, self._random.gauss(1.0, self._noise))

    # --- prompts --------------------------------------------------------------------------------------------------

    def _prefill(self) -> Turn | None:
        batch, tokens = self._admitted()
        if not batch:
            return None
        running = len(self.running)
        turn = Turn(self._varied(self.cost.prefill_s(tokens)))
        for request in batch:
            if request.to_prefill:
                self._partial = request
                continue
            self.running.append(request)
            self._gain(turn, request, 1)
            self.used += 1
            request.cached += 1
        pending = sum(each.to_prefill for each in self.waiting)
        pending += self._partial.to_prefill if self._partial is not None else 0
        turn.events.append(
            Prefill(
                len(batch), tokens, running, len(self.waiting), pending, self.used, self.slots_used, turn.seconds
            )
        )
        self._clear()
        return turn

    def _admitted(self) -> tuple[list[Request], int]:
        """Requests whose prompts, or pieces of them, are passed now. Pool tokens are taken here."""
        limits, batch, left = self.limits, [], self.limits.chunk
        free = limits.tokens - self.used - self._promised()
        if self._partial is not None:
            request, self._partial = self._partial, None
            left -= self._take(request, left)
            batch.append(request)
        while self.waiting and left > 0 and len(self.running) + len(batch) < limits.running:
            if batch and batch[-1].to_prefill:
                break
            request = self.waiting[0]
            wanted = request.to_prefill + min(request.most - request.output, _CLIPPED)
            if wanted > free and (self.running or batch):
                break
            if request.to_prefill + 1 > limits.tokens - self.used:
                break  # not even its prompt: it waits until others are done
            free -= wanted
            self.waiting.popleft()
            left -= self._take(request, left)
            batch.append(request)
        return batch, limits.chunk - left

    def _promised(self) -> float:
        """What running requests will still take, as far as that is believed."""
        ratio = self._ratio
        return sum(ratio * min(each.most - each.output, _CLIPPED) for each in self.running)

    def _take(self, request: Request, most: int) -> int:
        piece = min(request.to_prefill, most)
        request.prefilled += piece
        request.cached += piece
        self.used += piece
        return piece

    # --- rounds ---------------------------------------------------------------------------------------------------

    def _decode(self) -> Turn:
        retraction, failed = self._room()
        requests = len(self.running)
        if not requests:
            turn = Turn(self.cost.base)
        else:
            turn = Turn(self._varied(self._round_s(requests)))
            self._round(turn)
        if retraction is not None:
            turn.events.insert(0, retraction)
        turn.failed = failed
        self._clear()
        return turn

    def _round_s(self, requests: int) -> float:
        limits = self.limits
        place = bisect_left(limits.graphs, requests)
        graph = place < len(limits.graphs)
        self._since.graph = graph
        padded = limits.graphs[place] if graph else requests
        return self.cost.round_s(padded, limits.steps, limits.verified, self.used, graphs=graph)

    def _round(self, turn: Turn) -> None:
        since, limits = self._since, self.limits
        requests, tokens, taken_in_all = len(self.running), 0, 0
        for request in self.running:
            gained, draws = 1, request.draws
            if draws is not None:
                taken = draws.accepted()
                request.histogram[taken] += 1
                request.rounds += 1
                request.proposed += limits.drafts
                request.taken += taken
                taken_in_all += taken
                gained += taken
            gained = min(gained, request.most - request.output)
            self._gain(turn, request, gained)
            request.cached += gained
            tokens += gained
        self.used += tokens
        since.tokens += tokens
        since.seconds += turn.seconds
        if limits.drafts:
            since.rounds += requests
            since.taken += taken_in_all
            self.totals.rounds += requests
            self.totals.all_rounds += requests
            self.totals.taken += taken_in_all
        self._ratio = max(_RATIO_LEAST, self._ratio - (_RATIO_FIRST - _RATIO_LEAST) / _RATIO_STEPS)
        self._steps += 1
        if self._steps % self._interval == 0:
            self._tell(turn, requests)

    def _tell(self, turn: Turn, requests: int) -> None:
        since = self._since
        since.running, since.queued = requests, len(self.waiting)
        since.used, since.slots = self.used, self.slots_used
        self.totals.throughput = since.tokens / since.seconds if since.seconds else 0.0
        turn.events.append(since)
        self._since = Decode(0, 0, 0, 0, graph=True, tokens=0, seconds=0.0, rounds=0, taken=0)

    def _gain(self, turn: Turn, request: Request, tokens: int) -> None:
        request.output += tokens
        self.totals.output_tokens += tokens
        if request.output >= request.most:
            request.finished = "length"
        turn.gained.append((request, tokens))

    def _clear(self) -> None:
        """Take what is finished out of the batch."""
        if not any(each.finished for each in self.running):
            return
        kept = []
        for request in self.running:
            if request.finished is None:
                kept.append(request)
                continue
            self.totals.requests += 1
            self.totals.prompt_tokens += request.prompt
            self._release(request)
        self.running = kept

    # --- a pool that is full --------------------------------------------------------------------------------------

    def _room(self) -> tuple[Retraction | None, list[Request]]:
        """Send requests back until the next round fits; give up the last one that does not fit even alone."""
        reserved, before, ratio = self.limits.reserved, self.used, self._ratio
        if self.used + reserved * len(self.running) <= self.limits.tokens:
            return None, []
        sent: list[Request] = []
        failed: list[Request] = []
        while self.running and self.used + reserved * len(self.running) > self.limits.tokens:
            request = self.running.pop()
            if not self.running and not sent and not self.waiting and self._alone(request):
                self.running.append(request)
                break
            self._release(request)
            if not self.running and request.prompt + request.output + reserved > self.limits.tokens:
                request.finished = "abort"
                failed.append(request)
            else:
                request.retractions += 1
                sent.append(request)
        self.waiting.extendleft(sent)
        self.totals.retracted += len(sent)
        self._ratio = self._after_retraction()
        told = Retraction(len(sent), before - self.used, ratio, self._ratio)
        told.aborted = failed[0].rid if failed else None
        return told, failed

    def _alone(self, request: Request) -> bool:
        """Whether the last request can go on with what the pool still has."""
        return request.cached + min(self.limits.reserved, request.most - request.output) <= self.limits.tokens

    def _after_retraction(self) -> float:
        """The share of their longest answers that running requests are now believed to need."""
        output = sum(each.output for each in self.running)
        most = sum(min(each.most, _CLIPPED) for each in self.running)
        return min(1.0, (output + _RETRACTED_STEPS * len(self.running)) / (most + 1))
