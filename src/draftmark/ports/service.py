"""What a server runs under, and how busy its host is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from draftmark.errors import HostError
from draftmark.model import Identity, Intervention, StopReport


@dataclass(frozen=True, slots=True)
class CpuSample:
    """CPU seconds since boot, and of one process group.

    Attributes:
        busy_s: All CPUs, everything but idle and iowait; steal included.
        group_s: The server's processes, live and reaped.
        own_s: This process and its reaped children, without what was the server's.
        cpus: Number of CPUs online.
    """

    busy_s: float
    group_s: float
    own_s: float
    cpus: int


@dataclass(frozen=True, slots=True)
class ForeignLoad:
    """CPU that others use while nothing of ours runs.

    Attributes:
        cores: CPU cores in use, steal included.
        busiest: The process that used most, in words; None when none stands out.
    """

    cores: float
    busiest: str | None


class HostLoad(Protocol):
    """How busy the server's host is by itself."""

    def foreign(self, seconds: float) -> ForeignLoad | None:
        """Look for so many seconds; None where it cannot be told."""
        ...


class Supervisor(Protocol):
    """Starts and stops one service, and in the end leaves it as it was found, whatever kills us meanwhile."""

    @property
    def original(self) -> tuple[str, ...]:
        """The service's own command line, as found."""
        ...

    @property
    def altered(self) -> tuple[str, ...]:
        """What somebody else was found to have changed of the service's configuration meanwhile, in words.

        Looked for before each start, and when the service is put back.
        """
        ...

    def heed(self) -> Intervention | None:
        """See whether somebody else has stopped or started the service since we last did; None when nobody has.

        A service that somebody else has stopped stays so: `restore` leaves it down from then on. That is told again
        each time.

        Raises:
            FailedError: The hold on it is lost.
            HostError: Its host does not answer.
        """
        ...

    def start(self, command: Sequence[str], log: Path) -> Identity:
        """Start `command`, its stdout and stderr appended to `log`.

        Raises:
            FailedError: Somebody else has changed its configuration: what was measured is another service.
            StartError: The program cannot be executed.
            StorageError: The log cannot be written.
            RefusedError: An instance is running already.
        """
        ...

    def identity(self) -> Identity | None:
        """Who is running now; None when nothing is."""
        ...

    def exit_code(self) -> int | None:
        """Exit status of the last main process, negative for a signal; None while it runs or if unknown."""
        ...

    def gather_log(self) -> None:
        """Bring the log that `start` was given up to date."""
        ...

    def measuring(self) -> AbstractContextManager[None]:
        """While inside, whatever would stop, change or restart the service raises MeasuringError."""
        ...

    def check(self) -> None:
        """See that the service is still ours to measure.

        Raises:
            HostError: Its host did not answer lately.
        """
        ...

    def look(self) -> None:
        """Note who is connected to the service, before its engine is asked whether it is idle."""
        ...

    def stop(self, *, hurry: bool = False, force: bool = False) -> StopReport:
        """Ask it to end, and see that every process of the service is gone. Idempotent.

        Args:
            hurry: The user wants to leave: give it no more than a few seconds in all, where that is ours to say.
            force: Also when requests came in since the last `look`.

        Raises:
            BusyError: Requests came in since the last `look`; it goes on serving. Not every supervisor can tell.
            MeasuringError: A measurement runs.
            UnrestoredError: A process does not end even at SIGKILL.
        """
        ...

    def keep(self, command: Sequence[str]) -> None:
        """What runs now, started with `command`, becomes the service's own configuration.

        Raises:
            RefusedError: This kind of service has no configuration that could be changed.
            StorageError: It cannot be written; nothing is changed.
        """
        ...

    def restore(self, *, force: bool = False) -> bool:
        """Put the service back as it was found; whether it should now serve again. Idempotent.

        Args:
            force: Also when requests came in since the last `look`.

        Raises:
            BusyError: As for `stop`.
            MeasuringError: A measurement runs.
            UnrestoredError: It could not; the commands that do are in it.
        """
        ...

    def await_host(self, error: HostError) -> None:
        """The service's host could not be reached: wait until it can be again.

        Raises:
            FailedError: It can be, and has put the service back by itself.
            UnrestoredError: It cannot be for longer than it leaves a service alone.
            HostError: `error`, where nothing is to be waited for.
        """
        ...

    def commands(self) -> list[tuple[str, ...]]:
        """Command lines of the service's processes as the kernel has them; empty where they cannot be read."""
        ...

    def cpu(self) -> CpuSample | None:
        """CPU accounting for telling a neighbour's work from the server's; None where it cannot be read."""
        ...
