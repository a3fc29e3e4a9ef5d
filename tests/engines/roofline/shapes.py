"""Published models, and the founding case's."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

from draftmark.engines.model_config import ModelShape, read_shape

DATA = Path(__file__).parents[2] / "data"
NAMES = sorted(path.stem for path in (DATA / "model_config").glob("*.json"))


def config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "model_config" / f"{name}.json").read_text(encoding="utf-8"))[
        "config"
    ]
    return found


@cache
def published(name: str) -> ModelShape:
    return read_shape(config(name))


@cache
def captured() -> ModelShape:
    """The model of the measurements on an H200."""
    return read_shape(json.loads((DATA / "sglang" / "h200" / "model" / "config.json").read_text(encoding="utf-8")))


def founding_config() -> dict[str, Any]:
    """Built as Qwen3.5-122B-A10B is: 256 experts of width 1024, of which four cards hold 256 each."""
    found = copy.deepcopy(config("qwen3.5-35b-a3b"))
    found["text_config"].update(
        hidden_size=3072,
        num_hidden_layers=48,
        layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 12,
        num_attention_heads=32,
        linear_num_value_heads=64,
        moe_intermediate_size=1024,
        shared_expert_intermediate_size=1024,
    )
    return found
