"""Byte streams: read in blocks, unpacked by what they begin with, bounded."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from draftmark.postmortem.intake.limits import MIB, Limits

BLOCK = MIB
GZIP, ZSTD, XZ, BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh"
ZIP, JOURNAL = (b"PK\x03\x04", b"PK\x05\x06"), b"LPKSHHRH"


class Readable(Protocol):
    """What a source is read from."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


class MissingCodecError(Exception):
    """No library that unpacks a stream is installed. `command` does it."""

    def __init__(self, command: str) -> None:
        super().__init__(command)
        self.command = command


class Peeked:
    """A stream of which the first bytes were looked at, and which counts what it gave."""

    def __init__(self, stream: Readable, size: int = 1024) -> None:
        self._stream = stream
        self.head = b""
        while len(self.head) < size and (more := stream.read(size - len(self.head))):
            self.head += more
        self._ahead = self.head
        self.given = 0

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes."""
        if self._ahead and size >= 0:
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
        else:
            taken, self._ahead = self._ahead + self._stream.read(size), b""
        self.given += len(taken)
        return taken


class Counted:
    """A stream that tells how many bytes were taken from it."""

    def __init__(self, stream: Readable, told: Callable[[int], None]) -> None:
        self._stream = stream
        self._told = told
        self._taken = 0

    def read(self, size: int = -1, /) -> bytes:
        """As a file's."""
        data = self._stream.read(size)
        self._taken += len(data)
        self._told(self._taken)
        return data


def is_tar(head: bytes) -> bool:
    """By the magic of POSIX and GNU archives."""
    return head[257:262] == b"ustar"


Unpack = Callable[[Readable], Any]


def packing(head: bytes) -> Unpack | None:
    """Opens what a stream begins with as its content; None when it is not compressed.

    The codecs are imported when they are needed: they would cost every short log some milliseconds.

    Raises:
        MissingCodecError: Zstandard, where no library reads it.
    """
    if head.startswith(GZIP):
        import gzip

        return lambda stream: gzip.GzipFile(fileobj=stream)  # type: ignore[call-overload]
    if head.startswith(BZIP2) and head[4:10] == b"1AY&SY":
        import bz2

        return lambda stream: bz2.BZ2File(stream)  # type: ignore[call-overload]
    if head.startswith(XZ):
        import lzma

        return lambda stream: lzma.LZMAFile(stream)  # type: ignore[arg-type]
    return _zstandard() if head.startswith(ZSTD) else None


def _zstandard() -> Unpack:
    try:
        zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    except ImportError:
        raise MissingCodecError("zstd -dc") from None
    return lambda stream: zstd.ZstdFile(stream)


class Allowance:
    """How much may still be unpacked, over all that was handed over."""

    def __init__(self, limits: Limits) -> None:
        self.left = limits.unpacked_bytes
        self.ratio, self.ratio_from = limits.ratio, limits.ratio_from_bytes


class Unpacked:
    """A compressed stream as its content.

    What is damaged, cut off or out of proportion to its size ends it early, and `note` says so.

    Args:
        reader: Gives the content (`packing`, or a member of a zip archive).
        taken: How many compressed bytes went into it so far.
        allowance: For this and all others.
    """

    def __init__(self, reader: Any, taken: Callable[[], int], allowance: Allowance) -> None:
        self.note = ""
        self._reader = reader
        self._taken = taken
        self._allowance = allowance
        self._given = 0

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes of the content."""
        if self.note:
            return b""
        try:
            content: bytes = self._reader.read1(size if 0 <= size < BLOCK else BLOCK)
        except Exception as error:  # every codec and archive has exceptions of its own
            self.note = self._damage(error)
            return b""
        self._given += len(content)
        self._allowance.left -= len(content)
        self._judge()
        return content

    def _damage(self, error: Exception) -> str:
        said = str(error)
        if isinstance(error, EOFError) or "unexpected end" in said:
            return "cut off: what could be unpacked was read"
        if "Not a gzipped" in said and self._given:
            return "something else follows the compressed part: not read"
        return f"damaged, what could be unpacked was read ({said})"

    def _judge(self) -> None:
        allowance, taken = self._allowance, max(self._taken(), 1)
        bomb = self._given > allowance.ratio_from and self._given > allowance.ratio * taken
        if bomb or allowance.left < 0:
            self.note = (
                f"{max(taken >> 10, 1)} KiB unpack to more than {self._given // MIB} MiB: the rest was not read"
            )


def blocks(stream: Readable, first: int = 1 << 16) -> Iterator[bytes]:
    """Everything, in blocks. The first is small: it is enough for most logs."""
    block = stream.read(first)
    while block:
        yield block
        block = stream.read(BLOCK)
