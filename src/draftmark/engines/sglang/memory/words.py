"""The arithmetic of a verdict, a line each, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from draftmark.engines.sglang.memory.pools import Pools
from draftmark.engines.sglang.memory.slack import Slack
from draftmark.engines.sglang.memory.state import strategy_of

if TYPE_CHECKING:
    from draftmark.engines.sglang.memory.fit import Case

GIB = float(1 << 30)
_LARGE_TABLE = 0.5 * GIB


def gib(amount: float) -> str:
    """`21.16 GiB`."""
    return f"{amount / GIB:.2f} GiB"


def _kept(case: Case) -> str:
    """Why a request holds as many slots as it does."""
    settings = case.settings
    if not settings.radix:
        return "no radix cache"
    strategy = strategy_of(case.rules, settings, case.model.architecture)
    chosen = "as asked for" if settings.strategy != "auto" else f"the choice of SGLang {case.rules.version}"
    return f"radix cache with {strategy}, {chosen}"


def arithmetic(case: Case, budget: float, pools: Pools, slack: Slack) -> Iterator[str]:
    """From free memory to tokens, as SGLang goes."""
    cell, cost = case.parts()
    if case.fraction <= 0:
        yield (
            f"SGLang's own --mem-fraction-static is {case.fraction:.3f} then: it keeps back more than the card has "
            "for --chunked-prefill-size and CUDA graphs"
        )
        return
    resident = case.budget.target + case.budget.resident_draft(case.rules, case.settings) + case.reserved()
    yield (
        f"budget {gib(budget)}: {case.fraction:.3f} of the {gib(case.budget.pre)} that are free before loading, "
        f"less {gib(resident)} of weights and what else is there before the pools"
    )
    if cost is not None:
        verify = f", and {cost.draft_tokens} more for each request that is verified" if cost.draft_tokens else ""
        slots = f"{pools.slots} slots" if (pools.slots or 0) > 0 else "not one slot"
        taken = f" {gib(pools.state_taken)}" if (pools.slots or 0) > 0 else ""
        yield (
            f"recurrent state{taken}: {slots} of {cost.slot / (1 << 20):.2f} MiB, {cost.per_request} a request "
            f"({_kept(case)}){verify}"
        )
    if cell.fixed:
        yield f"pool of sliding windows {gib(cell.fixed)}, by the requests at once"
    if pools.left <= 0:
        yield f"nothing is left for KV: {gib(-pools.left)} too little"
        return
    draft = f", {cell.draft_layers} draft layers among it" if cell.draft_layers else ""
    yield f"KV {gib(max(0.0, pools.left - cell.fixed))}: {pools.tokens:,} tokens of {cell.bytes:,.0f} bytes{draft}"
    if pools.running > 0 and pools.tokens > 0:
        yield f"{pools.running} requests at once: {pools.tokens // pools.running:,} tokens each"
    if slack.draft_pool:
        yield f"the draft's own KV, {gib(slack.draft_pool)}, is in no budget and comes on top"
    if case.settings.candidates:
        steps = ", ".join(map(str, case.settings.candidates))
        longer = f", and {gib(slack.longer)} of states for the longest, in no budget" if slack.longer else ""
        yield f"adaptive: it starts with {case.settings.steps} of {steps} steps; CUDA graphs for each{longer}"
    if slack.table > _LARGE_TABLE:
        yield (
            f"the table from requests to tokens takes {gib(slack.table)}: {pools.running + 1:,} rows of "
            f"{case.model.context:,} tokens, of 4 bytes each"
        )
    told = "are needed by what they took in the log" if slack.measured else "are reserved by default"
    yield f"{gib(slack.left)} are left beside the pools for CUDA graphs, for which {gib(slack.wanted)} {told}"
