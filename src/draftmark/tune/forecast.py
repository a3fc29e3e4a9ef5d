"""Tokens per second at every depth, from acceptance and cost together, with what is not known carried along. Pure.

    tok/s(k, c) = n accept length(k) / T(k, n),   n = min(c, max_running_requests(k))

at full slots: requests beyond what the server takes at once wait in its queue. Beside it stands the plain
possibility that depth makes no difference at all, without which the luckiest of a few level figures would pass
for a gain. Many futures are drawn, each an acceptance and a curve of costs that agree with all that was
measured; a figure's interval is where 19 in 20 lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from draftmark.tune.acceptance_model import AcceptanceEvidence, AcceptanceModel, Basis
from draftmark.tune.cost_model import CostModel, expert_hits

_FUTURES = 300
_PARTICLES = (48, 200)  # acceptances drawn: where rounds were counted, where they were not
_LEVEL = (0.02, 0.05)  # the chance beforehand that depth makes no difference; likewise
_LEVEL_SPREAD = 0.5  # sd of the log of that one figure around the baseline's
_LEAST_NOISE = 0.003
_TAIL = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a trial showed of a depth.

    Attributes:
        depth: Drafts a round; 0 is speculation off.
        tok_s: By concurrency; a figure that is not above 0 is left out.
        acceptance: What it told of its drafts.
    """

    depth: int
    tok_s: Mapping[int, float]
    acceptance: AcceptanceEvidence | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with a 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Futures of all depths.

    Attributes:
        depths: In rising order.
        futures: By concurrency: one list a future, tok/s by place in `depths`.
        acceptance: What the accept lengths come from.
    """

    depths: tuple[int, ...]
    futures: Mapping[int, Sequence[Sequence[float]]]
    acceptance: AcceptanceModel = field(repr=False)

    def tok_s(self, depth: int, concurrency: int) -> Figure:
        """Tokens per second."""
        place = self.depths.index(depth)
        return summary([future[place] for future in self.futures[concurrency]])

    def ratio(self, depth: int, other: int, concurrency: int) -> Figure:
        """Of one depth to another."""
        a, b = self.depths.index(depth), self.depths.index(other)
        return summary([future[a] / future[b] for future in self.futures[concurrency]])

    def basis(self, depth: int) -> Basis:
        """What the accept length of a depth rests on."""
        return self.acceptance.basis(depth)


def summary(values: Sequence[float]) -> Figure:
    """Mean and 95 % interval of draws."""
    ordered = sorted(values)
    edge = int(_TAIL * len(ordered))
    return Figure(math.fsum(ordered) / len(ordered), ordered[edge], ordered[-1 - edge])


def forecast(
    depths: Sequence[int],
    seen: Sequence[Seen],
    *,
    noise: float,
    concurrencies: Sequence[int],
    running: Mapping[int, int] | None = None,
    trees: bool = False,
    experts: tuple[int, int] | None = None,
    seed: int = 0,
) -> Forecast:
    """Draw futures. The same arguments give the same futures.

    Args:
        depths: All depths asked about; those seen are added.
        seen: Trials so far, at least one figure at each concurrency asked about.
        noise: Relative sd of one figure.
        concurrencies: Asked about.
        running: max_running_requests by depth, where known.
        trees: Whether drafts branch.
        experts: Of a mixture: how many a layer has, and how many of them a token chooses.
        seed: Of the draws.

    Raises:
        ValueError: Nothing was seen at a concurrency.
    """
    order = tuple(sorted({*depths, *(s.depth for s in seen)}))
    rng = Random(seed)  # noqa: S311 - draws of a simulation
    model = AcceptanceModel([s.acceptance for s in seen if s.acceptance is not None], trees=trees)
    lengths, weights = model.draws(order, _PARTICLES[0 if model.known_to else 1], rng)
    levels = [_Level(order, seen, noise, c, running or {}, lengths, experts, rng) for c in concurrencies]
    priors = [math.log(max(w, 1e-300)) for w in weights]
    curved = [w + math.fsum(level.logs[p] for level in levels) for p, w in enumerate(priors)]
    flat = [w + math.fsum(level.flat[p] for level in levels) for p, w in enumerate(priors)]
    same = _LEVEL[0 if model.known_to else 1]
    logs = [math.log1p(-same) + value for value in curved] + [math.log(same) + value for value in flat]
    top = max(logs)
    chosen = rng.choices(range(len(logs)), [math.exp(value - top) for value in logs], k=_FUTURES)
    return Forecast(
        depths=order,
        futures={
            level.concurrency: [level.future(p, rng) if p < len(curved) else level.same(rng) for p in chosen]
            for level in levels
        },
        acceptance=model,
    )


class _Level:
    """One concurrency: the cost model given each drawn acceptance."""

    def __init__(
        self,
        depths: Sequence[int],
        seen: Sequence[Seen],
        noise: float,
        concurrency: int,
        running: Mapping[int, int],
        lengths: Sequence[Sequence[float]],
        experts: tuple[int, int] | None,
        rng: Random,
    ) -> None:
        self.concurrency = concurrency
        figures = _figures(seen, concurrency)
        if not figures:
            raise ValueError(f"no figure at concurrency {concurrency}")
        self._slots = [min(concurrency, running.get(depth, concurrency)) for depth in depths]
        places = [depths.index(depth) for depth in figures]
        # A round with fewer requests than c is shorter, by a share of its time that nobody told.
        shares = [rng.random() if min(self._slots) < concurrency else 0.0 for _ in lengths]
        self._shorter = [[1.0 - share * (1.0 - n / concurrency) for n in self._slots] for share in shares]
        self._lengths = lengths
        raw = [
            [
                self._slots[i] * own[i] / (shorter[i] * value)
                for i, (value, _) in zip(places, figures.values(), strict=True)
            ]
            for own, shorter in zip(lengths, self._shorter, strict=True)
        ]
        mean = [math.fsum(column) / len(raw) for column in zip(*raw, strict=True)]
        first = min(places)
        self._unit = mean[places.index(first)] / (1.0 + 0.12 * depths[first])
        self._times = [[value / self._unit for value in row] for row in raw]
        self._cost = CostModel(
            depths,
            places,
            [value / self._unit for value in mean],
            [max(noise, _LEAST_NOISE) / math.sqrt(count) for _, count in figures.values()],
            expert_hits(depths, concurrency, *experts) if experts is not None else (),
        )
        self._flat = _Flat([value for value, _ in figures.values()], max(noise, _LEAST_NOISE))
        # A density of times, where the other is one of the figures' logs: d log(time) = d time / time.
        self.flat = [self._flat.log - math.fsum(map(math.log, row)) for row in self._times]
        weighed = [self._cost.weigh(row) for row in self._times]
        self.logs = [log for log, _ in weighed]
        self._shares = [share for _, share in weighed]

    def future(self, particle: int, rng: Random) -> list[float]:
        """Tokens per second by depth."""
        curve = self._cost.draw(self._times[particle], self._shares[particle], rng)
        own, shorter = self._lengths[particle], self._shorter[particle]
        return [
            n * length / (time * share * self._unit)
            for n, length, time, share in zip(self._slots, own, curve, shorter, strict=True)
        ]

    def same(self, rng: Random) -> list[float]:
        """Tokens per second by depth, where depth makes no difference."""
        return [self._flat.draw(rng)] * len(self._slots)


class _Flat:
    """One figure for all depths.

    Args:
        figures: Tokens per second.
        noise: Relative sd of each.
    """

    def __init__(self, figures: Sequence[float], noise: float) -> None:
        logs = [math.log(value) for value in figures]
        n, centre = len(logs), logs[0]
        gaps = [value - centre for value in logs]
        total, squares = math.fsum(gaps), math.fsum(gap * gap for gap in gaps)
        precision = 1.0 / _LEVEL_SPREAD**2 + n / noise**2
        self._sd = 1.0 / math.sqrt(precision)
        self._mean = centre + total / noise**2 / precision
        determinant = n * math.log(noise**2) + math.log(_LEVEL_SPREAD**2 * precision)
        self.log = -0.5 * (determinant + squares / noise**2 - (total / noise**2) ** 2 / precision)

    def draw(self, rng: Random) -> float:
        """The figure, as it could truly be."""
        return math.exp(rng.gauss(self._mean, self._sd))


def _figures(seen: Sequence[Seen], concurrency: int) -> dict[int, tuple[float, int]]:
    """Per depth the geometric mean of its figures, and how many there are."""
    logs: dict[int, list[float]] = {}
    for s in seen:
        value = s.tok_s.get(concurrency, 0.0)
        if 0.0 < value < math.inf:
            logs.setdefault(s.depth, []).append(math.log(value))
    return {depth: (math.exp(math.fsum(own) / len(own)), len(own)) for depth, own in sorted(logs.items())}
