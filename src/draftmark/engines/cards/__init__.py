"""Cards by name: memory, generation, bandwidth and dense arithmetic (cards.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

Precision = Literal["half", "fp8", "int8", "fp4"]

# What computes instead on a card without the unit: narrow weights are widened before they are multiplied.
_WIDER: dict[Precision, Precision] = {"fp4": "fp8", "fp8": "half", "int8": "half"}
# A part of a card, or a slower and smaller one of the same name: known only where an entry says so itself.
_OTHER = ("mig", "laptop", "mobile", "vgpu", "grid")
_SIZE = re.compile(r"([0-9]{1,4})gi?b?", re.ASCII)
_ALIKE = 0.12
"""Share by which a size in a name may differ from what the driver says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU.

    Attributes:
        bandwidth: Bytes a second, of its own memory.
        peaks: Operations a second by precision, a multiplication and an addition being two; dense.
        source: Where these are printed.
        mib: Its memory; None where the name covers several sizes.
        major: Of its compute capability; None where it has none.
    """

    name: str
    bandwidth: float
    peaks: Mapping[Precision, float]
    source: str = ""
    mib: int | None = None
    major: int | None = None

    def peak(self, precision: Precision) -> float:
        """Operations a second at a precision, or at the next wider one that the card has."""
        while precision not in self.peaks:
            precision = _WIDER[precision]
        return self.peaks[precision]


def card_of(name: str) -> Card | None:
    """A card by the driver's name (`NVIDIA H200`) or as people call it (`h200`); None when it is not known."""
    words = name.lower().replace("_", " ").replace("-", " ").split()
    known = [key for key in cards() if set(key.split()) <= set(words)]
    if not known:
        return None
    card = cards()[max(known, key=lambda key: (len(key.split()), len(key)))]
    return card if all(_fits(word, card) for word in set(words) - set(card.name.split())) else None


def _fits(word: str, card: Card) -> bool:
    """Whether a word beside a card's own leaves it the card that it is."""
    size = _SIZE.fullmatch(word)
    if size is None or not word.endswith(("g", "gb")):
        return word not in _OTHER
    return card.mib is None or abs(int(size[1]) * 1024 - card.mib) <= _ALIKE * card.mib


def majors_of(mib: int) -> frozenset[int]:
    """Compute capabilities of the cards with exactly so much memory."""
    return frozenset(card.major for card in cards().values() if card.mib == mib and card.major is not None)


def names_with_memory() -> Iterator[str]:
    """Of the cards whose name tells their memory."""
    return (name for name, card in cards().items() if card.mib is not None)


@cache
def cards() -> Mapping[str, Card]:
    """All that are known."""
    table = tomllib.loads(resources.files(__package__).joinpath("cards.toml").read_text(encoding="utf-8"))
    return {
        name: Card(
            name=name,
            bandwidth=entry["gb_s"] * 1e9,
            peaks={precision: value * 1e12 for precision, value in entry["tflops"].items()},
            source=entry["source"],
            mib=entry.get("mib"),
            major=entry.get("major"),
        )
        for name, entry in table.items()
    }
