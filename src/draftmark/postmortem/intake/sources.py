"""One source: its bytes scanned, its kind told, its lines read."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from draftmark.postmortem.intake import kinds
from draftmark.postmortem.intake.clean import clean, printable
from draftmark.postmortem.intake.clock import Calendar
from draftmark.postmortem.intake.entries import Entry, bounded, export_entries, is_export, json_entries
from draftmark.postmortem.intake.limits import Hints, Limits
from draftmark.postmortem.intake.lines import LineReader, anchor_of, full_width, habits_of
from draftmark.postmortem.intake.newest_first import oldest_first
from draftmark.postmortem.intake.scan import Scanned, scan
from draftmark.postmortem.intake.structured import decode
from draftmark.postmortem.model import Kind, Line, Source

_HEAD_BYTES = 1 << 16
_HEAD_LINES = 200
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Raw:
    """A source whose lines were not read yet: years can only be guessed when all sources are known."""

    name: str
    kind: Kind
    scanned: Scanned
    document: Any = None
    entries: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()
    command: str = ""

    def renamed(self, name: str) -> Raw:
        """For a second source of a name."""
        return replace(self, name=name)

    def noted(self, note: str) -> Raw:
        """With something more that the user should know."""
        return replace(self, notes=(*self.notes, note))


def raw_source(name: str, blocks: Iterable[bytes], hints: Hints, limits: Limits) -> Raw:
    """Scans the bytes of a source, in one pass, and tells its kind."""
    stream = _text_of(iter(blocks))
    head = _first(stream)
    if not head:
        return _unusable(name, "empty")
    if not kinds.is_text(head[:_HEAD_BYTES]):
        return _unusable(name, "not text")
    start = [head]
    if kinds.looks_like_document(head[:_HEAD_BYTES].decode("utf-8", "replace")):
        size = len(head)
        for block in stream:
            start.append(block)
            size += len(block)
            if size > limits.document_bytes:
                break
        else:
            return _document(name, b"".join(start), hints, limits)
    return _text(name, scan(chain(start, stream), hints, limits))


def _first(stream: Iterator[bytes]) -> bytes:
    head = b""
    for block in stream:
        head += block
        if len(head) >= _HEAD_BYTES:
            break
    return head


def _text_of(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-8, whatever a byte order mark says that it was; without the mark."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= len(codecs.BOM_UTF32_LE):
            break
    mark, encoding = next(((mark, encoding) for mark, encoding in _BOMS if head.startswith(mark)), (b"", "utf-8"))
    stream = chain((head[len(mark) :],), blocks)
    if encoding == "utf-8":
        return (block for block in stream if block)
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    texts = chain((decoder.decode(block) for block in stream), (decoder.decode(b"", final=True) for _ in (0,)))
    return (text.encode("utf-8", "replace") for text in texts if text)


def _unusable(name: str, note: str, size: int = 0) -> Raw:
    return Raw(name, Kind.UNUSABLE, Scanned((), 0, size), notes=(note,))


def _document(name: str, whole: bytes, hints: Hints, limits: Limits) -> Raw:
    """What begins like a JSON document and was read to its end."""
    document = decode(whole)
    scanned = scan((whole,), hints, limits)
    kind = None if document is None else kinds.json_kind(document)
    if kind is not None:
        return Raw(name, kind, scanned, document)
    first = document[0] if isinstance(document, list) and document else document
    if kinds.is_entry(first) or document is None:
        entries = bounded(json_entries(whole.decode("utf-8", "replace")), limits.whole_lines)
        if entries and kinds.is_entry(entries[0][2]):
            return Raw(name, Kind.LOG, scanned, entries=entries)
    if document is None:
        return _text(name, scanned)
    return replace(_unusable(name, kinds.NOT_KNOWN_JSON, len(whole)), scanned=replace(scanned, lines=()))


def _text(name: str, scanned: Scanned) -> Raw:
    """Anything that is no JSON document."""
    notes = (_flood(scanned.flooded),) if scanned.flooded else ()
    filled = (text for _, raw in scanned.lines if raw and not (text := clean(raw)).isspace() and text)
    texts = list(islice(filled, _HEAD_LINES))
    if not texts:
        return _unusable(name, "nothing but blank lines", scanned.size_bytes)
    if is_export(texts):
        return Raw(name, Kind.LOG, scanned, entries=tuple(export_entries(scanned.lines)), notes=notes)
    return Raw(name, kinds.text_kind(texts), scanned, notes=notes)


def _flood(flooded: tuple[str, ...]) -> str:
    shown = ", ".join(repr(literal) for literal in flooded[:3]) + (", …" if len(flooded) > 3 else "")
    return f"thousands of lines hold {shown}: the first and the last of them were read"


def read_sources(raws: Iterable[Raw], hints: Hints, limits: Limits) -> tuple[Source, ...]:
    """Reads the lines of all, with years guessed by the dates that any of them writes in full."""
    raws = tuple(raws)
    logs = [raw.scanned.lines for raw in raws if raw.kind is Kind.LOG]
    calendar = Calendar(anchor_of(logs, hints, limits))
    return tuple(_source(raw, calendar, hints, limits) for raw in raws)


def _source(raw: Raw, calendar: Calendar, hints: Hints, limits: Limits) -> Source:
    scanned = raw.scanned
    lines: tuple[Line, ...]
    if raw.kind is Kind.LOG:
        found = oldest_first(scanned.lines)
        habits = habits_of(found, calendar)
        reader = LineReader(raw.name, calendar, habits, hints, limits)
        if raw.entries:
            lines = reader.read_entries(raw.entries)
        elif column := full_width(found):
            from draftmark.postmortem.intake.wraps import unwrapped

            lines = reader.read(*unwrapped(found, column, habits.carriers))
        else:
            lines = reader.read(found)
    elif raw.kind is Kind.UNUSABLE:
        lines = ()
    else:
        lines = tuple(_plain(raw.name, number, text, limits) for number, text in scanned.lines)
    return Source(
        raw.name, raw.kind, lines, scanned.total_lines, scanned.size_bytes, raw.document, raw.notes, raw.command
    )


def _plain(name: str, number: int, text: str, limits: Limits) -> Line:
    text = clean(text).rstrip("\r")
    return Line(name, number, text[: limits.line_chars], printable(text, limits.raw_chars))
