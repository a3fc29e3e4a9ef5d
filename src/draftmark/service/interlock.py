"""The founding mistake, a service that is stopped under a running measurement, made impossible in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from draftmark.errors import MeasuringError


class Interlock:
    """Held by a supervisor: while a measurement runs, everything that would end the service asks here first."""

    def __init__(self) -> None:
        self._running = 0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """A measurement runs until the block is left, however that happens."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def check(self, what: str) -> None:
        """May be passed only while nothing is measured.

        Args:
            what: What was about to be done, for the error: `stop`.

        Raises:
            MeasuringError: A measurement runs.
        """
        if self._running:
            raise MeasuringError(
                f"a measurement runs: {what} would cut its requests",
                next_step="end the measurement first; its requests finish, then the service is stopped",
            )
