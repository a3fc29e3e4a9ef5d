"""Which prompts of a set are asked, and how long their answers are."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable
from itertools import islice
from random import Random

from draftmark.model import Prompt, Workload


def sampled(prompts: Iterable[Prompt], *, take: int | None = None, seed: int | None = None) -> tuple[Prompt, ...]:
    """The first `take` prompts, in their own order or, with a seed, in a shuffled one.

    Each prompt draws a number, and the lowest numbers are asked first: so a larger `take` only adds to a smaller
    one, and of a stream no more than `take` prompts are held.

    Args:
        prompts: Read to the end only with a seed.
        take: None for all.
        seed: None keeps the order.
    """
    if seed is None:
        return tuple(islice(prompts, take))
    draw = Random(seed).random  # noqa: S311 - chance that must repeat, not a secret
    drawn = ((draw(), i, prompt) for i, prompt in enumerate(prompts))
    chosen = sorted(drawn, key=_rank) if take is None else heapq.nsmallest(take, drawn, key=_rank)
    return tuple(prompt for _, _, prompt in chosen)


def forced(workload: Workload, tokens: int) -> Workload:
    """The same prompts, each answer exactly so many tokens long."""
    return dataclasses.replace(
        workload,
        prompts=tuple(dataclasses.replace(p, max_tokens=tokens, forced=True) for p in workload.prompts),
    )


def _rank(drawn: tuple[float, int, Prompt]) -> tuple[float, int]:
    return drawn[:2]
