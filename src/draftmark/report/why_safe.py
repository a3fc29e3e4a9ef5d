"""A verdict without secrets: logs quote command lines, environments and headers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, TypeVar

from draftmark.postmortem.model import Verdict
from draftmark.run.redact import Redactor

_Any = TypeVar("_Any")

# Names of our own taxonomy, which no rule for secrets may touch.
_OWN = frozenset({"cause", "confidence", "phase", "role"})
_SHORTEST_LEARNT = 8


def safe(verdict: Verdict) -> Verdict:
    """The verdict fit to be shown or written: secrets hidden by name, and their values wherever they turn up.

    A value is learnt only if it looks like a key (eight characters with a digit among them): a log has many
    `name: word` pairs, and hiding the word everywhere would cost the reader the proof.
    """
    texts = [text for text in _texts(verdict) if text]
    learnt = Redactor.of([word for text in texts for word in (text, "")], {})
    redactor = Redactor(tuple(value for value in learnt.values if _like_a_key(value)))
    return _mapped(verdict, lambda text: _encodable(redactor.text(_whole(text))))


_CUT_FROM = 1900
_HALF_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s@]*$")


def _whole(text: str) -> str:
    """A long line without a URL at its very end: where the line was cut, the @ behind a password may be missing."""
    return _HALF_URL.sub("…", text) if len(text) > _CUT_FROM else text


def _like_a_key(value: str) -> bool:
    return len(value) >= _SHORTEST_LEARNT and any(char.isdigit() for char in value) and not value.isdigit()


def _encodable(text: str) -> str:
    """Without the lone surrogates by which bytes that are no UTF-8 travel: JSON and files cannot hold them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and not isinstance(value, Enum):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in _OWN:
                yield from _texts(getattr(value, field.name))


def _mapped(value: _Any, change: Callable[[str], str]) -> _Any:
    """The same structure with every text changed, names of the taxonomy apart."""
    changed: Any = value
    if isinstance(value, str) and not isinstance(value, Enum):
        changed = change(value)
    elif isinstance(value, tuple):
        changed = tuple(_mapped(item, change) for item in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = dataclasses.replace(
            value,
            **{
                field.name: _mapped(getattr(value, field.name), change)
                for field in dataclasses.fields(value)
                if field.name not in _OWN
            },
        )
    return changed  # type: ignore[no-any-return]
