"""Which settings of which knobs may be tried: `--knob NAME=RANGE` read against what an engine has. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from math import prod

from draftmark.errors import UsageError
from draftmark.model import Arm, Knob, KnobKind, KnobSpec

Point = tuple[int, ...]
"""One setting: of each knob, which of its levels."""

_MOST_VALUES = 64  # of one knob: more is a typing slip
_MOST_KNOBS = 8  # subsets of knobs are weighed one by one
_EXAMPLES = {
    KnobKind.SHARE: "=0.80..0.92, =0.80..0.92:0.02 with a step, or =0.85,0.90",
    KnobKind.WHOLE: "=8..64, =8..64:8 with a step, or =8,48",
    KnobKind.NAME: "=NAME,NAME",
}
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?|\.[0-9]{1,6}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Space:
    """Every setting of some knobs, on top of one depth."""

    knobs: tuple[Knob, ...]

    @property
    def base(self) -> Point:
        """What runs."""
        return tuple(knob.runs for knob in self.knobs)

    @property
    def size(self) -> int:
        """How many settings there are."""
        return prod(len(knob.levels) for knob in self.knobs)

    def with_level(self, knob: int, level: int) -> Point:
        """What runs, but for one knob."""
        return (*self.base[:knob], level, *self.base[knob + 1 :])

    def points(self, vary: Sequence[int]) -> Iterator[Point]:
        """All settings in which these knobs differ, the others as they run."""
        choices = [range(len(knob.levels)) if i in vary else (knob.runs,) for i, knob in enumerate(self.knobs)]
        return product(*choices)

    def arm(self, point: Point, depth: int) -> Arm:
        """As an arm: the flags that differ from the command line."""
        return Arm(
            depth,
            tuple((k.flag, str(k.levels[at])) for k, at in zip(self.knobs, point, strict=True) if at != k.runs),
        )

    def point(self, arm: Arm) -> Point | None:
        """The setting of an arm; None where it has other flags."""
        wanted = dict(arm.knobs)
        found = []
        for knob in self.knobs:
            value = wanted.pop(knob.flag, None)
            if value is not None and value not in knob.levels:
                return None
            found.append(knob.runs if value is None else knob.levels.index(value))
        return None if wanted else tuple(found)

    def levels(self, point: Point) -> dict[str, str | None]:
        """Value by knob."""
        return {knob.name: knob.levels[at] for knob, at in zip(self.knobs, point, strict=True)}

    def words(self, point: Point) -> str:
        """`mem-fraction=0.85, topk=2`; what runs is `as it is`."""
        told = [k.words(at) for k, at in zip(self.knobs, point, strict=True) if at != k.runs]
        return ", ".join(told) or "as it is"


# --- from the command line -------------------------------------------------------------------------------------


def parse_knobs(texts: Sequence[str], known: Mapping[str, KnobSpec], engine: str) -> Space:
    """The knobs that were asked for.

    Args:
        texts: `NAME=RANGE`, each.
        known: What the engine has, by name.
        engine: Its name, for errors.

    Raises:
        UsageError: A name that it has not, a range that is none, a knob twice, or nothing to try in one.
    """
    found: dict[str, Knob] = {}
    for text in texts:
        name, equals, wanted = (piece.strip() for piece in text.partition("="))
        if not equals or not wanted:
            example = _example(known[name]) if name in known else "--knob NAME=LOW..HIGH or NAME=A,B,C"
            raise UsageError(f"--knob {text}: a range is missing", next_step=example)
        if name not in known:
            raise UsageError(
                f"{engine} has no knob {name!r}", evidence=(f"--knob {text}",),
                next_step=f"it has: {', '.join(sorted(known)) or 'none'}",
            )  # fmt: skip
        if name in found:
            raise UsageError(f"--knob {name} is given twice", next_step="write its values in one range or list")
        found[name] = _knob(known[name], wanted, text)
    if len(found) > _MOST_KNOBS:
        raise UsageError(f"{len(found)} knobs at once", next_step=f"name at most {_MOST_KNOBS}")
    return Space(tuple(found.values()))


def _knob(spec: KnobSpec, wanted: str, text: str) -> Knob:
    names = spec.kind is KnobKind.NAME
    values = _names(spec, wanted, text) if names else _numbers(spec, wanted, text)
    runs = (
        spec.runs if spec.runs is None or names else _plain(Decimal(spec.runs)) if _is_number(spec.runs) else None
    )
    levels: list[str | None] = [*values]
    if runs not in levels:
        levels.append(runs)
        if runs is not None and not names:
            levels.sort(key=lambda value: Decimal(str(value)))
    if len(levels) < 2:
        raise UsageError(f"--knob {text}: nothing to try, the service runs with {runs}", next_step=_example(spec))
    return Knob(name=spec.name, flag=spec.flag, levels=tuple(levels), runs=levels.index(runs), ordered=not names)


def _names(spec: KnobSpec, wanted: str, text: str) -> list[str]:
    values = list(dict.fromkeys(piece.strip() for piece in wanted.split(",")))
    for value in values:
        if ".." in value:
            raise UsageError(
                f"--knob {text}: {spec.name} takes names, which have no range", next_step=_example(spec)
            )
        if not _NAME.fullmatch(value) or (spec.values and value not in spec.values):
            raise UsageError(
                f"--knob {text}: {spec.name} does not take {value!r}",
                next_step=f"it takes: {', '.join(spec.values)}" if spec.values else _example(spec),
            )
    return values


def _numbers(spec: KnobSpec, wanted: str, text: str) -> list[str]:
    values: set[Decimal] = set()
    for part in wanted.split(","):
        span, colon, step = (piece.strip() for piece in part.partition(":"))
        low, dots, high = (piece.strip() for piece in span.partition(".."))
        first = _number(spec, low, text)
        last = _number(spec, high, text) if dots else first
        if not dots and colon:
            raise UsageError(f"--knob {text}: a step belongs to a range", next_step=_example(spec))
        if last < first:
            raise UsageError(f"--knob {text}: {span} runs backwards", next_step=f"write {high}..{low}")
        values.update(_steps(spec, first, last, _step(spec, step, text) if colon else None, text))
    if len(values) > _MOST_VALUES:
        raise UsageError(f"--knob {text}: more than {_MOST_VALUES} values", next_step=_example(spec))
    return [_plain(value) for value in sorted(values)]


def _steps(spec: KnobSpec, first: Decimal, last: Decimal, step: Decimal | None, text: str) -> set[Decimal]:
    """Both ends, and what lies between: by the step, or doubling where the engine's knob has none."""
    by = step if step is not None else None if spec.step is None else Decimal(str(spec.step))
    if by is not None and (last - first) / by > _MOST_VALUES:
        raise UsageError(f"--knob {text}: more than {_MOST_VALUES} values", next_step=_example(spec))
    found, value = {last}, first
    while value < last:
        found.add(value)
        value = value + by if by is not None else max(value * 2, value + 1)
    return found


def _number(spec: KnobSpec, piece: str, text: str) -> Decimal:
    """A value that the engine could take."""
    value = _told(spec, piece, text)
    if spec.kind is KnobKind.SHARE and not 0 < value < 1:
        raise UsageError(f"--knob {text}: {piece} is not between 0 and 1", next_step=_example(spec))
    if spec.kind is KnobKind.WHOLE and value < spec.least:
        raise UsageError(
            f"--knob {text}: {spec.name} is at least {spec.least}, not {piece}", next_step=_example(spec)
        )
    return value


def _step(spec: KnobSpec, piece: str, text: str) -> Decimal:
    step = _told(spec, piece, text)
    if step <= 0:
        raise UsageError(f"--knob {text}: a step of 0", next_step=_example(spec))
    return step


def _told(spec: KnobSpec, piece: str, text: str) -> Decimal:
    """A number as it is written: of no more digits than an engine would be given."""
    value = Decimal(piece) if _is_number(piece) else None
    if value is None or (spec.kind is KnobKind.WHOLE and value != int(value)):
        what = "a whole number" if spec.kind is KnobKind.WHOLE else "a number of up to 6 decimal places"
        raise UsageError(f"--knob {text}: {piece!r} is not {what}", next_step=_example(spec))
    return value


def _example(spec: KnobSpec) -> str:
    if spec.kind is KnobKind.WHOLE and spec.step is not None:
        low = max(spec.least, 1)
        return f"--knob {spec.name}={low}..{low + 3}, or ={low},{low + 1}"
    return f"--knob {spec.name}{_EXAMPLES[spec.kind]}"


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"
