"""Secrets out of everything that is written. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"

_SECRET_NAME = re.compile(r"(api[-_]?key|token|secret|passw(or)?d|credential|authorization)", re.IGNORECASE)
_SECRET_SHORT = frozenset({"-hft"})
# Names that only look like it: counts, files that are names, not contents.
_NOT_SECRET = re.compile(
    r"(max|num|n|min|batch|draft|special|speculative|chunk)[-_].*tokens?|tokens?$|tokenizer", re.IGNORECASE
)
_URL_USER = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)")
_BEARER = re.compile(r"(?i)(bearer\s+)\S+")


def _is_secret(name: str) -> bool:
    bare = name.lstrip("-")
    if name in _SECRET_SHORT:
        return True
    if re.search(r"(hf|auth|access|api|bearer|github)[-_]?token", bare, re.IGNORECASE) or bare.lower() == "token":
        return True
    return bool(_SECRET_NAME.search(bare)) and not _NOT_SECRET.search(bare)


def text(value: str) -> str:
    """A line with bearer tokens and passwords in URLs hidden."""
    return _URL_USER.sub(HIDDEN, _BEARER.sub(rf"\1{HIDDEN}", value))


def command(words: Sequence[str]) -> tuple[str, ...]:
    """A command line with the values of secret flags and NAME=value assignments hidden."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        if hide_next:
            shown.append(HIDDEN)
            hide_next = False
            continue
        name, equals, value = word.partition("=")
        if equals and value and _is_secret(name):
            shown.append(f"{name}={HIDDEN}")
            continue
        hide_next = word.startswith("-") and not equals and _is_secret(word) and not word.endswith("-file")
        shown.append(text(word))
    return tuple(shown)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with secret values hidden."""
    return {name: HIDDEN if _is_secret(name) else text(value) for name, value in variables.items()}
