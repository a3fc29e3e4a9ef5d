"""Which weights a quantization leaves alone: the lists of names, wildcards and patterns that its methods write."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from draftmark.errors import BadInputError

# What wrappers and families put before a layer's name; lists are written with any of them.
_ROOTS = ("", "model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.")
_ROOT = re.compile(r"^(?:(?:model|language_model|backbone)\.)+")
_WILD = re.compile(r"[*?\[]")


class Names:
    """A list of names as quantization methods mean it.

    A plain entry names a module: `lm_head`, `mlp.gate`, `model.layers.3.self_attn`, and all below it. `re:` begins
    a pattern that has to fit from the start; `*` and `?` are wildcards.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        exact: set[str] = set()
        plain: list[str] = []
        starts: list[str] = []
        patterns: list[str] = []
        for entry in entries:
            short = _ROOT.sub("", entry)
            if entry.startswith("re:"):
                patterns.append(entry[3:])
            elif _WILD.search(entry[:-1]):
                patterns += [fnmatch.translate(entry), fnmatch.translate(f"{entry}.*")]
            elif entry.endswith("*"):
                starts.append(short[:-1])
            elif short.startswith("layers."):
                exact.add(short)
            elif short:
                plain.append(f".{short}.")
        self._exact, self._plain, self._starts = exact, plain, tuple(starts)
        try:
            self._patterns = [re.compile(each) for each in patterns]
        except re.error as error:
            raise BadInputError(
                "config.json: a pattern of its quantization cannot be read", evidence=(str(error),)
            ) from error

    def __bool__(self) -> bool:
        return bool(self._exact or self._plain or self._starts or self._patterns)

    def has(self, name: str) -> bool:
        """Whether a weight (without its root, an expert's number as `*`) is meant."""
        if not self:
            return False
        name = name.replace("*", "0")
        if self._starts and name.startswith(self._starts):
            return True
        if self._exact and any(each in self._exact for each in parents(name)):
            return True
        dotted = f".{name}."
        if any(each in dotted for each in self._plain):
            return True
        return any(each.match(f"{root}{name}") for each in self._patterns for root in _ROOTS)


def parents(name: str) -> Iterable[str]:
    """A name and all that it lies under: `a.b.c`, `a.b`, `a`."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def rootless(name: str) -> str:
    """A name without what wrappers put before it."""
    return _ROOT.sub("", name)
