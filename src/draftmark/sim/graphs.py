"""CUDA graphs of a simulated start: which batches, how long to capture, how much memory. Pure.

Sizes and times are those of one H200 (0.5.17, 40 layers), in proportion to layers and sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftmark.engines.sglang.memory.fraction import prefill_sizes
from draftmark.sim.memory import GIB, Memory

_PREFILL_S, _PREFILL_GIB = 25.0, 2.1
_LAYERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """One set.

    Attributes:
        name: In the words of 0.5.14: `target verify`, `draft decode`, ….
        tokens: A request.
        prefill: Sizes are numbers of tokens.
    """

    name: str
    tokens: int
    sizes: tuple[int, ...]
    seconds: float
    bytes: float
    prefill: bool = False

    @property
    def draft(self) -> bool:
        """Whether it is the draft's."""
        return self.name.startswith("draft")


def batch_sizes(memory: Memory) -> tuple[int, ...]:
    """Batches of the decode graphs (14:server_args.py:3347), up to the largest, held to the running limit."""
    if not memory.settings.graphs:
        return ()
    most = min(memory.graph_max_bs, memory.pools.running)
    if memory.settings.algorithm is not None:
        steps = ((1, 9, 1), (10, 33, 2), (40, 65, 4), (72, 257, 8), (272, 513, 16))
    else:
        steps = ((1, 3, 1), (4, 9, 4), (12, 25, 4), (32, 257, 8), (272, 513, 16))
    found = {size for first, end, step in steps for size in range(first, end, step) if size <= most}
    return tuple(sorted(found | {most})) if most > 0 else ()


def sets_of(memory: Memory, minor: int) -> Iterator[Graphs]:
    """Every set that is captured, in the order in which it is."""
    settings, sizes = memory.settings, batch_sizes(memory)
    if not sizes:
        return
    layers = memory.model.layers / _LAYERS
    prefill = Graphs(
        name="target prefill",
        tokens=1,
        sizes=prefill_sizes(memory.chunked_prefill),
        seconds=_PREFILL_S * layers,
        bytes=_PREFILL_GIB * layers * GIB,
        prefill=True,
    )
    if settings.prefill_graphs and (settings.algorithm is None or minor >= 14):
        yield prefill
    count, tokens = len(sizes), settings.draft_tokens
    if settings.algorithm is None:
        yield Graphs(
            name="target decode", tokens=1, sizes=sizes, seconds=0.25 * count * layers, bytes=0.14 * layers * GIB
        )
        return
    yield Graphs(
        name="target verify",
        tokens=tokens,
        sizes=sizes,
        seconds=0.9 * count * layers,
        bytes=(0.13 + 0.07 * tokens) * layers * GIB,
    )
    if not settings.eagle:
        return
    if settings.steps > 1:
        yield Graphs(
            name="draft decode",
            tokens=settings.topk,
            sizes=sizes,
            seconds=0.12 * settings.steps * count,
            bytes=(0.08 + 0.065 * settings.steps) * GIB,
        )
    yield Graphs(
        name="draft extend",
        tokens=tokens,
        sizes=sizes,
        seconds=0.07 * count,
        bytes=(0.06 + 0.067 * tokens) * GIB,
    )
