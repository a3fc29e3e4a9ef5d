"""Continuous batching in simulated time: nothing is lost, no limit is crossed, the same seed does the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from draftmark.sim.acceptance import default_acceptance
from draftmark.sim.cost import RoundCost
from draftmark.sim.requests import Request
from draftmark.sim.scheduler import Limits, Scheduler
from draftmark.sim.turns import Decode, Prefill, Retraction, Turn

LIMITS = Limits(
    tokens=4000, running=4, slots=None, per_request=1, chunk=256, steps=3, verified=4, drafts=3, reserved=8,
    graphs=(1, 2, 4),
)  # fmt: skip
COST = RoundCost(
    base=0.01, experts=0.0, token=1e-4, draft=1e-3, draft_request=0.0, cached=0.0, share=0.0, prefill=0.01,
    prefill_token=1e-4,
)  # fmt: skip


@dataclass
class Reader:
    """What came."""

    got: int = 0
    error: str | None = None
    chunks: list[int] = field(default_factory=list)

    def tokens(self, request: Request, count: int) -> None:
        self.got += count
        self.chunks.append(count)

    def failed(self, request: Request, message: str) -> None:
        self.error = message


def asked(rid: str, prompt: int, most: int, *, drafts: bool = True) -> Request:
    acceptance = default_acceptance("EAGLE")
    draws = acceptance.draws("Tell me something.", f"0 {rid}", most=3) if drafts else None
    return Request(rid=rid, prompt=prompt, most=most, sink=Reader(), draws=draws, histogram=[0] * 4)


def drained(scheduler: Scheduler, most: int = 100_000) -> list[Turn]:
    turns = []
    while (turn := scheduler.turn()) is not None:
        for request, count in turn.gained:
            request.sink.tokens(request, count)
        for request in turn.failed:
            request.sink.failed(request, "no room")
        turns.append(turn)
        assert len(turns) < most
    return turns


@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 400)), min_size=1, max_size=25),
    st.integers(1300, 6000),
    st.integers(1, 6),
)
def test_every_request_gets_what_it_asked_for(jobs: list[tuple[int, int]], tokens: int, running: int) -> None:
    scheduler = Scheduler(replace(LIMITS, tokens=tokens, running=running), COST)
    requests = [asked(str(n), prompt, most) for n, (prompt, most) in enumerate(jobs)]
    for request in requests:
        scheduler.add(request)
    turns = []
    while (turn := scheduler.turn()) is not None:
        turns.append(turn)
        assert len(scheduler.running) <= running
        assert scheduler.used == sum(each.cached for each in scheduler.remaining())
        assert 0 <= scheduler.used <= tokens
        for request, count in turn.gained:
            request.sink.tokens(request, count)
        assert len(turns) < 50_000
    for request, (_, most) in zip(requests, jobs, strict=True):
        assert isinstance(request.sink, Reader)
        assert request.finished == "length"
        assert request.output == most == request.sink.got
        assert sum(request.histogram) == request.rounds
    assert scheduler.used == 0
    assert scheduler.totals.output_tokens == sum(most for _, most in jobs)


def test_a_long_prompt_is_passed_in_pieces() -> None:
    scheduler = Scheduler(LIMITS, COST)
    scheduler.add(asked("long", 1000, 4))
    told = [event for turn in drained(scheduler) for event in turn.events if isinstance(event, Prefill)]
    assert [each.tokens for each in told] == [256, 256, 256, 232]
    assert told[0].pending == 744


def test_a_full_pool_sends_requests_back_and_all_end() -> None:
    """Answers that run longer than the server has come to expect."""
    scheduler = Scheduler(replace(LIMITS, tokens=1000, running=8), COST)
    scheduler.add(asked("first", 10, 900, drafts=False))
    drained(scheduler)
    requests = [asked(str(n), 10, 400) for n in range(8)]
    for request in requests:
        scheduler.add(request)
    events = [event for turn in drained(scheduler) for event in turn.events]
    sent = [each for each in events if isinstance(each, Retraction)]
    assert sent
    assert scheduler.totals.retracted == sum(each.requests for each in sent) > 0
    assert all(request.output == 400 for request in requests)
    assert any(request.retractions for request in requests)


def test_without_a_graph_a_round_takes_longer() -> None:
    captured, eager = (Scheduler(replace(LIMITS, graphs=graphs), COST) for graphs in ((1, 2, 4), (1,)))
    seconds = []
    for scheduler in (captured, eager):
        for n in range(3):
            scheduler.add(asked(str(n), 10, 50))
        seconds.append(sum(turn.seconds for turn in drained(scheduler)))
    assert seconds[1] > 1.2 * seconds[0]


def test_the_log_interval_counts_rounds() -> None:
    scheduler = Scheduler(LIMITS, COST, interval=10)
    scheduler.add(asked("one", 10, 200, drafts=False))
    told = [event for turn in drained(scheduler) for event in turn.events if isinstance(event, Decode)]
    assert len(told) == 19  # 199 rounds after the first token
    assert all(each.tokens == 10 for each in told)


def test_an_aborted_request_leaves_nothing() -> None:
    scheduler = Scheduler(LIMITS, COST)
    requests = [asked(str(n), 100, 100) for n in range(6)]
    for request in requests:
        scheduler.add(request)
    for _ in range(5):
        scheduler.turn()
    for request in requests:
        scheduler.abort(request)
    assert scheduler.idle
    assert scheduler.used == 0
    assert scheduler.turn() is None


def test_the_same_seed_takes_the_same_time() -> None:
    def run(seed: int) -> list[float]:
        scheduler = Scheduler(LIMITS, COST, seed=seed, noise=0.05)
        for n in range(8):
            scheduler.add(asked(str(n), 40, 60))
        return [turn.seconds for turn in drained(scheduler)]

    assert run(1) == run(1)
    assert run(1) != run(2)
