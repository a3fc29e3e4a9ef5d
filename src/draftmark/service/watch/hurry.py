"""A host that is asked in a hurry: what does not answer soon counts as not answering."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from draftmark.ports import Completed, Host, Stream


class Hurried:
    """ports.Host with a limit for each command and a deadline for all of them.

    Args:
        host: Who is asked.
        each_s: Longest wait for one command.
        all_s: From now on; afterwards commands are given no time.
    """

    def __init__(
        self, host: Host, *, each_s: float, all_s: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        self._each_s = each_s
        self._monotonic = monotonic
        self._deadline = monotonic() + all_s
        self.missed = False
        """Whether a command was not given the time that it wanted."""

    @property
    def name(self) -> str:
        """The host's."""
        return self._host.name

    @property
    def is_root(self) -> bool:
        """The host's."""
        return self._host.is_root

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in the port
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        """Run it in what time there is."""
        given = self._given(timeout_s)
        if given <= 0:
            self.missed = True
            return Completed(None, timed_out=True)
        ended = self._host.run(argv, input=input, timeout_s=given, limit_bytes=limit_bytes)
        self.note(ended, given, timeout_s)
        return ended

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> Stream:
        """Start it; it has the time that is left for all."""
        left = max(0.01, min(timeout_s, self._deadline - self._monotonic()))
        return _Noted(self._host.stream(argv, timeout_s=left), self, left, timeout_s)

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """As the host reads."""
        return self._host.read(path, limit_bytes)

    def reach(self, address: str, port: int) -> tuple[str, int]:
        """As the host is reached."""
        return self._host.reach(address, port)

    def _given(self, wanted_s: float) -> float:
        return min(wanted_s, self._each_s, self._deadline - self._monotonic())

    def note(self, ended: Completed, given_s: float, wanted_s: float) -> None:
        """Remember whether a command that ended was cut short."""
        self.missed = self.missed or (ended.timed_out and given_s < wanted_s)


class _Noted:
    """A stream whose end is noted."""

    def __init__(self, stream: Stream, hurried: Hurried, given_s: float, wanted_s: float) -> None:
        self._stream = stream
        self._hurried = hurried
        self._times = given_s, wanted_s

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> Completed:
        ended = self._stream.close()
        self._hurried.note(ended, *self._times)
        return ended
