"""From a budget to pools: tokens, state slots, requests at once. Pure.

Source: 14:…kv_cache_mixin.py:85-120 (budget), 14:model_executor/pool_configurator.py:56-61, 221-300 (tokens),
14:…kv_cache_mixin.py:981-1018 and 12:…:817-836 (requests at once).
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmark.engines.sglang.memory.cell import Cell
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.engines.sglang.memory.state import StateCost, StateShare, share_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """What a start ends with.

    Attributes:
        tokens: `max_total_num_tokens`; 0 or below: it does not start.
        running: `max_running_requests` of one worker.
        slots: `max_mamba_cache_size`; None without recurrent state.
        limit: What holds `running` down: `kv-tokens`, `state-slots`, `requested-maximum`, `default-maximum`.
        state_taken: Bytes of the budget that went to state.
        left: Bytes of the budget that were left for KV.
    """

    tokens: int
    running: int
    slots: int | None
    limit: str
    state_taken: float
    left: float

    @property
    def starts(self) -> bool:
        """Whether SGLang goes on from here."""
        return self.tokens > 0 and self.running > 0 and (self.slots is None or self.slots > 0)


def solve(
    rules: Rules, settings: Settings, cell: Cell, cost: StateCost | None, budget: float, context: int
) -> Pools:
    """Pools that SGLang makes of `budget` bytes. Its estimate of requests at once goes by the context length."""
    share = share_of(rules, settings, cost, budget) if cost is not None else StateShare(slots=0, taken=0.0)
    left = budget - share.taken
    tokens = int((int(left) - cell.fixed) // cell.bytes) if cell.bytes else 0
    if settings.max_total_tokens is not None:
        tokens = min(tokens, settings.max_total_tokens)
    tokens = tokens // settings.page_size * settings.page_size
    running, limit = _running(rules, settings, tokens, context)
    if cost is not None and share.slots // cost.per_request < running:
        running, limit = share.slots // cost.per_request, "state-slots"
    return Pools(
        tokens=tokens,
        running=running,
        slots=share.slots if cost is not None else None,
        limit=limit,
        state_taken=share.taken,
        left=left,
    )


def _running(rules: Rules, settings: Settings, tokens: int, context: int) -> tuple[int, str]:
    """Requests at once before state is looked at."""
    estimate = max(min(int(tokens / max(1, context) * 512), 4096), 2048)
    requested = settings.requested()
    if requested is None:
        return (estimate, "default-maximum") if estimate <= tokens // 2 else (tokens // 2, "kv-tokens")
    bound = tokens // 2 if rules.running_clamp else estimate
    if requested > bound:
        return bound, "kv-tokens"
    return requested, "default-maximum" if settings.running is None else "requested-maximum"


def budget_for(
    rules: Rules, settings: Settings, cell: Cell, cost: StateCost | None, pools: Pools
) -> tuple[float, float]:
    """The budgets, from and below, that give exactly these pools: what a boot log tells of the memory it found.

    What tokens and slots took is known; the rest is less than one page of tokens.
    """
    taken = 0.0
    if cost is not None:
        taken = _taken_by(rules, settings, cost, pools)
    low = taken + cell.fixed + pools.tokens * cell.bytes
    return low, low + cell.bytes * settings.page_size


def _taken_by(rules: Rules, settings: Settings, cost: StateCost, pools: Pools) -> float:
    slots = pools.slots or 0
    running = settings.requested()
    if rules.state == "upfront":
        return float(cost.slot * (running or 0) * cost.draft_tokens + slots * cost.slot)
    padding = 1 if rules.state == "padded" else 0
    by_slots = slots // cost.per_request
    limit = by_slots if running is None else min(running, by_slots)
    verify = cost.slot * (limit + padding) * cost.draft_tokens if cost.draft_tokens else 0
    return float(verify + (slots + padding) * (cost.slot + cost.extra) + cost.fixed)
