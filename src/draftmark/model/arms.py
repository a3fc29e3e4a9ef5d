"""What could be tried, and why it is not."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_UNSAFE = re.compile(r"[^A-Za-z0-9._+=-]+")  # in a directory's name, on any file system and in any shell
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration that could be tried.

    Attributes:
        depth: Draft tokens proposed per verification; 0 is speculation off.
        knobs: Further flags of the engine, as (flag, value) pairs in a stable order; "" for a flag without value.
    """

    depth: int
    knobs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"depth {self.depth} is negative")

    @property
    def name(self) -> str:
        """Short, unique among the arms of a run, fit for a directory name."""
        base = "off" if self.depth == 0 else f"d{self.depth}"
        told = "-".join([base, *map(_words, self.knobs)])
        safe = _UNSAFE.sub("_", told)
        if safe == told and len(told) <= _LONGEST:
            return told
        # What was changed or cut off may be all that tells two arms apart.
        return f"{safe[:_LONGEST]}-{hashlib.sha256(told.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"

    @property
    def label(self) -> str:
        """For people: `off`, `depth 4`, `depth 3, adaptive`, `depth 4, mem-fraction=0.85`."""
        base = "off" if self.depth == 0 else f"depth {self.depth}"
        return ", ".join([base, *(_words(knob).removeprefix("speculative-") for knob in self.knobs)])


def _words(knob: tuple[str, str]) -> str:
    """`mem-fraction=0.85`, `speculative-adaptive`."""
    flag, value = knob
    return f"{flag.lstrip('-')}={value}" if value else flag.lstrip("-")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an arm is not started: known beforehand, with the fact it rests on.

    Attributes:
        code: `dead-depth` (would draft nothing), `does-not-fit`, `bad-flag`, ….
        because: One sentence for people.
    """

    code: str
    because: str
