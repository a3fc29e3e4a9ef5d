"""A claim: one rule's answer to why it died, with the lines that prove it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from draftmark.postmortem.faults import Fault
from draftmark.postmortem.model import Confidence, Line, Phase


@dataclass(slots=True, kw_only=True)
class Claim:
    """One possible verdict.

    Attributes:
        lines: The proof, most decisive first.
        fault: The server's own failure behind it, if it is one.
        asked_first: A stop had been asked for before it happened.
    """

    cause: str
    confidence: Confidence
    summary: str
    lines: list[Line] = field(default_factory=list)
    phase: Phase | None = None
    fault: Fault | None = None
    root_elsewhere: str | None = None
    asked_first: bool = False
    died: bool | None = True

    @property
    def time(self) -> float | None:
        """When, on the wall clock, as far as the proof tells."""
        return next((line.time for line in self.lines if line.time is not None and line.clock == "wall"), None)


def certain_if(condition: bool) -> Confidence:
    """`certain` if so, else `likely`."""
    return Confidence.CERTAIN if condition else Confidence.LIKELY


_NUMBER = re.compile(r"\d+")


def unique(lines: Iterable[Line], limit: int = 6) -> list[Line]:
    """The lines without those that repeat another but for numbers, at most so many."""
    seen: set[str] = set()
    kept: list[Line] = []
    for line in lines:
        key = _NUMBER.sub("#", line.text)
        if key not in seen:
            seen.add(key)
            kept.append(line)
    return kept[:limit]
