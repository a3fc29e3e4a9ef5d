"""What a value in a surface file means: numbers, depths, concurrencies, histograms. None where it means nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

DEEPEST = 256  # a deeper one is a slip
LARGEST = 65_536  # requests at once
_DEPTH = re.compile(
    r"\s*(?:(?:d|k|depth|steps|num_steps)[\s_=-]*)?([0-9]{1,6})(?:\.0+)?\s*", re.ASCII | re.IGNORECASE
)
_LEVEL = re.compile(r"(?:.*?[^0-9.])?([0-9]{1,6})(?:\.0+)?\s*", re.ASCII | re.DOTALL)
_OFF = frozenset({"off", "none", "no", "baseline-off"})


def first(holder: Any, keys: Iterable[str]) -> Any:
    """The value of the first key that has one."""
    if not isinstance(holder, dict):
        return None
    return next((holder[key] for key in keys if holder.get(key) is not None), None)


def number(value: Any) -> float | None:
    """A finite number, or digits that say one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def numbers(value: Any) -> list[float]:
    """A list of numbers from 0 on; empty where it is none."""
    found = [number(v) for v in value] if isinstance(value, list) else []
    known = [n for n in found if n is not None and n >= 0.0]
    return known if len(known) == len(found) else []


def counts(told: Any) -> list[float]:
    """A histogram as a list, as an object from count to rounds, or one of either for each concurrency."""
    if isinstance(told, list):
        return numbers(told)
    if not isinstance(told, dict):
        return []
    if told and all(isinstance(v, (list, dict)) for v in told.values()):
        parts = [counts(v) for v in told.values()]
        width = max(map(len, parts))
        return [math.fsum(part[j] for part in parts if j < len(part)) for j in range(width)]
    places = {level(key): number(v) for key, v in told.items()}
    if any(k is None or k > DEEPEST + 1 or v is None or v < 0.0 for k, v in places.items()):
        return []
    return [places.get(j) or 0.0 for j in range(max((k for k in places if k is not None), default=-1) + 1)]


def depth(value: Any) -> int | None:
    """`4`, `"4"`, `"d4"`, `"depth 4"`, `"off"`."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and value.strip().lower() in _OFF:
        return 0
    found = _DEPTH.fullmatch(str(value))
    return int(found[1]) if found else None


def level(value: Any) -> int | None:
    """A concurrency: `32`, `"32"`, `"c32"`, `"chat@32"`."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    found = _LEVEL.fullmatch(str(value))
    return int(found[1]) if found and int(found[1]) <= LARGEST else None


def levels(value: Any) -> list[int]:
    """Concurrencies from low to high; empty where none are told."""
    told = value if isinstance(value, list) else [value]
    return sorted({c for v in told if (c := level(v)) is not None and c >= 1})
