"""Finding the line of a log that says something. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from draftmark.model import Evidence


def first_match(
    log: Sequence[str], file: str, patterns: Sequence[re.Pattern[str]], stamp: re.Pattern[str]
) -> Evidence | None:
    """The first line of the first pattern that any line matches.

    Args:
        log: Lines without their ends.
        file: Its name, for the evidence.
        patterns: The most telling first.
        stamp: Matches a line's time; its first group is the time as the server wrote it.
    """
    for pattern in patterns:
        for number, line in enumerate(log, start=1):
            if pattern.search(line):
                time = stamp.search(line)
                return Evidence(file=file, line=number, time=time[1] if time else None, text=line.rstrip())
    return None
