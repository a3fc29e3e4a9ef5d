"""Surfaces of five knobs, of which two matter: true figures at two concurrencies, and what a noisy trial shows.

Each surface has the knobs of SGLang that `--knob` names, with the values of ordinary ranges and a running service
somewhere in them. Two are drawn to matter. What a knob does is drawn apart for a single request and for the
highest concurrency: it rises or falls towards a plateau, has a hump inside its range, or a step, by 8 to 60 % in
all over the range (in a quarter of the cases by a tenth of that on one axis). In half of the surfaces the two
strengthen or weaken each other. The three others move nothing by more than half a percent. A budget of memory
refuses some corners in six of ten; what runs always fits. Noise is 1 to 3 % a figure. The model in
`draftmark.tune.knobs` is a Gaussian process and knows none of these forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from random import Random

from draftmark.model import Knob
from draftmark.tune.knobs.space import Point, Space
from draftmark.tune.search import gains_alone, worth

RANGES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "mem-fraction": ("--mem-fraction-static", tuple(f"0.{n}" for n in range(80, 93)), True),
    "max-running-requests": ("--max-running-requests", ("16", "24", "32", "48", "64", "96", "128", "192"), True),
    "cuda-graph-bs": ("--cuda-graph-max-bs", ("8", "16", "32", "64", "128", "256"), True),
    "chunked-prefill": ("--chunked-prefill-size", ("2048", "4096", "8192", "16384"), True),
    "attention-backend": ("--attention-backend", ("fa3", "flashinfer", "triton"), False),
}
MATTER = 2
LOW, HIGH = 0, 1
MARGIN = 0.02

Shape = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSurface:
    """One service, as it truly is.

    Attributes:
        seed: It was drawn with.
        space: Its knobs.
        noise: Relative sd of a figure.
        matter: Which knobs do.
        truth: Ratio to what runs at the low and at the high concurrency, of every setting that fits.
    """

    seed: int
    space: Space
    noise: float
    matter: tuple[int, ...]
    truth: dict[Point, tuple[float, float]]
    _worth: dict[Point, float] = field(default_factory=dict)
    _best: list[tuple[float, int]] = field(default_factory=list)

    def fits(self, point: Point) -> bool:
        """Whether the memory is there."""
        return point in self.truth

    def shown(self, point: Point, again: int = 0) -> tuple[float, float]:
        """A trial: the same for whoever asks, and anew with each restart of it."""
        rng = Random(f"{self.seed}/{point}/{again}")
        low, high = self.truth[point]
        return 100.0 * low * math.exp(rng.gauss(0, self.noise)), 900.0 * high * math.exp(rng.gauss(0, self.noise))

    def regret(self, point: Point) -> float:
        """By how much a setting falls short of the best that fits, as a share.

        The best is the fastest alone among those that lose no throughput by more than the margin; where none gains
        alone, the one with most throughput among those that do not lose alone. A loss on that other axis which
        noise may hide, two standard deviations of a figure, does not count against what was chosen.
        """
        if not self._worth:
            points = list(self.truth)
            low, high = zip(*(self.truth[p] for p in points), strict=True)
            found = worth(low, high, MARGIN)
            self._worth.update(zip(points, found, strict=True))
            self._best.append((max(found), LOW if gains_alone(low, high, MARGIN) else HIGH))
        best, axis = self._best[0]
        pair = self.truth[point]
        mine = self._worth[point]
        if pair[1 - axis] >= 1.0 / (1.0 + MARGIN) - 2.0 * self.noise:
            mine = max(mine, pair[axis])
        return max(1.0 - mine / best, 0.0)


def draw_knobs(seed: int) -> KnobSurface:
    """One surface."""
    rng = Random(f"knobs {seed}")
    knobs = tuple(_knob(rng, name, *RANGES[name]) for name in RANGES)
    space = Space(knobs)
    matter = tuple(sorted(rng.sample(range(len(knobs)), MATTER)))
    axes = [_axis(rng, space, matter) for _ in (LOW, HIGH)]
    fits = _memory(rng, space)
    base = [axis(space.base) for axis in axes]
    truth = {
        point: (math.exp(axes[LOW](point) - base[LOW]), math.exp(axes[HIGH](point) - base[HIGH]))
        for point in product(*(range(len(k.levels)) for k in knobs))
        if fits(point)
    }
    return KnobSurface(seed=seed, space=space, noise=rng.uniform(0.01, 0.03), matter=matter, truth=truth)


def _knob(rng: Random, name: str, flag: str, values: tuple[str, ...], ordered: bool) -> Knob:
    return Knob(name=name, flag=flag, levels=values, runs=rng.randrange(len(values)), ordered=ordered)


def _axis(rng: Random, space: Space, matter: tuple[int, ...]) -> Callable[[Point], float]:
    """Log figure of every setting on one axis."""
    shapes: list[list[float]] = []
    scale = 1.0 if rng.random() < 0.75 else 0.1  # on one axis in four they hardly matter
    for i, knob in enumerate(space.knobs):
        count = len(knob.levels)
        if i not in matter:
            shapes.append([rng.uniform(-0.0025, 0.0025) for _ in range(count)])
        elif not knob.ordered:
            top = math.log1p(rng.uniform(0.08, 0.6)) * scale
            shapes.append(rng.sample([0.0, top, top * rng.uniform(0.2, 0.9)], count))
        else:
            shape = _shape(rng)
            drawn = [shape(j / (count - 1)) for j in range(count)]
            reach = math.log1p(rng.uniform(0.08, 0.6)) * scale / (max(drawn) - min(drawn))
            shapes.append([value * reach for value in drawn])
    one, two = matter
    bound = rng.uniform(-0.5, 0.5) if rng.random() < 0.5 else 0.0

    def log_figure(point: Point) -> float:
        own = [shape[at] for shape, at in zip(shapes, point, strict=True)]
        span = [max(shapes[i]) - min(shapes[i]) for i in (one, two)]
        met = (own[one] - min(shapes[one])) * (own[two] - min(shapes[two])) / max(*span, 1e-9)
        return math.fsum(own) + bound * met

    return log_figure


def _shape(rng: Random) -> Shape:
    """Over 0 to 1: a plateau, a hump, a step; upwards or downwards."""
    kind = rng.choices(("plateau", "hump", "step"), (45, 35, 20))[0]
    turned = rng.random() < 0.35

    def place(x: float) -> float:
        return 1.0 - x if turned else x

    if kind == "plateau":
        rate = rng.uniform(0.8, 5.0)
        return lambda x: 1.0 - math.exp(-rate * place(x))
    if kind == "hump":
        top, left, right = rng.uniform(0.25, 0.75), rng.uniform(0.6, 1.6), rng.uniform(0.6, 1.6)
        return lambda x: -(((x - top) * (left if x < top else right)) ** 2)
    edge, soft = rng.uniform(0.2, 0.8), rng.uniform(0.02, 0.08)
    return lambda x: 1.0 / (1.0 + math.exp(-(place(x) - edge) / soft))


def _memory(rng: Random, space: Space) -> Callable[[Point], bool]:
    """Graphs, requests and prefill chunks are paid out of what the pool leaves."""
    if rng.random() < 0.4:
        return lambda _point: True
    prices = [1.0, 0.3, 0.7, 0.5, 0.0]

    def need(point: Point) -> float:
        return math.fsum(
            price * at / (len(knob.levels) - 1) for price, at, knob in zip(prices, point, space.knobs, strict=True)
        )

    most = max(need(space.base), rng.uniform(1.2, 2.3))
    return lambda point: need(point) <= most
