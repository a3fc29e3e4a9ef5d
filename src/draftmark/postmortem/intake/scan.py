"""Reads the bytes of one source once and keeps the lines that matter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftmark.postmortem.intake.limits import Hints, Limits


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was kept of a source's bytes.

    Attributes:
        lines: Numbered, decoded, in order.
        whole: All bytes, where all of them were kept.
    """

    lines: tuple[tuple[int, str], ...]
    total_lines: int
    size_bytes: int
    whole: bytes | None


def scan(blocks: Iterable[bytes], hints: Hints, limits: Limits) -> Scanned:  # noqa: ARG001
    """In one pass."""
    data = b"".join(blocks)
    pieces = data.split(b"\n")
    if pieces and not pieces[-1]:
        pieces.pop()
    lines = tuple((number, piece.decode("utf-8", "replace")) for number, piece in enumerate(pieces, 1))
    return Scanned(lines, len(lines), len(data), data)
