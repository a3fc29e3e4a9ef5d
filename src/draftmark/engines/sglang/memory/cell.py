"""Bytes of KV that one token takes on one rank, as each release counts them. Pure.

Source: 14:model_executor/pool_configurator.py:165-330, 23:model_executor/pool_configurator.py:222-330, 656-800.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from draftmark.engines.sglang.memory.anatomy import ITEM_BYTES, Anatomy, Draft, Heads, Latent
from draftmark.engines.sglang.memory.rules import Rules, drafts_from_target
from draftmark.engines.sglang.memory.settings import Settings

_SCALE_BLOCK = 128  # DSATokenToKVPool.quant_block_size
_BLOCKS = ("DFLASH", "DSPARK")
_ROPE_BYTES = 2  # rope of a scaled fp8 row stays bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a token costs.

    Attributes:
        bytes: Of the budget, a token; fractional where a pool of sliding windows is a share of the full one.
        fixed: Taken out of the budget first: a pool of windows whose size does not depend on the tokens.
        target: Of `bytes` and `fixed`, what one token takes in the target's own full-length pool.
        uncounted_draft: Bytes a token that the draft's pool takes on top, outside of the budget.
        uncounted_fixed: Bytes of that pool that do not depend on the tokens.
        draft_layers: Layers of the draft that the budget was charged for.
    """

    bytes: float
    fixed: int = 0
    target: float
    uncounted_draft: float = 0.0
    uncounted_fixed: float = 0.0
    draft_layers: int = 0


def item_bytes(settings: Settings, model: Anatomy) -> tuple[float, str | None]:
    """Bytes of one cached number, and what was assumed about it.

    `auto` is the model's own dtype (14:model_executor/model_runner.py configure_kv_cache_dtype).
    """
    name = settings.kv_dtype.lower().removeprefix("torch.").replace("float8_e4m3fn", "fp8_e4m3")
    if name == "auto":
        own = settings.dtype if settings.dtype in ITEM_BYTES else model.dtype
        return float(min(ITEM_BYTES.get(own, 2), 2 if settings.dtype == "auto" else 4)), None
    if name in ITEM_BYTES:
        return float(ITEM_BYTES[name]), None
    if name in ("fp4_e2m1", "fp4_mx_block16", "nvfp4"):
        return 0.5 + 1 / 16, "KV cache in fp4: half a byte and a block scale a number"
    if name == "mxfp8":
        return 1 + 1 / 32, None
    return 2.0, f"--kv-cache-dtype {settings.kv_dtype} is not known: two bytes a number are assumed"


def draft_layers(rules: Rules, settings: Settings, model: Anatomy, draft: Draft | None) -> int:
    """d: layers of the draft that a token is charged for.

    Up to 0.5.12 none. From 0.5.14 those of the draft's config, if there is a draft path; from 0.5.20 also the
    target's own `num_nextn_predict_layers` without a path. Until 0.5.17 a wrapped text model reports its full depth
    instead of its one draft layer: the number is written on the outer config and read from the inner one (issue
    29857).
    """
    if not settings.eagle or rules.draft_kv == "uncounted":
        return 0
    with_path = settings.draft_path is not None or drafts_from_target(model.architecture)
    if not with_path:
        return (model.nextn or 0) if rules.draft_kv == "always" else 0
    if draft is None:
        return 1
    if draft.architecture in rules.one_draft_layer and not (rules.outer_nextn_only and draft.wrapped):
        return 1
    return draft.nextn if draft.nextn is not None else draft.layers


def cell_of(rules: Rules, settings: Settings, model: Anatomy, draft: Draft | None) -> Cell:
    """The cost of a token under a release."""
    cell = _without_blocks(rules, settings, model, draft)
    if settings.algorithm not in _BLOCKS or draft is None or rules.block_draft_kv == "none":
        return cell
    return _with_blocks(rules, settings, model, draft, cell)


def _with_blocks(rules: Rules, settings: Settings, model: Anatomy, draft: Draft, cell: Cell) -> Cell:
    """With the KV of a draft that drafts blocks: by its layers as if they were the target's, later by their size.

    Source: 12:model_executor/pool_configurator.py:105-125, 17:…:166-181, 23:…:316-338, 761. Until 0.5.20 a model
    with window pools counts none of it.
    """
    own = float((draft.cell or 0) + draft.windows)
    if rules.block_draft_kv == "own" and own:
        return replace(cell, bytes=cell.bytes + own, draft_layers=draft.layers)
    if model.window is not None and settings.hybrid_window:
        return replace(cell, uncounted_draft=own)
    layers = model.cache_layers + (model.window.layers if model.window else 0)
    if not layers:
        return cell
    return replace(cell, bytes=-(-int(cell.bytes) * (layers + draft.layers) // layers), draft_layers=draft.layers)


def _without_blocks(rules: Rules, settings: Settings, model: Anatomy, draft: Draft | None) -> Cell:
    item, _ = item_bytes(settings, model)
    charged = draft_layers(rules, settings, model, draft)
    if model.window is not None and settings.hybrid_window and model.latent is None:
        return _windows(rules, settings, model, draft, item)
    target = _latent(rules, settings, model.latent, item) if model.latent else _heads(model.full, settings, item)
    if model.window is not None:  # no pool of its own: windows are kept as long as all else
        target += _heads(model.window, settings, item)
    layers = model.cache_layers + (model.window.layers if model.window else 0)
    windows = draft.windows if draft is not None and settings.eagle else 0  # as long as the target's pool
    total = target + int(target * charged / layers) if charged and layers else target
    return Cell(
        bytes=total,
        target=target,
        draft_layers=charged,
        uncounted_draft=0.0 if charged else _uncounted(settings, draft, target / layers if layers else 0) + windows,
    )


def _heads(heads: Heads | None, settings: Settings, item: float) -> float:
    """kv_heads of one rank, at least one, times key and value width, times layers."""
    if heads is None:
        return 0
    rank = max(1, heads.kv_heads // settings.attention_tp)
    return rank * (heads.key + heads.value) * heads.layers * item


def _latent(rules: Rules, settings: Settings, latent: Latent, item: float) -> float:
    """MLA is not divided among ranks; a sparse indexer adds its key in fp8 with a scale a block."""
    width = latent.rank + latent.rope
    if latent.index_head is not None and rules.fused_mla_dim and settings.kv_dtype.startswith("fp8_e4m3"):
        width = latent.rank + latent.rank // _SCALE_BLOCK * 4 + latent.rope * _ROPE_BYTES
    total = width * latent.layers * item
    if latent.index_head is not None:
        total += (latent.index_head + latent.index_head // _SCALE_BLOCK * 4) * latent.layers
    return total


def _windows(rules: Rules, settings: Settings, model: Anatomy, draft: Draft | None, item: float) -> Cell:
    """Models with sliding windows have two pools (SWA). Until 0.5.14 neither counts the draft."""
    window = model.window
    assert window is not None  # noqa: S101 - the caller looked
    per_window = max(1, window.kv_heads // settings.attention_tp) * (window.key + window.value) * item
    full = _heads(model.full, settings, item)
    if model.full is None or not model.full.layers:
        return Cell(bytes=per_window * window.layers, target=per_window * window.layers)
    per_full = full / model.full.layers
    counted = draft_layers(rules, settings, model, draft) if rules.swa_draft else 0
    target = full + per_full * counted
    cap = _window_cap(rules, settings, model)
    if cap is None:
        total = target + settings.window_ratio * per_window * window.layers
        fixed = 0
    else:
        total, fixed = target, int(cap * per_window * window.layers)
    lost = 0.0 if counted else _uncounted(settings, draft, per_full)
    windows = draft.windows if draft is not None and not counted and settings.eagle else 0
    return Cell(
        bytes=total,
        fixed=fixed,
        target=full,
        draft_layers=counted,
        uncounted_draft=lost + (settings.window_ratio * windows if cap is None else 0.0),
        uncounted_fixed=float(cap * windows) if cap is not None else 0.0,
    )


def _window_cap(rules: Rules, settings: Settings, model: Anatomy) -> int | None:
    """Tokens of the window pool where it follows from the requests at once: it grows with D.

    Only without the radix cache and with a running limit (14:pool_configurator.py:339-386); None where the pool is
    a share of the full one.
    """
    running, chunk = settings.requested(), settings.rank_chunk
    if rules.draft_kv == "uncounted" or settings.radix or running is None or model.window_tokens is None:
        return None
    if chunk is None or (chunk <= 0 and not rules.unchunked_window_cap):
        return None
    page, tokens = settings.page_size, settings.draft_tokens or 1
    each = model.window_tokens + settings.window_eviction * tokens + page + _decoded_at_once(settings)
    total = each * max(1, running) + (2 if settings.overlap else 1) * chunk + page
    return -(-total // page) * page


def _decoded_at_once(settings: Settings) -> int:
    """Tokens that a request has allocated for its next step.

    Source: 17:mem_cache/allocation_sizing.py:9, utils/common.py:3881. With the overlap schedule for two of them.
    """
    page, topk = settings.page_size, settings.topk
    if settings.algorithm is None:
        return page
    if page == 1:
        most = max(settings.steps * topk, settings.draft_tokens)
    elif settings.overlap:
        steps = settings.steps if topk == 1 else -(-(page - 1 + settings.steps) // page) * page
        most = max(steps * topk, settings.draft_tokens)
    else:
        steps = settings.steps if topk == 1 else settings.steps + page
        most = max(-(-steps // page) * page * topk, -(-settings.draft_tokens // page) * page)
    return 2 * most if settings.overlap else most


def _uncounted(settings: Settings, draft: Draft | None, per_layer: float) -> float:
    """The draft's pool has as many tokens as the target's, whoever pays for it."""
    if not settings.eagle:
        return 0
    if draft is None:
        return per_layer
    return draft.cell if draft.cell is not None else per_layer * (draft.nextn or 1)
