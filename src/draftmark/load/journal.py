"""A load run as lines of JSON, from which every figure follows again: `bench --output FILE`, `bench --from FILE`.

The first line says what was asked of whom. Then comes a line a request, as it ended, and after the last request of
each measurement a line with what no request knows: the server's counters, the client's own health, why it stopped.
A file that breaks off is read as far as it goes. A file of request records alone is one, too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from draftmark.errors import BadInputError, StorageError, UsageError
from draftmark.model import ClientHealth, Counters, RequestRecord

SCHEMA = "draftmark.bench-requests/1"
BROKEN_OFF = "the file ends before this measurement did: without the server's counters and the client's own health"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What was asked of whom.

    Attributes:
        draftmark: Version that measured.
        service: As it was named, redacted.
        engine: Name, or `unknown`.
        api: Wire format.
        model: As the server calls it.
        started_at: Wall clock, ISO 8601 UTC.
        limits_ms: The service level that was asked for.
        settings: Options that change what is measured.
    """

    schema: str = SCHEMA
    draftmark: str = "unknown"
    service: str = "unknown"
    engine: str = "unknown"
    api: str = "unknown"
    model: str | None = None
    started_at: str | None = None
    limits_ms: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What no request knows of a measurement.

    Attributes:
        workload: Its name.
        concurrency: Slots, or an open loop's cap.
        prompts_sha256: Of everything that was sent.
        arrival: The schedule of an open loop, in words and figures.
        counters: The server's, over the measurement.
        client: The load generator's health.
        assumptions: What had to be assumed, in words.
        disturbed: Why the figures are not to be trusted, in words.
        unsent: Requests that were planned and not sent, by reason.
        stopped_because: Why it ended before everything was sent; None when it did not.
    """

    workload: str
    concurrency: int
    prompts_sha256: str | None = None
    arrival: dict[str, Any] | None = None
    counters: Counters = field(default_factory=Counters)
    client: ClientHealth = field(default_factory=ClientHealth)
    assumptions: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()
    unsent: Mapping[str, int] = field(default_factory=dict)
    stopped_because: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The requests of one measurement, and how it ended."""

    records: tuple[RequestRecord, ...]
    ending: Ending


class JournalWriter:
    """Writes such a file as the load goes. A disk that fills up does not end the load: what is left is told.

    Attributes:
        path: The file, which is made here and must not be there before.
        fault: What kept a line from being written, after which none is; None while all is well.

    Raises:
        UsageError: There is something at that place.
        BadInputError: It cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fault: OSError | None = None
        self.written = 0
        try:
            self._file = path.open("xb", buffering=0)
        except FileExistsError:
            raise UsageError(
                f"{path} exists", next_step="name a file that is not there yet after --output"
            ) from None
        except OSError as error:
            told = f"{error.strerror} (errno {error.errno})"
            raise BadInputError(
                f"cannot write {path}",
                evidence=(told if path.parent.is_dir() else f"there is no directory {path.parent}",),
                next_step="name a place that you may write to after --output",
            ) from None

    def begin(self, head: Head) -> None:
        """The first line.

        Raises:
            StorageError: Not even that can be written.
        """
        if not self._line({"head": head}):
            raise self.error()

    def request(self, record: RequestRecord) -> None:
        """A request that has ended."""
        if self._line(record):
            self.written += 1

    def ending(self, ending: Ending) -> None:
        """The end of a measurement, after its last request."""
        self._line({"end": ending})

    def close(self) -> None:
        """Close the file; one that no request got into is taken away again. Idempotent."""
        if not self.written and not self._file.closed:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def error(self) -> StorageError:
        """The fault, for people."""
        fault = self.fault or OSError(errno.EIO, os.strerror(errno.EIO))
        return StorageError(
            f"the requests could not all be written to {self.path}; its first {self.written} are",
            evidence=(f"{fault.strerror} (errno {fault.errno})",),
            next_step="free some space, or name another place after --output; the figures shown are whole",
        )

    def _line(self, content: object) -> bool:
        if self.fault is not None:
            return False
        data = msgspec.json.encode(content) + b"\n"
        try:
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.fault = error
        return self.fault is None


class _Line(msgspec.Struct):
    """A line that is no request has one of these; a request has a tag."""

    head: Head | None = None
    end: Ending | None = None
    tag: str | None = None


def read_journal(path: Path) -> tuple[Head, tuple[Measured, ...]]:
    """What a file holds, in its order; a torn last line is left out.

    Raises:
        BadInputError: It cannot be read, or is something else.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(
            f"cannot read {path}",
            evidence=(error.strerror or str(error),),
            next_step="give a file that `draftmark bench --output FILE` wrote",
        ) from None
    head = Head()
    found: list[Measured] = []
    waiting: list[RequestRecord] = []
    for line in _lines(path, data):
        if isinstance(line, Head):
            head = line
        elif isinstance(line, Ending):
            found.append(Measured(records=tuple(waiting), ending=line))
            waiting.clear()
        elif not waiting or waiting[-1].tag != line.tag:  # a signal may have had one written twice
            waiting.append(line)
    if head.schema != SCHEMA:
        raise BadInputError(
            f"{path} was written by another version of draftmark",
            evidence=(f"schema {head.schema}, this version reads {SCHEMA}",),
            next_step=f"use draftmark {head.draftmark}",
        )
    found += _unended(waiting, told=bool(head.started_at))
    if not found:
        raise BadInputError(
            f"{path} holds no request", next_step="give a file that `draftmark bench --output FILE` wrote"
        )
    return head, tuple(found)


def _lines(path: Path, data: bytes) -> Iterator[Head | Ending | RequestRecord]:
    """Each line as what it is; the last one, without its line feed, only if it is whole."""
    lines, records = msgspec.json.Decoder(_Line), msgspec.json.Decoder(RequestRecord)
    rows = data.split(b"\n")
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            line = lines.decode(row)
            known = line.head or line.end or records.decode(row)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if 1 < number == len(rows):  # the disk was full, or it was killed
                return
            raise BadInputError(
                f"{path} is no record of a load",
                evidence=(f"line {number}: {error}",),
                next_step="give a file that `draftmark bench --output FILE` wrote",
            ) from None
        yield known


def _unended(waiting: list[RequestRecord], *, told: bool) -> list[Measured]:
    """Requests behind the last ending; in a file of requests alone, all."""
    keys = dict.fromkeys((r.workload, r.concurrency) for r in waiting)
    return [
        Measured(
            records=tuple(r for r in waiting if (r.workload, r.concurrency) == key),
            ending=Ending(workload=key[0], concurrency=key[1], disturbed=(BROKEN_OFF,) if told else ()),
        )
        for key in keys
    ]
