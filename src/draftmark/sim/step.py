"""One line of a simulated start or end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A line of the start, and the seconds that go by before it.

    Attributes:
        ranks: Every rank says it, not only the launcher.
        first: Of the ranks only the first says it.
        plain: Without a stamp.
    """

    text: str
    after_s: float = 0.0
    ranks: bool = False
    first: bool = False
    plain: bool = False
