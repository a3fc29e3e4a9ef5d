"""A file of the user's as text, read as it goes; what is no text is named with its place.

Nothing is held but the piece that is looked at, so that the first prompts of a file of any size can be taken.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from draftmark.errors import BadInputError

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_FILE_BYTES = 256 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_MAGIC = (
    (codecs.BOM_UTF16_LE, "UTF-16, not UTF-8", "iconv -f utf-16 -t utf-8"),
    (codecs.BOM_UTF16_BE, "UTF-16, not UTF-8", "iconv -f utf-16 -t utf-8"),
    (b"\x1f\x8b", "compressed with gzip", "gunzip -c FILE"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "zstd -dc FILE"),
    (
        b"PAR1",
        "Parquet, not text",
        "python -c \"import pandas; pandas.read_parquet('IN').to_json('OUT', orient='records', lines=True)\"",
    ),
)


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a file is for, in the words of an error.

    Attributes:
        option: The option that named it.
        kind: `prompt file`, `trace file`.
        forms: What an entry may look like.
        save: How to save it.
        take: How to take a part of one that is too large.
    """

    option: str
    kind: str
    forms: str
    save: str
    take: str


def chunks(path: Path, purpose: Purpose, *, limit: int | None = None) -> Iterator[str]:
    """The file's text in pieces; without a byte order mark, and with something in it.

    Args:
        path: A regular file.
        purpose: For errors.
        limit: Bytes above which it is refused; None for none.

    Raises:
        BadInputError: It cannot be read, or is not UTF-8 text.
    """
    offset, line, blank = 0, 1, True
    decoder = codecs.getincrementaldecoder("utf-8")()
    for number, block in enumerate(_blocks(path, purpose, limit)):
        data = block
        if number == 0:
            _refuse_magic(path, data, purpose)
            data = data.removeprefix(codecs.BOM_UTF8)
            offset = len(block) - len(data)
        if (zero := data.find(0)) >= 0:
            raise BadInputError(
                f"{path}, line {line + data.count(10, 0, zero)}: a zero byte, so this is not a text file",
                evidence=(f"at offset {offset + zero}",),
                next_step=purpose.save,
            )
        text = _decoded(path, decoder, data, line=line, offset=offset)
        blank = blank and not text.strip()
        yield text
        offset += len(data)
        line += data.count(10)
    _decoded(path, decoder, b"", line=line, offset=offset, final=True)
    if blank:
        raise BadInputError(f"{path} is empty", next_step=f"each line should be {purpose.forms}")


def name_of(path: Path) -> str:
    """A file's name as it can be written down: the bytes of one need not be text."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def stem_of(path: Path, otherwise: str) -> str:
    """Its name without the ending, for a workload; `all` is taken, by the axis over all workloads."""
    stem = os.fsencode(path.stem).decode("utf-8", "replace")
    return otherwise if stem in ("", "all") else stem


def size_of(path: Path, purpose: Purpose) -> int:
    """Bytes in a file; 0 for one whose size is not told.

    Raises:
        BadInputError: There is none that could be read.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error, purpose) from None
    if stat.S_ISDIR(found.st_mode):
        raise _unreadable(path, IsADirectoryError(), purpose)
    if not stat.S_ISREG(found.st_mode):
        raise BadInputError(
            f"{path} is not a regular file but {_file_kind(found.st_mode)}",
            next_step=f"write it to a file first and give that to {purpose.option}",
        )
    return found.st_size


def bad_line(path: Path, line: int, why: str, raw: str, next_step: str) -> BadInputError:
    """An entry that cannot be used, with its place and its beginning."""
    shown = " ".join(raw[:400].split())
    return BadInputError(
        f"{path}, line {line}: {why}",
        evidence=(shown if len(shown) <= 120 else shown[:117] + "…",) if shown else (),
        next_step=next_step,
    )


def lines(path: Path, pieces: Iterator[str]) -> Iterator[tuple[int, str]]:
    """Lines with something in them, and their numbers, without their ends.

    Raises:
        BadInputError: One is over 8 MiB.
    """
    number, rest = 0, ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        if len(rest) > MAX_LINE_BYTES:
            whole, rest = [*whole, rest], ""
        for line in whole:
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise BadInputError(
                    f"{path}, line {number}: over 8 MiB in one line",
                    next_step="nothing as long as this fits a context; cut it, or write one entry a line",
                )
            if line.strip():
                yield number, line
    if rest.strip():
        yield number + 1, rest


def _blocks(path: Path, purpose: Purpose, limit: int | None) -> Iterator[bytes]:
    """The file's bytes; what never ends or is too large is not read at all."""
    size = size_of(path, purpose)
    if limit is not None and size > limit:
        raise _too_large(path, f"it has {size} bytes", limit, purpose)
    read = 0
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                read += len(data)
                if limit is not None and read > limit:  # the kernel's files say 0 bytes, others may be growing
                    raise _too_large(path, "it went on after that", limit, purpose)
                yield data
    except OSError as error:
        raise _unreadable(path, error, purpose) from error


def _decoded(
    path: Path, decoder: codecs.IncrementalDecoder, data: bytes, *, line: int, offset: int, final: bool = False
) -> str:
    held = decoder.getstate()[0]
    try:
        return decoder.decode(data, final)
    except UnicodeDecodeError as error:
        given = held + data
        at = line + given.count(10, 0, error.start)
        raise BadInputError(
            f"{path}, line {at}: not UTF-8",
            evidence=(
                f"byte 0x{given[error.start]:02x} at offset {offset - len(held) + error.start}: {error.reason}",
            ),
            next_step="convert it, for example: iconv -f latin1 -t utf-8",
        ) from None


def _refuse_magic(path: Path, data: bytes, purpose: Purpose) -> None:
    for magic, what, command in _MAGIC:
        if data.startswith(magic):
            raise BadInputError(
                f"{path}, line 1: {what}",
                evidence=(f"it begins with the bytes {magic.hex(' ')}",),
                next_step=f"{purpose.save}, for example: {command}",
            )


def _unreadable(path: Path, error: Exception, purpose: Purpose) -> BadInputError:
    if isinstance(error, FileNotFoundError):
        return BadInputError(
            f"there is no {purpose.kind} {path}", next_step=f"check the path given to {purpose.option}"
        )
    if isinstance(error, IsADirectoryError):
        return BadInputError(
            f"{path} is a directory, not a {purpose.kind}",
            next_step="give one file; several can be joined with cat",
        )
    return BadInputError(  # ValueError: a zero byte in the name
        f"{path} cannot be read",
        evidence=(str(error),),
        next_step=f"give {purpose.option} a file that you may read",
    )


def _file_kind(mode: int) -> str:
    kinds = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a character device"))
    return next((name for test, name in kinds if test(mode)), "a device")


def _too_large(path: Path, evidence: str, limit: int, purpose: Purpose) -> BadInputError:
    return BadInputError(
        f"{path} is over the limit of {limit // 2**20} MiB", evidence=(evidence,), next_step=purpose.take
    )
