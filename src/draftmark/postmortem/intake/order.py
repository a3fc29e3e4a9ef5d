"""A canonical order of sources, whatever order they were named in: a rotated set from its oldest part on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TypeAlias

_PACKED = re.compile(r"\.(?:gz|zst|xz|bz2|z)$", re.IGNORECASE)
# service.log.1, service.1.log, service.log-20260301, service.log.2026-03-01T10, service-2026-03-01.log
_NUMBERED = re.compile(r"^(?P<stem>.+?)[._-](?P<number>\d{1,4})(?P<end>\.(?:log|txt|out|err))?$")
_DATED = re.compile(
    r"^(?P<stem>.+?)[._-](?P<date>(?:19|20)\d\d-?[01]\d-?[0-3]\d(?:[T_.-]?\d{2,6}){0,2}|1\d{9})"
    r"(?P<end>\.(?:log|txt|out|err))?$"
)
_DIGITS = re.compile(r"(\d+)")
_SYSLOG_FILES = frozenset(("messages", "syslog", "kern", "daemon", "user", "dmesg"))
_PREVIOUS = re.compile(r"^(?P<stem>.+?)[._-](?:old|prev|previous|bak)(?P<end>\.(?:log|txt|out|err))?$")

Natural: TypeAlias = tuple[tuple[int, int, str], ...]
Key: TypeAlias = tuple[Natural, int, int, Natural, str]


def natural(text: str) -> Natural:
    """Numbers in a name count as numbers: `part10` after `part9`."""
    pieces = _DIGITS.split(text)
    return tuple((0, int(piece[:18]), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces if piece)


def ordered(names: Iterable[str]) -> list[str]:
    """The names in canonical order."""
    known = set(names)
    return sorted(known, key=lambda name: _key(name, known))


def _key(name: str, known: Collection[str]) -> Key:
    """The family, then dated parts by date, numbered ones from the highest, and the one being written last."""
    folder, slash, base = name.rpartition("/")
    base = _PACKED.sub("", base)
    family, rank, generation, suffix = base, 4, 0, ""
    if match := _DATED.match(base):
        family, rank, suffix = _family(match), 1, re.sub(r"\D", "", match["date"])
    elif match := _PREVIOUS.match(base):
        family, rank = _family(match), 3
    elif (match := _NUMBERED.match(base)) and _rotates(match, folder + slash, known):
        family, rank, generation = _family(match), 2, -int(match["number"])
    return natural(f"{folder}{slash}{family}"), rank, generation, natural(suffix), name


def _family(match: re.Match[str]) -> str:
    return match["stem"] + (match["end"] or "")


def _rotates(match: re.Match[str], folder: str, known: Collection[str]) -> bool:
    """Whether a number is a rotation's: of `x.log.1` it is, `part.1.log` and `node-1` count upwards."""
    if folder + _family(match) in known:
        return True
    return match["end"] is None and ("." in match["stem"].rpartition(":")[2] or match["stem"] in _SYSLOG_FILES)
