"""What llama-server's log says, as far as tuning needs it. Pure; the patterns are in facts.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from draftmark.engines.evidence import first_match
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


def decisive(log: Sequence[str], file: str) -> Evidence | None:
    """The line that says why a start failed: the first match of the most telling pattern."""
    return first_match(log, file, _decisive(), _STAMP)


def speculation_lost(log: Sequence[str], file: str) -> Evidence | None:
    """The line by which the server says that it goes on without the speculation it was asked for."""
    return first_match(log, file, _lost(), _STAMP)
