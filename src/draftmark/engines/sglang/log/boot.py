"""Reads how a server started from its log: `read_boot`. The whole of a log in one pass is `reading.read_log`."""

from __future__ import annotations

from collections.abc import Iterable

from draftmark.engines.sglang.log.nouns import (
    BootLog,
    Failure,
    GraphLine,
    KvLine,
    MambaLine,
    RankDifference,
    RankLog,
    SummaryLine,
    SwaLine,
    Warned,
    WeightsLine,
)
from draftmark.engines.sglang.log.reading import read_log

__all__ = [
    "BootLog",
    "Failure",
    "GraphLine",
    "KvLine",
    "MambaLine",
    "RankDifference",
    "RankLog",
    "SummaryLine",
    "SwaLine",
    "Warned",
    "WeightsLine",
    "read_boot",
]


def read_boot(lines: Iterable[str]) -> BootLog:
    """The last start in a log. One pass, bounded memory, and no text that raises."""
    return read_log(lines).boot
