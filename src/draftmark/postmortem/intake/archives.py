"""Members of tar and zip archives, one after the other, as streams. Nothing is written to disk."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from draftmark.postmortem.intake.streams import BLOCK, Peeked, Readable, blocks

_BROKEN = (tarfile.TarError, zipfile.BadZipFile, RuntimeError, EOFError, ValueError, OSError, zlib.error)
_IN_MEMORY = 64 << 20


class DamagedError(Exception):
    """An archive that ends early, is encrypted, or is none after all."""


class Member(NamedTuple):
    """One file of an archive.

    Attributes:
        name: In the archive.
        content: To be read before the next member is asked for.
        taken: How many bytes of the archive went into what was read so far.
    """

    name: str
    content: Any
    taken: Callable[[], int]


def tar_members(stream: Peeked) -> Iterator[Member]:
    """Regular files of a tar archive.

    Raises:
        DamagedError: After the members that could be read.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK) as archive:  # type: ignore[call-overload]
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    yield Member(member.name, content, lambda: stream.given)
    except _BROKEN as error:
        raise DamagedError(str(error)) from error


def zip_members(stream: Readable, file: IO[bytes] | None) -> Iterator[Member]:
    """Files of a zip archive, which has to be one that can seek, or small.

    Raises:
        DamagedError: After the members that could be read.
    """
    try:
        with zipfile.ZipFile(file or _in_memory(stream)) as archive:
            for member in archive.infolist():
                if not member.is_dir():
                    with archive.open(member) as content:
                        yield Member(member.filename, content, _size_of(member))
    except _BROKEN as error:
        raise DamagedError(str(error)) from error


def _size_of(member: zipfile.ZipInfo) -> Callable[[], int]:
    return lambda: member.compress_size


def _in_memory(stream: Readable) -> IO[bytes]:
    data = bytearray()
    for block in blocks(stream):
        data += block
        if len(data) > _IN_MEMORY:
            raise DamagedError(f"a zip archive of more than {_IN_MEMORY >> 20} MiB that is not a file")
    return io.BytesIO(data)
