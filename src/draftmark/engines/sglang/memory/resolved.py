"""What SGLang sets where a command line says nothing: by the card, the model and the release. Pure.

Once, before any rule looks: a flag that is given with its own default must change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from draftmark.engines.model_config.shape import ModelShape
from draftmark.engines.sglang.memory.fraction import by_card
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.engines.sglang.memory.settings import Settings

_EVICTION = "SGLANG_SWA_EVICTION_INTERVAL"


def resolved(
    rules: Rules, settings: Settings, shape: ModelShape, total_mib: int | None, environment: Mapping[str, str]
) -> Settings:
    """The settings in force.

    Args:
        rules: Of the release.
        settings: As given.
        shape: Of the model.
        total_mib: Of the smallest card; None where nothing tells, and what goes by it stays open.
        environment: Of the service.
    """
    if total_mib is not None:
        chunk, max_bs = by_card(rules, settings, total_mib)
        settings = replace(settings, chunked_prefill=chunk, graph_max_bs=max_bs)
    interval = environment.get(_EVICTION, "")
    return replace(
        settings,
        radix=settings.radix and shape.architecture not in rules.radix_off,
        window_eviction=max(1, int(interval)) if interval.isdecimal() else settings.window_eviction,
    )
