"""What a card can do at most: memory bandwidth and dense arithmetic, by its name (cards.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

Precision = Literal["half", "fp8", "int8", "fp4"]

# What computes instead on a card without the unit: narrow weights are widened before they are multiplied.
_WIDER: dict[Precision, Precision] = {"fp4": "fp8", "fp8": "half", "int8": "half"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU.

    Attributes:
        bandwidth: Bytes a second, of its own memory.
        peaks: Operations a second by precision, a multiplication and an addition being two; dense.
        source: Where these are printed.
    """

    name: str
    bandwidth: float
    peaks: Mapping[Precision, float]
    source: str = ""

    def peak(self, precision: Precision) -> float:
        """Operations a second at a precision, or at the next wider one that the card has."""
        while precision not in self.peaks:
            precision = _WIDER[precision]
        return self.peaks[precision]


def card_of(name: str) -> Card | None:
    """A card by the driver's name (`NVIDIA H200`) or as people call it (`h200`); None when it is not known."""
    wanted = " ".join(name.lower().replace("_", " ").split())
    found = [key for key in cards() if re.search(rf"(?<![a-z0-9]){re.escape(key)}(?![a-z0-9])", wanted)]
    return cards()[max(found, key=len)] if found else None


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
        )
        for name, entry in table.items()
    }
