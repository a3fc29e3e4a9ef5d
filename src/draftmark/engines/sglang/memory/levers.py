"""What to change to get more, in SGLang's own flags, each with what it would give. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from draftmark.engines.sglang.memory.pools import Pools
from draftmark.engines.sglang.memory.slack import Slack

if TYPE_CHECKING:
    from draftmark.engines.sglang.memory.fit import Case

_MOST_FRACTION = 0.98
_MOST_RATIO = 20.0
_LEAST_CONTEXT = 2048


def levers(case: Case, pools: Pools, slack: Slack) -> Iterator[str]:
    """Those that help against what binds, the gentlest first."""
    if not pools.starts:
        yield from _to_start(case)
        yield from _less_state(case, pools)
        return
    if slack.enough is not True:
        yield from _to_capture(case, slack)
    if slack.enough is False:
        return
    if pools.limit == "state-slots":
        yield from _more_slots(case, pools)
        yield from _less_state(case, pools)
    elif pools.limit == "default-maximum" and case.settings.algorithm:
        more = _asking(case, 2 * pools.running)
        if more.starts and more.running > pools.running:
            asked = 2 * pools.running * case.settings.shards
            yield f"--max-running-requests {asked}: {_told(more)}; left out, it is 48"
    yield from _more_tokens(case, pools)


def _to_start(case: Case) -> Iterator[str]:
    """The least fraction with which it would start. SGLang's own message leaves recurrent state out of it."""
    least = least_fraction(case)
    if least is None:
        yield "no --mem-fraction-static is enough on this card"
    else:
        changed = replace(case, fraction=least)
        left = changed.slack(changed.pools(changed.available()))
        beside = "" if left.enough is not False else ", but then too little is left for CUDA graphs"
        yield f"--mem-fraction-static {least:.3f} at least{beside}"
        own = (
            1
            - (case.budget.pre - case.budget.target - case.budget.resident_draft(case.rules, case.settings))
            / case.budget.pre
        )
        if case.model.state is not None and own < case.fraction:
            said = (
                math.ceil(own * 1000 - 0.1) / 1000
            )  # rounded up (17:…configurator.py:1645); a tenth of a digit is ours
            yield f"SGLang's own message will say {said:.3f}, which leaves recurrent state out and is not enough"
    running = case.settings.requested()
    if running is not None and running > 1:
        fewer = _largest(running - 1, lambda wanted: _asking(case, wanted).starts)
        if fewer is not None:
            yield f"--max-running-requests {fewer * case.settings.shards} at most: {_told(_asking(case, fewer))}"


def least_fraction(case: Case) -> float | None:
    """The least fraction, to three digits, with which the pools come out above nothing; None when none does."""
    if not _at(case, _MOST_FRACTION).starts:
        return None
    low, high = 0.0, _MOST_FRACTION
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (low, middle) if _at(case, middle).starts else (middle, high)
    least = math.ceil(high * 1000) / 1000
    return least if _at(case, least).starts else least + 0.001


def _to_capture(case: Case, slack: Slack) -> Iterator[str]:
    """What leaves enough beside the pools."""
    for step in range(1, round(case.fraction * 100)):
        lower = round(case.fraction - step / 100, 3)
        changed = replace(case, fraction=lower)
        pools = changed.pools(changed.available())
        if not pools.starts:
            break
        if changed.slack(pools).enough is True:
            yield f"--mem-fraction-static {lower:g}: {_told(pools)}; CUDA graphs are captured from what it leaves"
            break
    shorter = _shorter_context(case)
    if slack.table > slack.wanted and shorter is not None:
        yield f"--context-length {shorter[0]}: {_told(shorter[1])}; the table from requests to tokens grows with it"
    if slack.left > 0:
        yield "a smaller --cuda-graph-max-bs-decode (--cuda-graph-max-bs up to 0.5.12)"


def _shorter_context(case: Case) -> tuple[int, Pools] | None:
    """The longest context, halved again and again, whose table leaves enough."""
    context = 1 << (case.model.context.bit_length() - 1)
    while context >= _LEAST_CONTEXT:
        changed = replace(case, model=replace(case.model, context=context))
        pools = changed.pools(changed.available())
        if context < case.model.context and pools.starts and changed.slack(pools).enough is True:
            return context, pools
        context //= 2
    return None


def _less_state(case: Case, pools: Pools) -> Iterator[str]:
    state = case.model.state
    if state is None:
        return
    from draftmark.engines.sglang.memory.state import ssm_dtype

    if ssm_dtype(state, case.settings, case.environment) == "float32":
        half = _with(case, ssm_dtype="bfloat16")
        if half.starts and _better(half, pools):
            yield f"--mamba-ssm-dtype bfloat16: {_told(half)}; it halves the state, and costs accuracy"
    if case.settings.radix:
        without = _with(case, radix=False, running=case.settings.running)
        if without.starts and without.running > pools.running:
            yield f"--disable-radix-cache: {_told(without)}; nothing is reused between requests"
    if (
        case.settings.algorithm
        and case.rules.state == "padded"
        and not case.settings.replayssm
        and case.settings.topk == 1
    ):
        ring = _with(case, replayssm=True)
        if ring.starts and _better(ring, pools):
            yield f"--enable-linear-replayssm-spec: {_told(ring)}; no states are kept for verification"


def _more_slots(case: Case, pools: Pools) -> Iterator[str]:
    """A larger share of the budget for state: the least that reaches the limit, else the most that works."""
    wanted = case.settings.requested()
    if not case.settings.radix or case.settings.state_slots is not None or wanted is None:
        return
    best = None
    for step in range(1, 60):
        ratio = round(case.settings.state_ratio * 1.08**step, 2)
        changed = _with(case, state_ratio=ratio)
        if ratio > _MOST_RATIO or not changed.starts:
            break
        if changed.running > pools.running and (best is None or changed.running > best[1].running):
            best = ratio, changed
        if changed.running >= wanted:
            break
    if best is not None:
        yield f"--mamba-full-memory-ratio {best[0]:g}: {_told(best[1])}"


def _more_tokens(case: Case, pools: Pools) -> Iterator[str]:
    fraction = round(case.fraction + 0.05, 3)
    if fraction <= _MOST_FRACTION:
        changed = replace(case, fraction=fraction)
        more = changed.pools(changed.available())
        if changed.slack(more).enough is True and _better(more, pools):
            yield f"--mem-fraction-static {fraction:g}: {_told(more)}"
    running = case.settings.requested()
    if case.rules.state == "upfront" or not case.settings.radix:
        fewer = None if running is None or case.model.state is None else _asking(case, max(1, running // 2))
        if fewer is not None and running is not None and fewer.starts and fewer.tokens > pools.tokens:
            yield f"--max-running-requests {max(1, running // 2) * case.settings.shards}: {_told(fewer)}"
    if case.settings.kv_dtype == "auto":
        small = _with(case, kv_dtype="fp8_e4m3")
        if small.starts and small.tokens > pools.tokens:
            yield f"--kv-cache-dtype fp8_e4m3: {_told(small)}; it costs accuracy"


def _at(case: Case, fraction: float) -> Pools:
    changed = replace(case, fraction=fraction)
    return changed.pools(changed.available())


def _asking(case: Case, running: int) -> Pools:
    return _with(case, running=running * case.settings.shards)


def _with(case: Case, **changes: object) -> Pools:
    changed = replace(case, settings=replace(case.settings, **changes))  # type: ignore[arg-type]
    return changed.pools(changed.available())


def _largest(most: int, works: Callable[[int], bool]) -> int | None:
    """The largest number up to `most` that works, where fewer is never worse."""
    if most < 1 or not works(1):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if works(middle) else (low, middle - 1)
    return low


def _better(more: Pools, pools: Pools) -> bool:
    return more.tokens > pools.tokens or more.running > pools.running


def _told(pools: Pools) -> str:
    slots = f", {pools.slots} slots" if pools.slots is not None else ""
    return f"{max(0, pools.tokens):,} tokens, {max(0, pools.running)} requests at once{slots}"
