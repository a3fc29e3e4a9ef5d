"""Which drafts of a round are taken: by position, by kind of text, and by nothing that a batch could change. Pure.

A prompt's rounds are drawn from a generator of its own, seeded by its text: greedy decoding says the same again, at
every depth. `survival[j]` is the chance that j + 1 drafts are taken; one draw a round decides how many are, so that
a shallower depth is exactly a deeper one cut off.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

_DEEPEST = 64
_GOLDEN = 0.6180339887498949
_VARIES = 0.3  # texts of one kind: exponents of their chances from 1 - this to 1 + this
DEFAULT_KIND = "chat"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("acceptance.toml").read_text(encoding="utf-8"))


def kind_of(text: str) -> str:
    """The kind of a prompt, by its words."""
    for kind, words in _table()["kinds"].items():
        if any(word in text for word in words):
            return str(kind)
    return DEFAULT_KIND if text.strip() else "random"


def drafter_of(algorithm: str | None) -> str:
    """Whose row of the table holds."""
    return {"NGRAM": "ngram", "STANDALONE": "model"}.get(algorithm or "", "draft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Chances by kind of text.

    Attributes:
        chances: Kind → chance of each position, given those before.
        prompts: Prompt text → kind, for prompts that a run has.
        varies: By how much the texts of one kind differ.
        even: Draws are spread evenly instead of by chance, so that a short answer shows the mean.
        fixed: Tokens a round as SGLANG_SIMULATE_ACC_LEN sets them for all; None without it.
    """

    chances: Mapping[str, Sequence[float]]
    prompts: Mapping[str, str] = field(default_factory=dict)
    varies: float = _VARIES
    even: bool = False
    fixed: float | None = None

    def kind(self, text: str) -> str:
        """Of a prompt."""
        found = self.prompts.get(text)
        if found is not None:
            return found
        kind = kind_of(text)
        return kind if kind in self.chances else next(iter(self.chances))

    def draws(self, text: str, seed: str, *, most: int, branches: int = 1) -> Draws:
        """The rounds of one answer.

        Args:
            text: The prompt.
            seed: Told apart by it: two answers of the same seed are the same.
            most: Drafts that a round can take at most.
            branches: Width of a tree: so many candidates at each place, each likelier wrong than the one before.
        """
        return self.draws_of(self.kind(text), seed, most=most, branches=branches)

    def draws_of(self, kind: str, seed: str, *, most: int, branches: int = 1) -> Draws:
        """The same by the kind of text; one that is not known counts as the first."""
        source = random.Random(seed)  # noqa: S311 - a simulation
        if self.fixed is not None:
            return Draws(source, _fixed(self.fixed, most))
        exponent = 1.0 + self.varies * (2.0 * source.random() - 1.0)
        chances = survival(self.chances.get(kind) or next(iter(self.chances.values())), most, branches, exponent)
        return Draws(_Even(source.random()) if self.even else source, chances)


class _Even:
    """Numbers from 0 to 1 that keep as far from one another as they can: multiples of the golden ratio."""

    def __init__(self, first: float) -> None:
        self._last = first

    def random(self) -> float:
        """The next."""
        self._last = (self._last + _GOLDEN) % 1.0
        return self._last


class Draws:
    """Rounds of one answer, one after the other."""

    __slots__ = ("_next", "_survival")

    def __init__(self, source: random.Random | _Even, chances: Sequence[float]) -> None:
        self._next = source.random
        self._survival = chances

    def accepted(self) -> int:
        """Drafts taken in the next round."""
        drawn, taken = self._next(), 0
        for chance in self._survival:
            if drawn >= chance:
                break
            taken += 1
        return taken


def survival(chances: Sequence[float], most: int, branches: int = 1, exponent: float = 1.0) -> tuple[float, ...]:
    """From the chances of single places to those of whole prefixes, `most` long."""
    found, alive = [], 1.0
    for place in range(min(most, _DEEPEST)):
        chance = chances[min(place, len(chances) - 1)] ** exponent
        if branches > 1:
            chance = 1.0 - (1.0 - chance) ** (1.0 + 0.5 * (branches - 1))
        alive *= chance
        found.append(alive)
    return tuple(found)


def _fixed(length: float, most: int) -> tuple[float, ...]:
    """As SGLang's own simulation: the whole part always, one more as often as the rest says."""
    whole, rest = divmod(min(max(length, 1.0), most + 1.0) - 1.0, 1.0)
    return tuple([1.0] * int(whole) + [rest])[:most]


def default_acceptance(algorithm: str | None, fixed: float | None = None) -> Acceptance:
    """The table's row for a drafter."""
    return Acceptance(chances=_table()[drafter_of(algorithm)], fixed=fixed)
