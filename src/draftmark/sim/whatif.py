"""Figures of a simulated server without serving: a closed loop in simulated time, over in a moment. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from draftmark.sim.requests import Request
from draftmark.sim.scheduler import Scheduler
from draftmark.sim.setup import Setup, most_accepted

_TURNS = 6  # requests a slot
_LEAST = 24  # requests in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What so many clients would see, each sending its next request as soon as the last has ended.

    Attributes:
        output_tok_s: All of them together, while every one is at work, or over the whole where they never are.
        decode_tok_s: One request after its first token; the median.
        ttft_s: From the sending to the first token, the queue included; the median.
        accept_len: Tokens a round; None without speculation.
        retractions: Requests that were sent back to the queue.
    """

    concurrency: int
    output_tok_s: float
    decode_tok_s: float
    ttft_s: float
    accept_len: float | None
    retractions: int


@dataclass(slots=True, eq=False)
class _Client:
    """One answer's times."""

    sent_s: float
    first_s: float = 0.0
    last_s: float = 0.0

    def tokens(self, request: Request, count: int) -> None:
        """Times are noted by the loop, which knows them."""

    def failed(self, request: Request, message: str) -> None:
        """It is over."""


@dataclass(slots=True)
class _Loop:
    """The clients of one measurement."""

    setup: Setup
    prompt: int
    output: int
    kinds: tuple[str, ...]
    now_s: float = 0.0
    sent: int = 0
    clients: dict[Request, _Client] = field(default_factory=dict)

    def request(self) -> Request:
        """The next one; kinds of text take turns."""
        setup, drafts = self.setup, most_accepted(self.setup.memory)
        kind, self.sent = self.kinds[self.sent % len(self.kinds)], self.sent + 1
        draws = None
        if setup.memory.settings.algorithm is not None:
            topk = setup.memory.settings.topk if setup.memory.settings.eagle else 1
            seed = f"{setup.words.seed} {kind} {self.sent}"
            draws = setup.acceptance.draws_of(kind, seed, most=drafts, branches=topk)
        client = _Client(self.now_s)
        made = Request(
            rid=str(self.sent), prompt=self.prompt, most=self.output, sink=client, draws=draws,
            histogram=[0] * (drafts + 1),
        )  # fmt: skip
        self.clients[made] = client
        return made


def figures(
    setup: Setup, concurrency: int, *, prompt: int = 256, output: int = 256, kinds: tuple[str, ...] = ("chat",)
) -> Figures:
    """Figures at a concurrency.

    Args:
        setup: A server that starts.
        concurrency: Requests under way at once, those that wait included.
        prompt: Tokens of each prompt.
        output: Tokens of each answer.
        kinds: Of text, as the server's acceptance knows them.
    """
    longest = max(1, setup.limits.tokens - setup.limits.reserved - prompt)
    loop = _Loop(setup, prompt, min(output, longest), kinds)
    scheduler = Scheduler(setup.limits, setup.cost, seed=setup.words.seed, noise=setup.words.noise)
    total = max(_LEAST, _TURNS * concurrency)
    for _ in range(concurrency):
        scheduler.add(loop.request())
    began_s, ended_s, tokens = None, 0.0, 0
    while (turn := scheduler.turn()) is not None:
        loop.now_s += turn.seconds
        steady = began_s is not None and not ended_s
        tokens += sum(count for _, count in turn.gained) if steady else 0
        _note(loop, turn.gained)
        if began_s is None and len(scheduler.running) >= min(concurrency, setup.limits.running):
            began_s = loop.now_s
        for request, _ in turn.gained:
            if request.finished is None:
                continue
            if loop.sent < total:
                scheduler.add(loop.request())
            else:
                ended_s = ended_s or loop.now_s
    if began_s is None or ended_s <= began_s:  # they never were all at work: then over the whole
        began_s, ended_s, tokens = 0.0, loop.now_s, scheduler.totals.output_tokens
    return _told(loop, concurrency, scheduler, tokens / (ended_s - began_s))


def _note(loop: _Loop, gained: list[tuple[Request, int]]) -> None:
    for request, _ in gained:
        client = loop.clients[request]
        client.first_s = client.first_s or loop.now_s
        client.last_s = loop.now_s


def _told(loop: _Loop, concurrency: int, scheduler: Scheduler, output_tok_s: float) -> Figures:
    done = [(request, client) for request, client in loop.clients.items() if request.output > 1]
    speeds = [(r.output - 1) / (c.last_s - c.first_s) for r, c in done if c.last_s > c.first_s]
    return Figures(
        concurrency=concurrency,
        output_tok_s=output_tok_s,
        decode_tok_s=statistics.median(speeds) if speeds else 0.0,
        ttft_s=statistics.median(c.first_s - c.sent_s for _, c in done) if done else 0.0,
        accept_len=scheduler.totals.accept_len or None,
        retractions=scheduler.totals.retracted,
    )
