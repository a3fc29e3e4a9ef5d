"""What intake is asked for, what bounds it, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass, replace

from draftmark.postmortem.model import Source, Unread

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Hints:
    """Case-sensitive substrings that lines are judged by: a line that holds one is kept, however large the source.

    A literal that floods a source (see `Limits.hits_per_hint`) keeps its first and its last hits.
    """

    literals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that keep intake's memory and time in hand, whatever is handed over.

    Attributes:
        whole_bytes: A source up to this size, and up to `whole_lines`, keeps all its lines.
        head_lines, tail_lines: Kept of a larger one.
        hits_per_hint: After that many lines a hint only keeps its last `last_hits`.
        last_hits: See `hits_per_hint`.
        block_lines: Lines kept after a hit that opens a traceback or another block of lines.
        kept_lines: Of one source, before every hint only keeps its last hits.
        total_lines: Of all sources, before the rest are read as if they were large.
        line_chars: Of `Line.text`; longer lines give this much, and windows around the hints in them.
        raw_chars: Of `Line.raw`.
        members: Files of a folder or an archive.
        unpacked_bytes: Of everything that was compressed.
        ratio: Unpacked to packed, once `ratio_from_bytes` came out: beyond it is a bomb.
        document_bytes: The largest JSON document that is parsed.
    """

    whole_bytes: int = 4 * MIB
    whole_lines: int = 40_000
    head_lines: int = 300
    tail_lines: int = 600
    hits_per_hint: int = 300
    last_hits: int = 100
    block_lines: int = 400
    kept_lines: int = 60_000
    total_lines: int = 300_000
    line_chars: int = 8000
    raw_chars: int = 2000
    members: int = 10_000
    unpacked_bytes: int = 16 * 1024 * MIB
    ratio: int = 250
    ratio_from_bytes: int = 256 * MIB
    document_bytes: int = 32 * MIB

    def tight(self) -> Limits:
        """What is left for sources once `total_lines` are kept: head, tail and hits."""
        return replace(self, whole_bytes=1 << 16, whole_lines=400, head_lines=100, tail_lines=200, kept_lines=5000)


@dataclass(frozen=True, slots=True)
class Intake:
    """Everything that was handed over: what was read, oldest first within a rotated set, and what was not."""

    sources: tuple[Source, ...]
    unread: tuple[Unread, ...] = ()
