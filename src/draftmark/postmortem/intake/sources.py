"""One source: its bytes scanned, its kind told, its lines read."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from draftmark.postmortem.intake import kinds
from draftmark.postmortem.intake.clean import clean, printable
from draftmark.postmortem.intake.clock import Calendar
from draftmark.postmortem.intake.limits import Hints, Limits
from draftmark.postmortem.intake.lines import LineReader, anchor_of, carriers_of
from draftmark.postmortem.intake.scan import Scanned, scan
from draftmark.postmortem.intake.structured import decode
from draftmark.postmortem.model import Kind, Line, Source

_HEAD_BYTES = 1 << 16
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True, slots=True)
class Raw:
    """A source whose lines were not read yet: years can only be guessed when all sources are known."""

    name: str
    kind: Kind
    scanned: Scanned
    document: Any = None
    notes: tuple[str, ...] = ()


def raw_source(name: str, blocks: Iterable[bytes], hints: Hints, limits: Limits) -> Raw:
    """Scans the bytes of a source, in one pass, and tells its kind."""
    blocks = iter(blocks)
    head = b""
    for block in blocks:
        head += block
        if len(head) >= _HEAD_BYTES:
            break
    if not head:
        return _unusable(name, "empty")
    encoding, skip = next(((name_, len(bom)) for bom, name_ in _BOMS if head.startswith(bom)), ("utf-8", 0))
    stream = _chain(head[skip:], blocks)
    if encoding != "utf-8":
        stream = _recoded(stream, encoding)
        head = next(stream, b"")
        stream = _chain(head, stream)
    if not kinds.is_text(head[skip:_HEAD_BYTES]):
        return _unusable(name, "not text")
    scanned = scan(stream, hints, limits)
    return _told(name, scanned)


def _chain(head: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from blocks


def _recoded(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _unusable(name: str, note: str, size: int = 0) -> Raw:
    return Raw(name, Kind.UNUSABLE, Scanned((), 0, size, None), notes=(note,))


def _told(name: str, scanned: Scanned) -> Raw:
    texts = [clean(text) for _, text in scanned.lines[:400]]
    if not any(map(str.strip, texts)) and not any(text.strip() for _, text in scanned.lines):
        return _unusable(name, "nothing but blank lines", scanned.size_bytes)
    if kinds.looks_like_document("\n".join(texts)) and scanned.whole is not None:
        document = decode(scanned.whole)
        if document is not None:
            return _document(name, scanned, document)
    return Raw(name, kinds.text_kind(texts), scanned)


def _document(name: str, scanned: Scanned, document: Any) -> Raw:
    kind = kinds.json_kind(document)
    if kind is not None:
        return Raw(name, kind, scanned, document)
    return Raw(name, Kind.UNUSABLE, replace(scanned, lines=()), notes=(kinds.NOT_KNOWN_JSON,))


def read_sources(raws: Iterable[Raw], hints: Hints, limits: Limits) -> tuple[Source, ...]:
    """Reads the lines of all, with years guessed by the dates that any of them writes in full."""
    raws = tuple(raws)
    logs = [raw.scanned.lines for raw in raws if raw.kind is Kind.LOG]
    calendar = Calendar(anchor_of(logs, hints, limits))
    return tuple(_source(raw, calendar, hints, limits) for raw in raws)


def _source(raw: Raw, calendar: Calendar, hints: Hints, limits: Limits) -> Source:
    scanned = raw.scanned
    if raw.kind is Kind.LOG:
        reader = LineReader(raw.name, calendar, carriers_of(scanned.lines, calendar), hints, limits)
        lines = tuple(reader.read(scanned.lines))
    else:
        lines = tuple(_plain(raw.name, number, text, limits) for number, text in scanned.lines)
    return Source(raw.name, raw.kind, lines, scanned.total_lines, scanned.size_bytes, raw.document, raw.notes)


def _plain(name: str, number: int, text: str, limits: Limits) -> Line:
    text = clean(text).rstrip("\r")
    return Line(name, number, text[: limits.line_chars], printable(text, limits.raw_chars))
