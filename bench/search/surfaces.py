"""Surfaces to search: true tokens per second by depth and concurrency, and what a noisy trial shows of them.

Written apart from the model in `draftmark.tune`: the time of a round here is a soft roofline with batches
rounded up to captured sizes, not the lines with a knee that the search assumes; acceptance may rise with the
position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from random import Random

from draftmark.tune.search import worth

DEPTHS = (
    tuple(range(9)),
    tuple(range(9)),
    tuple(range(11)),
    tuple(range(7)),
    (0, 1, 2, 3, 4, 5, 6, 8),
    (0, 2, 4, 8, 16),
    (0, 1, 2, 3, 4, 6, 8, 12, 16),
)
CAPTURED = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)


@dataclass(frozen=True, slots=True)
class Shown:
    """What one trial shows."""

    tok_s: dict[int, float]
    histogram: tuple[int, ...] | None
    accept_len: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One service, as it truly is.

    Attributes:
        seed: It was drawn with.
        depths: Candidates, in rising order.
        fits: Of these, those that start.
        baseline: What runs today.
        concurrencies: One, or the lowest and the highest.
        noise: Relative sd of a figure.
        acceptance: a_1, a_2, …
        tok_s: True figures, by concurrency and depth.
        running: max_running_requests by depth, where it is below a concurrency.
        rounds: Counted in a trial's histogram.
        tells: `histogram`, `length` or `nothing`.
    """

    seed: int
    depths: tuple[int, ...]
    fits: tuple[int, ...]
    baseline: int
    concurrencies: tuple[int, ...]
    noise: float
    acceptance: tuple[float, ...]
    tok_s: dict[int, dict[int, float]]
    running: dict[int, int]
    rounds: int
    tells: str

    def shown(self, depth: int, again: int = 0) -> Shown:
        """A trial of a depth: the same for whoever asks, and anew with each restart of it."""
        rng = Random(f"{self.seed}/{depth}/{again}")
        tok_s = {c: self.tok_s[c][depth] * math.exp(rng.gauss(0.0, self.noise)) for c in self.concurrencies}
        if depth == 0 or self.tells == "nothing":
            return Shown(tok_s, None, None)
        counts = [0] * (depth + 1)
        for _ in range(self.rounds):
            accepted = 0
            while accepted < depth and rng.random() < self.acceptance[accepted]:
                accepted += 1
            counts[accepted] += 1
        length = 1.0 + sum(j * n for j, n in enumerate(counts)) / self.rounds
        return Shown(tok_s, tuple(counts) if self.tells == "histogram" else None, length)


def draw(seed: int) -> Surface:
    """One surface."""
    rng = Random(f"surface {seed}")
    depths = rng.choice(DEPTHS)
    acceptance = _acceptance(rng, depths[-1])
    c = rng.choice((1, 2, 4, 8, 16, 32, 64))
    concurrencies = (1, c) if c > 1 and rng.random() < 0.4 else (c,)
    deepest = depths[-1] if rng.random() < 0.6 else rng.randint(1, depths[-1])
    fits = tuple(k for k in depths if k <= deepest)
    running = _running(rng, depths, max(concurrencies))
    cost = _Cost.draw(rng)
    tok_s: dict[int, dict[int, float]] = {}
    for level in concurrencies:
        slots = {k: min(level, running.get(k, level)) for k in depths}
        tok_s[level] = {k: slots[k] * _length(acceptance, k) / cost.round(k, slots[k]) for k in depths}
    return Surface(
        seed=seed,
        depths=depths,
        fits=fits,
        baseline=0 if rng.random() < 0.75 else rng.choice(fits),
        concurrencies=concurrencies,
        noise=rng.uniform(0.01, 0.05),
        acceptance=acceptance,
        tok_s=tok_s,
        running=running,
        rounds=round(math.exp(rng.uniform(math.log(200), math.log(5000)))),
        tells=rng.choices(("histogram", "length", "nothing"), (85, 10, 5))[0],
    )


def regret(surface: Surface, depth: int, margin: float = 0.02) -> float:
    """By how much a depth falls short of the best that fits, as a share.

    With two concurrencies the best is the fastest alone among those that lose no throughput by more than the
    margin (where none gains alone: the one with most throughput among those that do not lose alone). A depth
    chosen is held to that too, but for a loss of throughput that noise may hide: two standard deviations.
    """
    base = surface.baseline
    ratios = [{k: own[k] / own[base] for k in surface.fits} for own in surface.tok_s.values()]
    if len(ratios) == 1:
        return max(1.0 - ratios[0][depth] / max(ratios[0].values()), 0.0)
    low, high = ratios
    places = list(surface.fits)
    best = worth([low[k] for k in places], [high[k] for k in places], margin)
    mine = best[places.index(depth)]
    if high[depth] >= 1.0 / (1.0 + margin) - 2.0 * surface.noise:
        mine = max(mine, low[depth])
    return max(1.0 - mine / max(best), 0.0)


def _acceptance(rng: Random, deepest: int) -> tuple[float, ...]:
    """Flat, falling by a factor, or falling at first and flat behind; the last two with a little of their own."""
    first = rng.uniform(0.3, 0.97)
    kind = rng.choices(("flat", "falling", "settling"), (40, 40, 20))[0]
    factor = 1.0 if kind == "flat" else rng.uniform(0.90, 0.99) if kind == "falling" else rng.uniform(0.8, 0.97)
    found = []
    for j in range(deepest):
        fallen = min(j, 2) if kind == "settling" else j
        own = 1.0 if kind == "flat" else math.exp(rng.gauss(0.0, 0.015))
        found.append(min(max(first * factor**fallen * own, 0.05), 0.985))
    return tuple(found)


def _length(acceptance: tuple[float, ...], depth: int) -> float:
    return 1.0 + math.fsum(accumulate(acceptance[:depth], mul))


def _running(rng: Random, depths: tuple[int, ...], most: int) -> dict[int, int]:
    """In a quarter of the services deep drafts leave room for fewer requests than are sent."""
    if rng.random() > 0.25:
        return {}
    room = most * rng.uniform(1.0, 2.0)
    price = rng.uniform(0.02, 0.12)
    limits = {k: max(int(room / (1.0 + price * k)), 1) for k in depths}
    return {k: limit for k, limit in limits.items() if limit < most}


@dataclass(frozen=True, slots=True)
class _Cost:
    """The time of a round, in units of one that reads the weights and does nothing else.

    Attributes:
        knee: Tokens in a pass at which arithmetic takes as long as reading the weights.
        sharp: How abruptly the one takes over from the other.
        drafter: Time of one pass of the drafter, alone.
        overhead: Of drafting at all.
        cache: Of each request's KV cache, read in every pass.
        padded: Passes are rounded up to the sizes that were captured.
    """

    knee: float
    sharp: float
    drafter: float
    overhead: float
    cache: float
    padded: bool

    @classmethod
    def draw(cls, rng: Random) -> _Cost:
        return cls(
            knee=_log_uniform(rng, 16.0, 600.0),
            sharp=rng.uniform(1.5, 8.0),
            drafter=_log_uniform(rng, 0.01, 0.35),
            overhead=_log_uniform(rng, 0.005, 0.30),
            cache=_log_uniform(rng, 0.001, 0.02),
            padded=rng.random() < 0.3,
        )

    def round(self, depth: int, slots: int) -> float:
        verified = self._pass(slots * (depth + 1)) + self.cache * slots
        if not depth:
            return verified
        return verified + self.overhead + depth * self.drafter * self._pass(slots)

    def _pass(self, tokens: int) -> float:
        width = next((size for size in CAPTURED if size >= tokens), tokens) if self.padded else tokens
        return float((1.0 + (width / self.knee) ** self.sharp) ** (1.0 / self.sharp))


def _log_uniform(rng: Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))
