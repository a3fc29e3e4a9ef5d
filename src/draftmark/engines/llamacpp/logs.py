"""What llama-server's log says, as far as tuning needs it. Pure; the patterns are in facts.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from draftmark.engines.llamacpp.flags import facts
from draftmark.model import Evidence

# `0.02.501.176 I srv  init: …`: minutes.seconds.ms.us since the process started (common/log.cpp).
_STAMP = re.compile(r"^(\d+\.\d\d\.\d{3}\.\d{3}) [A-Z] ")


@cache
def _decisive() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(entry["pattern"]) for entry in facts()["decisive"])


@cache
def _lost() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(entry["pattern"]) for entry in facts()["speculation_lost"])


def _evidence(log: Sequence[str], file: str, patterns: Sequence[re.Pattern[str]]) -> Evidence | None:
    for pattern in patterns:
        for number, line in enumerate(log, start=1):
            if pattern.search(line):
                stamp = _STAMP.match(line)
                return Evidence(file=file, line=number, time=stamp[1] if stamp else None, text=line.rstrip())
    return None


def decisive(log: Sequence[str], file: str) -> Evidence | None:
    """The line that says why a start failed: the first match of the most telling pattern."""
    return _evidence(log, file, _decisive())


def speculation_lost(log: Sequence[str], file: str) -> Evidence | None:
    """The line by which the server says that it goes on without the speculation it was asked for."""
    return _evidence(log, file, _lost())
