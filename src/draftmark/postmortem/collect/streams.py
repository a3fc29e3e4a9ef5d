"""Output of commands on its way into a source: closed behind the last reader, split, counted, looked into."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from draftmark.ports import Completed, Host

_SEAM = 64
_HEAD = 4096


@dataclass(slots=True)
class Output:
    """What a command writes. It is gone when the reader is, also one that gives up half-way.

    Attributes:
        host: Where it runs.
        argv: Command; it starts with the first chunk that is wanted.
        ended: How it ended, once it has.
    """

    host: Host
    argv: Sequence[str]
    ended: Completed | None = None

    def lines(self) -> Generator[bytes, None, None]:
        """Its lines, without their ends."""
        with closing(iter(self)) as chunks:
            yield from lines_of(chunks)

    def __iter__(self) -> Generator[bytes, None, None]:
        """Its chunks."""
        command = self.host.stream(self.argv)
        try:
            yield from command
        finally:
            self.ended = command.close()


def lines_of(chunks: Iterable[bytes], limit: int = 1 << 20) -> Iterator[bytes]:
    """Lines of a stream, without their ends; a line longer than the limit is cut into several."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > limit:
            yield rest
            rest = b""
    if rest:
        yield rest


@dataclass(slots=True)
class Counted:
    """Chunks on their way into a source: how many bytes there were, and how often each short mark was in them."""

    chunks: Iterable[bytes]
    marks: tuple[bytes, ...] = ()
    size: int = 0
    found: dict[bytes, int] = field(default_factory=dict)
    head: bytes = b""

    def __iter__(self) -> Iterator[bytes]:
        """The chunks."""
        before = b""
        for chunk in self.chunks:
            self.size += len(chunk)
            self.head += chunk[: _HEAD - len(self.head)]
            for mark in self.marks:
                # As much of what came before as may hold the beginning of a mark, but no whole one.
                seam = before[-(len(mark) - 1) :] if len(mark) > 1 else b""
                self.found[mark] = self.found.get(mark, 0) + (seam + chunk).count(mark)
            before = (before + chunk)[-_SEAM:]
            yield chunk


def peeked(chunks: Iterable[bytes]) -> Iterable[bytes] | None:
    """The same chunks; None when there is nothing in them."""
    iterator = iter(chunks)
    for first in iterator:
        if first.strip():
            return _chained(first, iterator)
    return None


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
