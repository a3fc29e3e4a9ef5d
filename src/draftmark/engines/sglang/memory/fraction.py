"""The default of `--mem-fraction-static`. Pure.

Source: 10:server_args.py:1250-1330, 14:server_args.py:3122-3321 and 6997-7033, 23:arg_groups/memory_hook.py:47-343.
A fraction of the memory that is free before loading, though it is derived from the card's whole memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmark.engines.sglang.memory.anatomy import Anatomy
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.engines.sglang.memory.settings import Settings

_FLOOR_ABOVE = 60 * 1024  # MiB: larger cards keep at least _FLOOR back
_FLOOR = 10 * 1024
_MLA_PREFILL_GRAPHS = 1536
_DEEPEP_PREFILL = 1024  # with graphs of one kind only (17:server_args.py:4914)
_VIT = 24 * 1024**2  # ViT-L/14: layers times hidden size squared


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What SGLang sets by the size of the card.

    Attributes:
        fraction: Of the memory that is free before loading.
        spread: By which it may be off either way: whether prefill graphs are captured is decided elsewhere.
        graphs_mib: What it keeps back for CUDA graphs.
        max_bs: Largest batch of the decode graphs.
    """

    fraction: float
    spread: float
    graphs_mib: float
    max_bs: int
    chunked_prefill: int


def defaults(rules: Rules, settings: Settings, model: Anatomy, total_mib: int) -> Defaults:
    """The defaults for a card of `total_mib`."""
    chunk, max_bs = by_card(rules, settings, total_mib)
    graphs = _graphs_mib(rules, settings, model, chunk, max_bs)
    reserve = 512 + 1.5 * max(chunk if chunk > 0 else settings.prefill_tokens or 16384, 2048)
    reserve += settings.tp * settings.pp / 8 * 1024 + graphs
    if total_mib > _FLOOR_ABOVE:
        reserve = max(reserve, _FLOOR)
    reserve += _speculation(rules, settings)
    if settings.deepep and settings.graphs and rules.deepep_reserve:
        reserve += rules.deepep_reserve
    fraction = round((total_mib - reserve) / total_mib, 3)
    uncertain = _MLA_PREFILL_GRAPHS if model.latent is not None else 8.0 * _prefill_sizes(settings, chunk)
    uncertain += _DEEPEP_PREFILL if settings.deepep and rules.deepep_reserve else 0
    if model.multimodal and model.vision is not None and not settings.language_only:
        fraction *= _vision_factor(model.vision)
    return Defaults(
        fraction=fraction, spread=uncertain / total_mib, graphs_mib=graphs, max_bs=max_bs, chunked_prefill=chunk
    )


def prefill_sizes(largest: int) -> tuple[int, ...]:
    """Which sizes of prefill are captured: 4..32 by 4, then ever wider, up to `largest` tokens."""
    steps = (
        (4, 33, 4),
        (48, 257, 16),
        (288, 513, 32),
        (576, 1025, 64),
        (1280, 4097, 256),
        (4608, largest + 1, 512),
    )
    return tuple(size for first, end, step in steps for size in range(first, end, step) if size <= largest)


def prefill_graphs(largest: int) -> int:
    """How many those are."""
    return len(prefill_sizes(largest))


def by_card(rules: Rules, settings: Settings, total_mib: int) -> tuple[int, int]:
    """Tokens of a chunk of prefill, and the largest batch of decode graphs: as given, else by the card."""
    small, wide = rules.small_card, settings.tp >= 4
    if total_mib < 20 * 1024:
        chunk, max_bs = 2048, 8
    elif total_mib < 35 * 1024:
        chunk, max_bs = small["chunked_prefill"], small["max_bs_tp4" if wide else "max_bs"]
    elif total_mib < 60 * 1024:
        chunk, max_bs = 4096, 160 if wide else 32
    elif total_mib < 160 * 1024:
        chunk, max_bs = 8192, 512 if wide else 256
    else:
        chunk, max_bs = 16384, 512
    if rules.graphs_follow_running and settings.running is not None:
        max_bs = min(max_bs, settings.running)
    return settings.chunked_prefill or chunk, settings.graph_max_bs or max_bs


def _graphs_mib(rules: Rules, settings: Settings, model: Anatomy, chunk: int, max_bs: int) -> float:
    mib = 2.0 * max_bs if settings.graphs or not rules.graphs_if_captured else 0.0
    if settings.dp_attention:
        mib += 3.0 * max_bs * settings.dp + (1.5 * max_bs * settings.dp if max_bs > 300 else 0)
    if settings.prefill_graphs:
        mib += _MLA_PREFILL_GRAPHS if model.latent is not None else 8 * _prefill_sizes(settings, chunk)
    return mib


def _prefill_sizes(settings: Settings, chunk: int) -> int:
    """How many sizes of prefill are captured (10:server_args.py:1252-1270)."""
    if settings.prefill_graph_sizes is not None:
        return settings.prefill_graph_sizes
    largest = settings.prefill_graph_tokens
    if largest is None:
        largest = min(chunk, settings.max_total_tokens or chunk)
    return prefill_graphs(max(largest, 0))


def _speculation(rules: Rules, settings: Settings) -> int:
    """Up to 0.5.12 a flat reserve for a draft that is not counted elsewhere; n-grams need none."""
    if settings.algorithm in (None, "NGRAM") or not rules.speculation_reserve:
        return 0
    return rules.speculation_reserve.get(str(settings.algorithm), rules.speculation_reserve["other"])


def _vision_factor(vision: tuple[int, int]) -> float:
    layers, hidden = vision
    growth = 1.0 - 0.1 * (layers * hidden**2 / _VIT - 1)
    return 0.95 * max(0.8, min(1.05, growth))
