"""Readers of the words that shape a load: `20`, `2..20`, `4:16:2000`, `1024:128`."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from draftmark.cli import options
from draftmark.load.workloads import SharedPrefix

DATA = "data"
"""`--output-tokens data`: each answer as long as the one in the data."""


@dataclass(frozen=True, slots=True)
class Span:
    """A number, or a pair of them."""

    start: float
    end: float

    @property
    def single(self) -> bool:
        """Whether it is one number."""
        return self.start == self.end

    def __str__(self) -> str:
        return f"{self.start:g}" if self.single else f"{self.start:g}..{self.end:g}"


def span(text: str) -> Span:
    """`20` or `2..20`; the first of two may be 0."""
    first, dots, second = text.partition("..")
    if not dots:
        value = options.positive_number(text)
        return Span(value, value)
    return Span(0.0 if first == "0" else options.positive_number(first), options.positive_number(second))


def output_tokens(text: str) -> int | str:
    """A number of tokens, or `data`."""
    return text if text == DATA else options.positive(text)


def prefix_shape(text: str) -> SharedPrefix:
    """`GROUPS:PROMPTS:TOKENS`."""
    groups, prompts, tokens = _wholes(text, 3, "GROUPS:PROMPTS:TOKENS, such as 4:16:2000")
    return SharedPrefix(groups, prompts, tokens)


def token_counts(text: str) -> tuple[int, int]:
    """`IN:OUT`."""
    asked, answered = _wholes(text, 2, "IN:OUT, such as 1024:128")
    return asked, answered


def seed(text: str) -> int:
    """A whole number from 0 up."""
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 0 up (at most nine digits)")
    return int(text)


def _wholes(text: str, count: int, form: str) -> list[int]:
    parts = text.split(":")
    if len(parts) != count:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {form}")
    return [options.positive(part) for part in parts]
