"""Recurrent state of hybrid models: bytes a slot, slots a request, and how many slots a budget buys. Pure.

Source: 10:…kv_cache_mixin.py:181-236, 14:…kv_cache_mixin.py:122-293, 14:configs/mamba_utils.py:108-170,
23:mem_cache/kv_cache_configurator.py:3062-3409. Releases up to 0.5.12 reserve the states of a verification for all
requests first; 0.5.14 solves for both together; from 0.5.17 the pools' padding slot is charged as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from draftmark.engines.sglang.memory.anatomy import ITEM_BYTES, RecurrentState
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.engines.sglang.memory.settings import Settings

_RESIDENT = 3  # slots of a request that the radix cache may hold on to


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCost:
    """What state costs under one arm.

    Attributes:
        slot: p: bytes of one slot on one rank.
        extra: Bytes that every slot carries besides.
        fixed: Bytes that come once.
        per_request: q: slots that one running request holds.
        draft_tokens: D: states that a verification keeps for each request; 0 where it keeps none.
    """

    slot: int
    per_request: int
    draft_tokens: int
    extra: int = 0
    fixed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StateShare:
    """Slots that were bought, and what they took of the budget, bytes."""

    slots: int
    taken: float


def slot_bytes(state: RecurrentState, settings: Settings, environment: Mapping[str, str]) -> int:
    """p: bytes of all layers' state of one request on one rank.

    The convolution is kept in bfloat16, the matrices in float32 unless flag, variable or config say otherwise.
    Groups that do not divide evenly among ranks are extended until every rank has whole ones.
    """
    tp = settings.attention_tp
    groups = state.groups
    if groups % tp:
        groups += tp - groups if groups == 1 else tp - groups % tp
    conv = (state.inner + groups * state.group_width) // tp * state.conv_columns
    matrices = max(1, state.heads // tp) * state.rows * state.columns
    conv_item = ITEM_BYTES.get(environment.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16"), 2)
    return state.layers * (conv * conv_item + matrices * ITEM_BYTES[ssm_dtype(state, settings, environment)])


def ssm_dtype(state: RecurrentState, settings: Settings, environment: Mapping[str, str]) -> str:
    """Of the state matrices: flag, variable, config, then float32; a name that is unknown counts as none."""
    for name in (settings.ssm_dtype, environment.get("SGLANG_MAMBA_SSM_DTYPE"), state.dtype):
        if name in ("float32", "bfloat16", "float16"):
            return str(name)
    return "float32"


def slots_a_request(rules: Rules, settings: Settings, architecture: str, environment: Mapping[str, str]) -> int:
    """q: slots that a running request holds: 1 without the radix cache, else 3 and what its strategy adds.

    `auto` picks extra_buffer from 0.5.14 on where overlap or paging want it and the model supports it. Up to 0.5.12
    it is no_buffer; with speculation that does not start, so a service that runs has extra_buffer set.
    """
    if not settings.radix:
        return 1
    strategy = strategy_of(rules, settings, architecture)
    skip = rules.state == "padded" and environment.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "0").lower() in (
        "1",
        "true",
    )
    if strategy not in ("extra_buffer", "extra_buffer_lazy"):
        return _RESIDENT
    resident = _RESIDENT - 1 if skip else _RESIDENT
    return resident + (2 if settings.overlap and strategy == "extra_buffer" else 1)


def strategy_of(rules: Rules, settings: Settings, architecture: str) -> str:
    """How the radix cache keeps state: as asked for, or what `auto` becomes."""
    return settings.strategy if settings.strategy != "auto" else _auto(rules, settings, architecture)


def _auto(rules: Rules, settings: Settings, architecture: str) -> str:
    if not rules.extra_buffer:
        return "extra_buffer" if settings.algorithm is not None else "no_buffer"
    wanted = settings.overlap or settings.page_size > 1
    supported = architecture in rules.extra_buffer and settings.linear_backend == "triton"
    return "extra_buffer" if wanted and supported else "no_buffer"


def cost_of(
    rules: Rules, settings: Settings, state: RecurrentState, architecture: str, environment: Mapping[str, str]
) -> StateCost:
    """What state costs under one arm of a release."""
    slot = slot_bytes(state, settings, environment)
    per_request = slots_a_request(rules, settings, architecture, environment)
    if settings.algorithm is None or not (settings.replayssm and rules.state == "padded"):
        return StateCost(slot=slot, per_request=per_request, draft_tokens=settings.draft_tokens)
    ring = ring_bytes(rules, settings, state)
    if rules.version >= "0.5.20" and not state.gate_per_key:
        running = max(1, settings.requested() or 1)
        return StateCost(slot=slot, per_request=per_request, draft_tokens=0, fixed=ring * (running + 1))
    return StateCost(slot=slot, per_request=per_request, draft_tokens=0, extra=ring)


def ring_bytes(rules: Rules, settings: Settings, state: RecurrentState) -> int:
    """Bytes of one request's replay ring, which takes the place of the states of a verification.

    Source: 17:configs/mamba_utils.py:127-151, 20 and 23:…:127-157. For gated delta-net 0.5.17 keeps D inputs and
    two numbers a head; later releases keep as many as the flag says, in two parts, and one number a head.
    """
    tp = settings.attention_tp
    heads, key_heads = max(1, state.heads // tp), max(1, state.groups // tp)
    vectors = heads * state.rows * 2 + key_heads * state.columns * 2
    if state.gate_per_key:
        return state.layers * settings.replay_length * (2 * vectors + heads * 4 * (1 + state.columns))
    if rules.version < "0.5.20":
        return state.layers * settings.draft_tokens * (vectors + heads * 4 * 2)
    return state.layers * settings.replay_length * (2 * vectors + heads * 4)


def share_of(rules: Rules, settings: Settings, cost: StateCost, budget: float) -> StateShare:
    """Slots that a budget of so many bytes buys, and what they take of it.

    Three ways: `--max-mamba-cache-size` gives them; without the radix cache an explicit (or implied) running limit
    does; else the budget is split by `--mamba-full-memory-ratio`. At 0 slots or below it does not start.
    """
    running = settings.requested()
    reserve = 0.0
    if rules.state == "upfront":
        reserve = float(cost.slot * (running or 0) * cost.draft_tokens)
    given = _given(settings, running)
    slots = given if given is not None else _solved(rules, settings, cost, budget - reserve)
    padding = 1 if rules.state == "padded" else 0
    if rules.state != "upfront" and cost.draft_tokens:
        limit = slots // cost.per_request if running is None else min(running, slots // cost.per_request)
        if given is not None and settings.state_slots is None:
            limit = slots
        reserve = float(cost.slot * (limit + padding) * cost.draft_tokens)
    return StateShare(slots=slots, taken=reserve + (slots + padding) * (cost.slot + cost.extra) + cost.fixed)


def _given(settings: Settings, running: int | None) -> int | None:
    if settings.state_slots is not None:
        return settings.state_slots // settings.shards
    return running if not settings.radix else None


def _solved(rules: Rules, settings: Settings, cost: StateCost, budget: float) -> int:
    own = budget * settings.state_ratio / (1 + settings.state_ratio)
    if rules.state == "upfront":
        return int(own // cost.slot)
    verify = cost.draft_tokens / cost.per_request
    if rules.state == "joint":
        return int(own // (cost.slot * (1 + verify)))
    if not cost.draft_tokens:
        each = cost.slot + cost.extra
        return int((own - cost.fixed - each) // each)
    return int((own - cost.slot * (1 + cost.draft_tokens) - cost.extra) // (cost.slot * (1 + verify) + cost.extra))
