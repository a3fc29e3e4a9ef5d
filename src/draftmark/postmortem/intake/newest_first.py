"""Logs as cloud consoles show and export them: the newest line on top."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, pairwise

# An optional level in front, as of Google Cloud's log explorer: `ERROR 2025-04-07T19:13:52.541718006Z text`.
_STAMP = re.compile(r"(?:[A-Z]{4,9}\s+|\[)?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_SAMPLE = 2000
_LEAST = 3  # distinct times; two can stand in any order by accident
_STAMPED = 0.9  # of the lines: where only some are, the others belong to the line before, not behind


def oldest_first(lines: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """The lines in the order in which they were written. Their numbers stay those of the file.

    Args:
        lines: Number and text.
    """
    times = [time for _, text in islice(lines, _SAMPLE) if (time := _time(text)) is not None]
    if len(times) < _STAMPED * min(len(lines), _SAMPLE) or len(set(times)) < _LEAST:
        return lines
    if any(later > earlier for earlier, later in pairwise(times)):
        return lines
    return tuple(reversed(lines))


def _time(text: str) -> str | None:
    """Comparable within a file: all its stamps have one form."""
    match = _STAMP.match(text)
    if match is None:
        return None
    return match[1] + (match[2] or "").ljust(9, "0")
