"""Where the moments of a timeline stand: to scale, but for long stretches in which nothing happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from draftmark.report.why_times import NO_YEAR, seconds

_BREAK_FACTOR = 20
"""A stretch this many times longer than all others together is not drawn to scale."""
_MOST_BREAKS = 4
_BREAK_WIDTH = 9.0
_EDGE = 3.0
"""Percent of the axis."""
_STEPS_S = (
    0.001,
    0.01,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
    7200,
    21600,
    43200,
    86400,
)
_LABEL_ROOM = 19.0


@dataclass(frozen=True, slots=True)
class Break:
    """A stretch that is not to scale: its place in percent of the axis, and how long it is."""

    left: float
    width: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place on the axis."""

    left: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Where times stand, in percent of the width.

    Attributes:
        places: One for each time given; None for one that cannot be read or is on another clock.
        day: The date of the first, where dates are known.
    """

    places: tuple[float | None, ...]
    breaks: tuple[Break, ...]
    ticks: tuple[Tick, ...]
    day: str | None


def axis(stamps: Sequence[str | None], placed: Sequence[float | None] = ()) -> Axis | None:
    """An axis for times as they were written; None when fewer than two can be placed.

    Args:
        stamps: As written.
        placed: Seconds since the epoch of the same moments, where whoever read the lines could tell.
    """
    times, relative = seconds(stamps)
    if sum(time is not None for time in placed) > 1:
        times, relative = list(placed), False
    known = sorted({time for time in times if time is not None})
    if sum(time is not None for time in times) < 2:
        return None
    broken = _broken([after - before for before, after in pairwise(known)])
    starts = _places(known, broken)
    at = dict(zip(known, starts, strict=True))
    breaks = tuple(Break(starts[i], starts[i + 1] - starts[i], known[i + 1] - known[i]) for i in sorted(broken))
    day = None if relative else _moment(known[0]).strftime("%Y-%m-%d").removeprefix(f"{NO_YEAR}-")
    return Axis(
        tuple(None if time is None else at[time] for time in times),
        breaks,
        _ticks(known, starts, broken, relative=relative),
        day,
    )


def _broken(gaps: Sequence[float]) -> set[int]:
    """Which stretches are not drawn to scale."""
    broken: set[int] = set()
    while len(broken) < _MOST_BREAKS and len(gaps) - len(broken) > 1:
        longest = max((i for i in range(len(gaps)) if i not in broken), key=lambda i: gaps[i])
        others = sum(gap for i, gap in enumerate(gaps) if i not in broken and i != longest)
        if gaps[longest] <= _BREAK_FACTOR * others:
            break
        broken.add(longest)
    return broken


def _places(known: Sequence[float], broken: set[int]) -> list[float]:
    """Percent of each distinct time."""
    gaps = [after - before for before, after in pairwise(known)]
    scaled = sum(gap for i, gap in enumerate(gaps) if i not in broken)
    room = 100 - 2 * _EDGE - _BREAK_WIDTH * len(broken)
    places = [_EDGE if gaps else 50.0]
    for i, gap in enumerate(gaps):
        places.append(places[-1] + (_BREAK_WIDTH if i in broken else room * gap / scaled))
    return places


def _ticks(
    known: Sequence[float], places: Sequence[float], broken: set[int], *, relative: bool
) -> tuple[Tick, ...]:
    """First, last, and round times in the stretches that are to scale, as many as can be read."""
    step = _step(known, places, broken)
    ticks = [Tick(places[0], _label(known[0], step, relative=relative))]
    for i, (start, end) in enumerate(pairwise(known)):
        for time in [end] if i in broken else _round_times(start, end, step):
            left = places[i] + (time - start) / (end - start) * (places[i + 1] - places[i])
            if min(left - ticks[-1].left, places[-1] - left) >= _LABEL_ROOM:
                ticks.append(Tick(left, _label(time, step, relative=relative)))
    if places[-1] - ticks[-1].left >= _LABEL_ROOM:
        ticks.append(Tick(places[-1], _label(known[-1], step, relative=relative)))
    return tuple(ticks)


def _round_times(start: float, end: float, step: float) -> Iterator[float]:
    first = int(start // step) + 1
    yield from (n * step for n in range(first, min(int(end // step), first + 100) + 1))


def _step(known: Sequence[float], places: Sequence[float], broken: set[int]) -> float:
    """Seconds between round times, so that two labels have room."""
    for i, (start, end) in enumerate(pairwise(known)):
        if i not in broken:
            wanted = _LABEL_ROOM * (end - start) / (places[i + 1] - places[i])
            return next((step for step in _STEPS_S if step >= wanted), float(max(86400, round(wanted))))
    return 1.0


def _moment(time: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time)


def _label(time: float, step: float, *, relative: bool) -> str:
    if relative:
        return f"{time:.1f} s"
    if step >= 86400:
        return _moment(time).strftime("%m-%d")
    return _moment(time).strftime("%H:%M:%S") + (f".{time % 1 * 1000:03.0f}" if step < 1 else "")
