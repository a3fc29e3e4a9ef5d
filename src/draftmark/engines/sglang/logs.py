"""What SGLang's log says, as far as an arm's start needs it. Pure; the patterns are in facts.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from draftmark.engines.evidence import first_match
from draftmark.engines.sglang.versions import facts
from draftmark.model import Evidence

# `[2026-11-29 16:41:12 TP0] …`; a progress bar or a colour code may stand before it on the same line.
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]*\]")


@cache
def _patterns(kind: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(entry["pattern"]) for entry in facts()[kind])


def decisive(log: Sequence[str], file: str) -> Evidence | None:
    """The line that says why a start failed: the first match of the most telling pattern."""
    return first_match(log, file, _patterns("decisive"), _STAMP)


def speculation_lost(log: Sequence[str], file: str) -> Evidence | None:
    """The line by which the server says that it does not speculate as it was asked to."""
    return first_match(log, file, _patterns("speculation_lost"), _STAMP)
