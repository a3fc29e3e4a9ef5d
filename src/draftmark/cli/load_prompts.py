"""The prompts that the options of a load come to, and what has to be known of them."""

from __future__ import annotations

import argparse

from draftmark.cli import load_sizes
from draftmark.cli.load_words import DATA
from draftmark.errors import UsageError
from draftmark.load.files import stem_of
from draftmark.load.traces import RequestTrace
from draftmark.load.workloads import Prose, forced, random_tokens, replayed, shared_prefix
from draftmark.load.workloads.prose import BYTES_PER_TOKEN
from draftmark.model import Workload

Made = tuple[tuple[Workload, ...], tuple[str, ...]]

_MOST_BYTES = 2**30  # of prompts that are made: they are held until they are sent
_ID_BYTES = 40
_FORCED = (
    "Answers were forced to their length (ignore_eos): past its own end a model repeats itself, "
    "so that acceptance is flattered there."
)
_RANDOM = (
    "Prompts are token ids drawn at random: figures of capacity, whose acceptance says nothing about real text."
)


def prompts(args: argparse.Namespace, trace: RequestTrace | None, most: int, *, embedded: bool) -> Made:
    """Workloads, and sentences about them.

    Args:
        args: The options.
        trace: What is replayed, if anything is.
        most: Requests that the largest measurement makes.
        embedded: For the demo's own defaults.

    Raises:
        UsageError: They cannot be made.
    """
    if args.random_tokens is not None:
        return _random(args, most)
    if trace is not None:
        return _replayed(args, trace, embedded=embedded)
    found = load_sizes.workloads(args, embedded=embedded, take=most)
    if args.multi_turn and not any(p.follow_ups for w in found for p in w.prompts):
        raise UsageError(
            "none of these prompts has a further turn",
            evidence=tuple(f"{w.name}: {len(w.prompts)} prompts" for w in found),
            next_step="leave --multi-turn out, or give --prompts FILE with turns: ShareGPT, MT-Bench, messages",
        )
    notes = [f"{w.source}: {w.about}." for w in found if w.about and w.source != "built-in"]
    if isinstance(args.output_tokens, int):
        found = tuple(forced(w, args.output_tokens) for w in found)
    if args.output_tokens == DATA:
        notes.append("Answers have the lengths of those in the data, which are estimated from their text.")
    if args.output_tokens is not None:
        notes.append(_FORCED)
    if args.shared_prefix is not None:
        return _shared(args, found, notes)
    return found, tuple(notes)


def _random(args: argparse.Namespace, most: int) -> Made:
    asked, answered = args.random_tokens
    _refuse_too_much(asked * most * _ID_BYTES, "--random-tokens", "fewer or shorter ones: --requests N")
    return (random_tokens(asked, answered, most, args.seed or 0),), (_RANDOM, _FORCED)


def _replayed(args: argparse.Namespace, trace: RequestTrace, *, embedded: bool) -> Made:
    size = sum(request.prompt_tokens for request in trace.requests) * BYTES_PER_TOKEN
    _refuse_too_much(size, f"the prompts of {trace.source}", "take the first of them: --requests N")
    length = args.output_tokens if isinstance(args.output_tokens, int) else None
    prose, note = _stock(args, embedded=embedded)
    made = replayed(trace, prose, name=stem_of(args.trace, "trace"), output_tokens=length)
    return (made,), (note, _repeats(prose, max(r.prompt_tokens for r in trace.requests)), _FORCED)


def _shared(args: argparse.Namespace, found: tuple[Workload, ...], notes: list[str]) -> Made:
    shape = args.shared_prefix
    size = shape.total * shape.tokens * BYTES_PER_TOKEN
    _refuse_too_much(size, f"--shared-prefix {shape}", "fewer or shorter ones")
    prose = Prose.built_in(args.seed or 0)
    note = "The shared beginnings are made to length from the built-in text: approximate without a tokeniser."
    return (shared_prefix(shape, found, prose),), (*notes, note, _repeats(prose, shape.tokens))


def _stock(args: argparse.Namespace, *, embedded: bool) -> tuple[Prose, str]:
    """What text prompts are made of: the user's own where it is given."""
    drawn = args.seed or 0
    if args.prompts is None and args.workload is None:
        prose, name = Prose.built_in(drawn), "the built-in text"
    else:
        found = load_sizes.workloads(args, embedded=embedded, take=None)
        prose, name = Prose.of(found, drawn), " and ".join(w.name for w in found)
    return prose, (
        f"Prompts are made to length from {name}: their lengths in tokens are approximate without the server's "
        "tokeniser; its usage has the true ones."
    )


def _repeats(prose: Prose, longest: int) -> str:
    return (
        f"That text has about {prose.tokens} tokens; a prompt of {longest} repeats sentences of it, "
        "which an n-gram drafter finds again."
        if longest > prose.tokens
        else "No prompt is longer than that text, so that its sentences are seldom repeated."
    )


def _refuse_too_much(size: float, what: str, next_step: str) -> None:
    if size > _MOST_BYTES:
        raise UsageError(
            f"{what} would take {size / 2**30:.1f} GiB to hold, over the limit of 1 GiB", next_step=next_step
        )
