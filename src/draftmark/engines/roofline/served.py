"""How a model is served, as far as the work of a round depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftmark.engines.cards import Card
from draftmark.engines.model_config import ModelShape

DraftKind = Literal["own-layers", "model", "none", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model on some cards.

    Attributes:
        card: Each of the group's.
        tensor_parallel: Cards that share every layer.
        expert_parallel: Of these, groups that hold different experts; within one, each expert is split.
        dtype: What unquantized weights are loaded as; None for the checkpoint's own.
        kv_bytes: Of one number in the KV cache; None for as wide as the weights.
        state_bytes: Of one number of a recurrent state; None for what config.json names, or four.
        draft: What drafts: the model's `own-layers` for multi-token prediction, a `model` of its own, as EAGLE's
            is, `none` that computes on the GPU (n-grams), `unknown` for one that is not modelled.
        draft_shape: Of a draft that is a model of its own.
    """

    shape: ModelShape
    card: Card
    tensor_parallel: int = 1
    expert_parallel: int = 1
    dtype: str | None = None
    kv_bytes: float | None = None
    state_bytes: int | None = None
    draft: DraftKind = "none"
    draft_shape: ModelShape | None = None
