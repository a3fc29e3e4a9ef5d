"""Prompts made to measure: shared beginnings, the lengths of a trace, tokens drawn at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from draftmark.load.traces import RequestTrace, TraceRequest
from draftmark.load.workloads.prose import Prose
from draftmark.model import Message, Prompt, Workload

_GO_ON = "Continue this text in the same manner."
_GO_ON_TOKENS = 8
_IDS = range(1_000, 30_000)  # ordinary tokens of any vocabulary: special ones stand at its ends


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """The shape of a load for prefix caches.

    Attributes:
        groups: Beginnings.
        prompts: Prompts with each beginning.
        tokens: Length of a beginning, about.
    """

    groups: int
    prompts: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.groups}:{self.prompts}:{self.tokens}"

    @property
    def total(self) -> int:
        """Prompts in all."""
        return self.groups * self.prompts


def shared_prefix(shape: SharedPrefix, base: Sequence[Workload], prose: Prose) -> Workload:
    """Each group's prompts begin with the same text, and go on with a question of their own.

    They come group after group in turn, as the users of several long instructions would.

    Args:
        shape: How many, how long.
        base: The questions; taken in order, again and again.
        prose: The beginnings.
    """
    questions = [prompt for workload in base for prompt in workload.prompts]
    beginnings = [prose.passage(shape.tokens, f"document {group + 1}") for group in range(shape.groups)]
    prompts = []
    for i in range(shape.total):
        number, group = divmod(i, shape.groups)
        question = questions[(group * shape.prompts + number) % len(questions)]
        first = question.messages[0]
        opened = Message(first.role, f"{beginnings[group]}\n\nQuestion {number + 1}: {first.content}")
        prompts.append(
            dataclasses.replace(
                question, id=f"g{group + 1}-{number + 1}", messages=(opened, *question.messages[1:])
            )
        )
    about = (
        f"{shape.groups} beginning{'s' if shape.groups > 1 else ''} of about {shape.tokens} tokens, "
        f"{shape.prompts} prompt{'s' if shape.prompts > 1 else ''} with each"
    )
    return Workload(name="shared-prefix", prompts=tuple(prompts), source=f"shared-prefix {shape}", about=about)


def replayed(trace: RequestTrace, prose: Prose, *, name: str, output_tokens: int | None = None) -> Workload:
    """Prompts and answers of a trace's lengths, which holds no text.

    Where the trace tells which blocks of tokens requests have in common, the same block is the same text. Every
    other prompt begins differently.

    Args:
        trace: Lengths and blocks.
        prose: The text.
        name: Of the workload.
        output_tokens: In place of the trace's own answers' lengths.
    """
    block = lru_cache(maxsize=8192)(lambda key: prose.passage(trace.block_tokens, f"block {key}"))
    prompts = tuple(
        Prompt(
            id=f"t{i + 1}",
            messages=(Message("user", _text(request, i, trace.block_tokens, block, prose)),),
            max_tokens=output_tokens or request.output_tokens,
            forced=True,
        )
        for i, request in enumerate(trace.requests)
    )
    return Workload(name=name, prompts=prompts, source=trace.source, about=trace.about)


def random_tokens(prompt_tokens: int, output_tokens: int, count: int, seed: int) -> Workload:
    """Prompts of token ids drawn at random: what a server computes, and nothing that a drafter could know.

    Args:
        prompt_tokens: Length of each.
        output_tokens: Of each answer, forced.
        count: How many, all different.
        seed: Of the draw.
    """
    draw = Random(seed)  # noqa: S311 - chance that must repeat, not a secret
    prompts = tuple(
        Prompt(
            id=f"r{i + 1}",
            messages=(),
            token_ids=tuple(draw.choices(_IDS, k=prompt_tokens)),
            max_tokens=output_tokens,
            forced=True,
        )
        for i in range(count)
    )
    return Workload(
        name="random-tokens",
        prompts=prompts,
        source=f"random-tokens {prompt_tokens}:{output_tokens}",
        about=f"token ids from {_IDS.start} to {_IDS.stop - 1}, drawn at random: for capacity, not for acceptance",
    )


def _text(request: TraceRequest, i: int, block_tokens: int, block: Callable[[int], str], prose: Prose) -> str:
    ask = request.prompt_tokens >= 4 * _GO_ON_TOKENS
    left = request.prompt_tokens - (_GO_ON_TOKENS if ask else 0)
    parts = []
    for key in request.blocks:
        if left <= 0:
            break
        parts.append(block(key) if left >= block_tokens else prose.passage(left, f"block {key}"))
        left -= block_tokens
    if left > 0:
        parts.append(prose.passage(left, f"request {i + 1}"))
    text = " ".join(parts)
    return f"{text}\n\n{_GO_ON}" if ask else text
