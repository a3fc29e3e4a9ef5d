"""What a sweep will do: depths, concurrencies, the order of trials, what it costs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from draftmark.errors import UsageError
from draftmark.model import Arm
from draftmark.run.records import Slot

MAX_ENTRIES = 1000  # more is a typing slip, not a plan
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_EXAMPLES = "give depths as 0..8, as off,4,8,16, or mixed as off,2..6"
_ADAPTIVE = "adaptive"
_USUAL = 3  # depths that a forecast measures, in the middle


def parse_depths(text: str) -> tuple[int, ...]:
    """Depths in the order given, duplicates left out; `off` is 0 and `a..b` includes both ends.

    Raises:
        UsageError: Empty, not whole numbers from 0, a range from high to low, or more than 1000 depths.
    """
    depths: dict[int, None] = {}
    for part in text.split(","):
        first, dots, last = (piece.strip() for piece in part.partition(".."))
        low = _whole(first, text, "depth", _EXAMPLES, off=not dots)
        high = _whole(last, text, "depth", _EXAMPLES) if dots else low
        if high < low:
            raise UsageError(f"--depth {text}: {part.strip()} runs backwards", next_step=f"write {high}..{low}")
        if high - low >= MAX_ENTRIES or len(depths) + high - low >= MAX_ENTRIES:
            raise UsageError(f"--depth {text}: more than {MAX_ENTRIES} depths", next_step=_EXAMPLES)
        depths.update(dict.fromkeys(range(low, high + 1)))
    return tuple(depths)


def parse_arms(text: str, adaptive: Callable[[], Arm]) -> tuple[Arm, ...]:
    """Arms in the order given: depths as in `parse_depths`, and `adaptive` for the one that varies its depth.

    Args:
        text: Such as `0..5,adaptive`.
        adaptive: Asked for that arm where the list names it.

    Raises:
        UsageError: As for `parse_depths`, or the engine has no such arm.
    """
    arms: dict[Arm, None] = {}
    depths: list[str] = []
    parts = text.split(",")
    for part in (*parts, None):
        if part is not None and part.strip() != _ADAPTIVE:
            depths.append(part)
            continue
        if depths:
            arms.update(dict.fromkeys(Arm(depth) for depth in parse_depths(",".join(depths))))
            depths.clear()
        if part is not None:
            arms[adaptive()] = None
    return tuple(arms)


def parse_concurrency(text: str) -> tuple[int, ...]:
    """Numbers of simultaneous requests, in the order given, duplicates left out.

    Raises:
        UsageError: Empty, not whole numbers from 1, or more than 1000 of them.
    """
    example = "give concurrencies as 1,8,32"
    levels = dict.fromkeys(_whole(part.strip(), text, "concurrency", example) for part in text.split(","))
    if 0 in levels:
        raise UsageError(f"--concurrency {text}: 0 requests at once measure nothing", next_step=example)
    if len(levels) > MAX_ENTRIES:
        raise UsageError(f"--concurrency: more than {MAX_ENTRIES} levels", next_step=example)
    return tuple(levels)


def _whole(piece: str, text: str, option: str, next_step: str, *, off: bool = False) -> int:
    if off and piece == "off":
        return 0
    if not _NUMBER.fullmatch(piece):
        what = f"{piece!r} is not a whole number from 0" if piece else "a number is missing"
        raise UsageError(f"--{option} {text}: {what}", next_step=next_step)
    return int(piece)


def schedule(arms: Sequence[Arm], rounds: int, baseline: Arm) -> tuple[Slot, ...]:
    """The trials in order: every arm once a round, each round in the reverse order of the one before.

    So a steady drift hits every arm alike over two rounds. The baseline opens the run and closes it, with one more
    trial where the last round does not end with it: only so can drift be seen at all. At the border of two rounds
    the same arm comes twice; those stay two trials, since a restart is part of what varies.

    Args:
        arms: To be tried, in the order given; the baseline is added in front if it is missing.
        rounds: At least 1.
        baseline: What runs today.

    Raises:
        ValueError: rounds is below 1.
    """
    if rounds < 1:
        raise ValueError(f"{rounds} rounds")
    order = [baseline, *(arm for arm in dict.fromkeys(arms) if arm != baseline)]
    slots = [
        (round_number, arm)
        for round_number in range(1, rounds + 1)
        for arm in (order if round_number % 2 else reversed(order))
    ]
    if len(slots) == 1 or slots[-1][1] != baseline:
        slots.append((rounds, baseline))
    return tuple(Slot(number=i, round=r, arm=arm) for i, (r, arm) in enumerate(slots, start=1))


def expected_restarts(slots: Sequence[Slot]) -> int:
    """Starts that the schedule takes, the final one that puts the original back not counted."""
    return len(slots)


def forecast_trials(arms: int, rounds: int) -> tuple[int, int]:
    """Trials of a run by forecast: as expected, and the most.

    The baseline first and last; between them three depths or fewer (docs/search.md), and the choice once more. At
    most every depth, the choice as often as rounds say, the baseline after each time. Trials that were disturbed
    and are tried again come on top.

    Args:
        arms: That may be started, beside the baseline.
        rounds: How often the choice is measured at most.
    """
    if not arms:
        return 1, 1
    again = min(rounds - 1, 1)
    return 2 + min(arms, _USUAL) + again, 1 + arms + (rounds - 1) + max(rounds - 1, 1)


def expected_minutes(start_s: float, measure_s: float, stop_s: float, trials: int) -> float:
    """How long so many trials take, in minutes.

    Args:
        start_s: Start to ready.
        measure_s: All workloads at all concurrencies of one trial, warm-up included.
        stop_s: Drain to gone.
        trials: How many.
    """
    return trials * (start_s + measure_s + stop_s) / 60.0
