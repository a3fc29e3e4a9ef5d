"""Time, as a seam."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time, so that a test can own it."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        ...

    def now_iso(self) -> str:
        """Wall clock, ISO 8601, UTC, milliseconds: `2026-11-29T17:50:27.123Z`."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
