"""Reading single fields of a document, in which anything may be absent, null or of the wrong type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from draftmark.report.figures import UNKNOWN, visible

Document = Mapping[str, Any]


def text(entry: Document, key: str) -> str | None:
    """A string with its invisible characters written out; None when it is empty or not there."""
    value = entry.get(key)
    return visible(value) if isinstance(value, str) and value else None


def number(entry: Document, key: str) -> float | None:
    """A finite number; None for anything else."""
    return _finite(entry.get(key))


def mapping(entry: Document, key: str) -> Document:
    """An object; empty when it is null or not there."""
    value = entry.get(key)
    return value if isinstance(value, Mapping) else {}


def mappings(entry: Document, key: str) -> list[Document]:
    """The objects of a list."""
    return [item for item in _items(entry, key) if isinstance(item, Mapping)]


def texts(entry: Document, key: str) -> tuple[str, ...]:
    """A list as strings; a lone string is a list of one."""
    value = entry.get(key)
    items = [value] if isinstance(value, str) else _items(entry, key)
    return tuple(plain(item) for item in items if item is not None and item != "")


def numbers(entry: Document, key: str) -> list[float]:
    """The finite numbers of a list."""
    return [value for item in _items(entry, key) if (value := _finite(item)) is not None]


def plain(value: Any) -> str:
    """Any value of a document on one line, for people."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(str(key))} {plain(item)}" for key, item in value.items())
    return visible(str(value))


def _items(entry: Document, key: str) -> list[Any]:
    value = entry.get(key)
    return list(value) if isinstance(value, list | tuple) else []


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def whole(entry: Document, key: str) -> int | None:
    """A finite number without its fraction."""
    value = number(entry, key)
    return None if value is None else int(value)


def flag(entry: Document, key: str) -> bool | None:
    """True or false; None for anything else."""
    value = entry.get(key)
    return value if isinstance(value, bool) else None
