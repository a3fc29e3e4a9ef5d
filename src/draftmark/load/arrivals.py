"""When requests are sent in an open loop: a plan of times, made before the first request.

The plan is a pure function of the schedule, the number of requests and the seed, so that two runs ask at the same
moments. Each time is counted from the begin and not from the request before, so that lateness of one moves no
other. The first request goes out at the begin; what a schedule shapes are the gaps after it.

Plans are not rescaled. vLLM's bench stretches its plan so that the last request falls where the mean rate says,
which makes seeds agree on the duration; but the gaps are then no longer those of the process that was asked for,
and a short plan's own luck, which a server feels, is hidden. Here the plan stays as drawn, and the rate that it
comes to (`mean_rate`) is told beside the rate that was wanted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from random import Random
from typing import Protocol


class Schedule(Protocol):
    """A way for requests to arrive."""

    def offsets(self, count: int, seed: int) -> list[float]:
        """When to send each of `count` requests, in seconds from the begin: from 0 on, non-decreasing."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Evenly spaced.

    Attributes:
        rate: Requests per second.
    """

    rate: float

    def __post_init__(self) -> None:
        _above_zero("rate", self.rate)

    def offsets(self, count: int, seed: int) -> list[float]:  # noqa: ARG002 - nothing is drawn
        """Request i at i / rate."""
        return [i / self.rate for i in range(count)]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent users: gaps are exponential, their deviation equals their mean.

    Attributes:
        rate: Mean requests per second.
    """

    rate: float

    def __post_init__(self) -> None:
        _above_zero("rate", self.rate)

    def offsets(self, count: int, seed: int) -> list[float]:
        """As drawn."""
        return [x / self.rate for x in _unit_arrivals(count, seed, 1.0)]


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gaps from a gamma distribution: clumped below a burstiness of 1, more even than chance above it.

    Attributes:
        rate: Mean requests per second.
        burstiness: The distribution's shape, as vLLM's `--burstiness` has it: the coefficient of variation of the
            gaps is 1 / sqrt(burstiness). At 1 this is Poisson.
    """

    rate: float
    burstiness: float

    def __post_init__(self) -> None:
        _above_zero("rate", self.rate)
        _above_zero("burstiness", self.burstiness)

    def offsets(self, count: int, seed: int) -> list[float]:
        """As drawn."""
        return [x / self.rate for x in _unit_arrivals(count, seed, self.burstiness)]


@dataclass(frozen=True, slots=True)
class Ramp:
    """A rate that goes in a straight line over time, and then stays.

    Arrival x of a process of rate 1 falls at the time t at which the integral of the rate has come to x:
    `start * t + (end - start) * t**2 / (2 * seconds) = x`.

    Attributes:
        start: Requests per second at the begin; may be 0.
        end: Requests per second from `seconds` on.
        seconds: How long the change takes.
        burstiness: As in `Gamma`; None spaces requests evenly under the integral, without chance.
    """

    start: float
    end: float
    seconds: float
    burstiness: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start < math.inf:
            raise ValueError(f"start is {self.start}; it must be 0 or more")
        _above_zero("end", self.end)
        _above_zero("seconds", self.seconds)
        if self.burstiness is not None:
            _above_zero("burstiness", self.burstiness)

    @property
    def arrivals(self) -> float:
        """How many requests arrive, in the mean, while the rate changes."""
        return (self.start + self.end) / 2 * self.seconds

    def offsets(self, count: int, seed: int) -> list[float]:
        """Each arrival's time, found from the integral, so that no error of one step carries on to the next."""
        if self.burstiness is None:
            return [self._time_of(x) for x in range(count)]
        return [self._time_of(x) for x in _unit_arrivals(count, seed, self.burstiness)]

    def _time_of(self, x: float) -> float:
        if x <= 0:
            return 0.0
        if x >= self.arrivals:
            return self.seconds + (x - self.arrivals) / self.end
        # the positive root in the form that loses no digits when the two rates are close
        root = math.sqrt(max(0.0, self.start**2 + 2 * (self.end - self.start) * x / self.seconds))
        return min(self.seconds, 2 * x / (self.start + root))


@dataclass(frozen=True, slots=True)
class Trace:
    """Times that were recorded somewhere.

    Attributes:
        times: Seconds, in order; only their differences count.
        speed: 2 replays in half the time.
    """

    times: Sequence[float]
    speed: float = 1.0

    def __post_init__(self) -> None:
        _above_zero("speed", self.speed)

    def offsets(self, count: int, seed: int) -> list[float]:  # noqa: ARG002 - nothing is drawn
        """The first `count` times.

        Raises:
            ValueError: The trace has fewer.
        """
        if count > len(self.times):
            raise ValueError(f"the trace has {len(self.times)} requests, not {count}")
        return [(at - self.times[0]) / self.speed for at in self.times[:count]]


def mean_rate(offsets: Sequence[float]) -> float | None:
    """Requests per second that a plan comes to, from its first to its last; None where it takes no time."""
    if len(offsets) < 2 or offsets[-1] <= offsets[0]:
        return None
    return (len(offsets) - 1) / (offsets[-1] - offsets[0])


def _unit_arrivals(count: int, seed: int, shape: float) -> list[float]:
    """Arrivals at a mean rate of 1, the first at 0, with gamma gaps."""
    draw = Random(seed).gammavariate  # noqa: S311 - chance that must repeat, not a secret
    gaps = (draw(shape, 1 / shape) for _ in repeat(None, count - 1))
    return list(accumulate(gaps, initial=0.0)) if count > 0 else []


def _above_zero(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}; it must be above 0")
