"""Flags of an engine that may be searched beside the depth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KnobKind(StrEnum):
    """What a knob's values are."""

    SHARE = "share"
    WHOLE = "whole"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSpec:
    """One flag that an engine's version has, under the name by which users ask for it.

    Attributes:
        name: `mem-fraction`.
        flag: The engine's own: `--mem-fraction-static`.
        kind: What its values are.
        step: Between the values of a range; of whole numbers that double, None.
        least: Of whole numbers the smallest that means something.
        values: Every value, of a knob that takes names.
        runs: In force by the command line; None where it leaves that to the engine.
        drafts: It means something only while the server speculates.
        source: Where the flag was read.
    """

    name: str
    flag: str
    kind: KnobKind
    step: float | None = None
    least: int = 0
    values: tuple[str, ...] = ()
    runs: str | None = None
    drafts: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One knob with what may be tried of it.

    Attributes:
        name: As the user calls it.
        flag: The engine's own.
        levels: Values in rising order; None for what the engine does where the flag is left out.
        runs: Which of them runs today.
        ordered: Neighbours are alike; not so of names.
    """

    name: str
    flag: str
    levels: tuple[str | None, ...]
    runs: int
    ordered: bool = True

    def place(self, level: int) -> float | None:
        """From 0 to 1 along the order; None where it has no place in it."""
        known = [i for i, value in enumerate(self.levels) if value is not None]
        if not self.ordered or level not in known:
            return None
        return known.index(level) / max(len(known) - 1, 1)

    @property
    def probes(self) -> tuple[int, ...]:
        """What is tried alone: both ends, or the other end and the middle; of names each."""
        others = [i for i, value in enumerate(self.levels) if value is not None and i != self.runs]
        if not self.ordered or len(others) <= 2:
            return tuple(others)
        ends = {others[0], others[-1]}
        if self.levels[self.runs] is not None and not others[0] < self.runs < others[-1]:
            far = others[-1] if self.runs < others[0] else others[0]
            ends = {far, others[len(others) // 2]}
        return tuple(sorted(ends))

    def words(self, level: int) -> str:
        """`mem-fraction=0.85`."""
        value = self.levels[level]
        return f"{self.name}={'as it is' if value is None else value}"
