"""What could be tried, and why it is not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration that could be tried.

    Attributes:
        depth: Draft tokens proposed per verification; 0 is speculation off.
        knobs: Further flags of the engine, as (flag, value) pairs in a stable order.
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
        return "-".join([base, *(f"{k.lstrip('-')}={v}" for k, v in self.knobs)])

    @property
    def label(self) -> str:
        """For people: `off`, `depth 4`, `depth 4, mem-fraction=0.85`."""
        base = "off" if self.depth == 0 else f"depth {self.depth}"
        return ", ".join([base, *(f"{k.lstrip('-')}={v}" for k, v in self.knobs)])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an arm is not started: known beforehand, with the fact it rests on.

    Attributes:
        code: `dead-depth` (would draft nothing), `does-not-fit`, `bad-flag`, ….
        because: One sentence for people.
    """

    code: str
    because: str
