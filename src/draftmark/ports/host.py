"""A computer: commands, files, sockets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended.

    Attributes:
        status: Exit status, negative for a signal; None when it never ran (`missing`) or had to be left behind.
        stdout: As far as it was kept; empty after a stream, which has handed it out already.
        stderr: The beginning, made printable.
        cut: The output was longer than the limit, or nobody wanted the rest: the command was killed.
        timed_out: The time was up: the command was killed.
        missing: There is no such program, or it may not be executed.
    """

    status: int | None
    stdout: bytes = b""
    stderr: str = ""
    cut: bool = False
    timed_out: bool = False
    missing: bool = False

    @property
    def ok(self) -> bool:
        """It ran to its end and says that all went well."""
        return self.status == 0 and not self.timed_out


class Stream(Protocol):
    """The output of a command that runs: iterate over it, then close it, also half-way."""

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of stdout as they come; they do not end where lines do."""
        ...

    def close(self) -> Completed:
        """Kill the command if it still runs, and say how it ended. Idempotent."""
        ...


class Host(Protocol):
    """A computer whose services are looked at or changed. Safe to use from several threads.

    Commands run without a shell, a terminal, a pager or a locale.
    """

    @property
    def name(self) -> str:
        """Host name, for people."""
        ...

    @property
    def is_root(self) -> bool:
        """Whether commands run as root there."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - the name that subprocess gave it
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        """Run a command to its end, `input` on its stdin, and keep its output.

        Whatever goes wrong with it is in the answer.

        Raises:
            HostError: The host itself cannot be reached any more.
        """
        ...

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> Stream:
        """Start a command whose output may be larger than memory."""
        ...

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """The beginning of a file.

        Raises:
            OSError: Not there, not readable, not a file.
        """
        ...

    def reach(self, address: str, port: int) -> tuple[str, int]:
        """Where, from here, one reaches what listens at this address and port of that host.

        Raises:
            HostError: The host itself cannot be reached any more.
        """
        ...
