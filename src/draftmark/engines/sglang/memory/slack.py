"""What is left beside the pools, and what has to go there: CUDA graphs, the draft's own pool, request tables. Pure.

Source: 14:managers/scheduler.py:859-872 (order), 14:server_args.py:3347 (batch sizes), facts of one H200 for sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftmark.engines.sglang.memory.cards import GIB, MIB
from draftmark.engines.sglang.memory.cell import Cell
from draftmark.engines.sglang.memory.pools import Pools
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.engines.sglang.memory.state import StateCost

if TYPE_CHECKING:
    from draftmark.engines.sglang.log.nouns import BootLog

_LEAST = 256 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Slack:
    """Bytes beside the pools.

    Attributes:
        left: What is free when graphs are captured.
        wanted: What graphs will take: as the boot log had it, else as SGLang's own default reserves.
        measured: Whether `wanted` comes from a log.
        draft_pool: Taken before by the draft's KV, which no budget counted.
        table: Taken before by the table from requests to tokens.
        longer: Taken before by states of verification for candidates of more steps than it starts with.
    """

    left: float
    wanted: float
    measured: bool
    draft_pool: float
    longer: float = 0.0
    table: float = 0.0

    @property
    def enough(self) -> bool | None:
        """None where it is close and nothing was measured."""
        if self.left < min(_LEAST, self.wanted):
            return False
        if self.left >= self.wanted * (1.1 if self.measured else 1.0):
            return True
        return None


def request_table_bytes(settings: Settings, running: int, context: int) -> int:
    """The table from requests to tokens: int32, a row a request and one more (14:…kv_cache_mixin.py:338-345)."""
    return 4 * (running + 1) * (context + 4 + settings.draft_tokens)


def slack_of(
    settings: Settings,
    cell: Cell,
    cost: StateCost | None,
    pools: Pools,
    free: float,
    wanted: tuple[float, bool],
    context: int,
) -> Slack:
    """What an arm leaves of `free`: (1 - fraction) * pre, less what comes after the pools were sized."""
    draft_pool = cell.uncounted_draft * max(0, pools.tokens) + cell.uncounted_fixed
    extra = 0.0
    if cost is not None and cost.draft_tokens:  # --speculative-adaptive: states for the longest candidate
        extra = float(cost.slot * (pools.running + 1) * (settings.most_draft_tokens - settings.draft_tokens))
    table = float(request_table_bytes(settings, max(0, pools.running), context))
    left = free - draft_pool - extra - table
    return Slack(left=left, wanted=wanted[0], measured=wanted[1], draft_pool=draft_pool, longer=extra, table=table)


def graphs_wanted(
    boot: BootLog | None, boot_tokens: int, settings: Settings, default_mib: float
) -> tuple[float, bool]:
    """What graphs take: those of a log, with D tokens a request in place of that boot's; whether it is from a log.

    Prefill graphs do not depend on D; those of verification and drafting grow by less than in proportion. Each
    candidate of --speculative-adaptive has a set of them.
    """
    if not settings.graphs:
        return 0.0, boot is not None
    lines = [line for line in boot.graphs if line.mem_gib is not None] if boot is not None else []
    if not lines:
        return default_mib * MIB * max(1, len(settings.candidates)), False
    sets = [steps + 1 for steps in settings.candidates] or [max(1, settings.draft_tokens)]
    grown = sum(max(1.0, tokens / max(1, boot_tokens)) for tokens in sets)
    prefill = sum(line.mem_gib or 0.0 for line in lines if "prefill" in line.name)
    other = sum(line.mem_gib or 0.0 for line in lines if "prefill" not in line.name)
    return (prefill + other * grown) * GIB, True
