"""Why a model's own files keep a start from going on: what they lack, and what they allow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from draftmark.engines.model_config.shape import ModelShape
from draftmark.engines.sglang.memory.refused import Refused
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.engines.sglang.memory.state import strategy_of

# 10:utils/hf_transformers_utils.py:680, 17:utils/hf_transformers/common.py:454, in this order.
_LENGTHS = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
_LONGER = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
# 17:speculative/dspark_components/dspark_config.py:143: a checkpoint with one of them bundles its draft.
_BUNDLED = ("dspark_block_size", "dspark_markov_rank", "dspark_noise_token_id", "dspark_target_layer_ids")
_STATE_CHUNK = 64  # 10:layers/attention/fla/chunk_delta_h.py CHUNK_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What a start finds of its model.

    Attributes:
        config: Of config.json.
        text: Its part of the language model.
        has: Whether a file beside config.json exists, by its name.
    """

    rules: Rules
    settings: Settings
    shape: ModelShape
    config: Mapping[str, Any]
    text: Mapping[str, Any]
    environment: Mapping[str, str]
    has: Callable[[str], bool]


def refused_by_files(files: Files) -> Refused | None:
    """The first reason; None where there is none."""
    return next((found for check in _CHECKS if (found := check(files)) is not None), None)


def context_of(text: Mapping[str, Any]) -> int | None:
    """The context length that SGLang derives from a language model's config; None where its class has the number.

    Source: 10:utils/hf_transformers_utils.py:689, 17:utils/hf_transformers/common.py:463.
    """
    scaling = text.get("rope_scaling")
    factor = scaling.get("factor", 1) if isinstance(scaling, Mapping) else 1
    if isinstance(scaling, Mapping) and (
        "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3"
    ):
        factor = 1
    length = next((value for name in _LENGTHS if (value := text.get(name)) is not None), None)
    if not isinstance(length, int | float) or not isinstance(factor, int | float):
        return None
    return int(factor * length) if 0 < factor * length < 1e12 else None


def _context(files: Files) -> Refused | None:
    """10:configs/model_config.py:391-403, 17:…:769-792, 23:…:1303-1315."""
    asked, own = files.settings.context, context_of(files.text)
    if asked is None or own is None or asked <= own or _on(files.environment, _LONGER):
        return None
    if _on(files.environment, "SGLANG_IS_IN_CI"):
        return None
    return Refused(
        f"--context-length {asked} is longer than the model's {own}: SGLang ends with a ValueError",
        f"--context-length {own} at most, or the variable {_LONGER}=1",
    )


def _dspark(files: Files) -> Refused | None:
    """17:arg_groups/speculative_hook.py:310-323, 23:…:614-753, which also looks for a folder."""
    settings = files.settings
    if settings.algorithm != "DSPARK" or settings.draft_path is not None:
        return None
    if any(files.config.get(name) is not None or files.text.get(name) is not None for name in _BUNDLED):
        return None
    if files.rules.bundled_draft_folder and files.has("dspark/config.json"):
        return None
    return Refused(
        "DSpark dense speculative decoding requires setting --speculative-draft-model-path",
        "--speculative-draft-model-path with a DSpark draft",
    )


def _pages(files: Files) -> Refused | None:
    """Points at which state is kept fall on pages, and so do the chunks that it is computed in.

    Source: 10:server_args.py:2181-2188, 14:…:4375 and 6619, 17:…:5609 and 8668, 23:arg_groups/mamba_hook.py:135.
    """
    settings, shape = files.settings, files.shape
    if shape.linear is None or not settings.radix or shape.architecture not in files.rules.strategy_checked:
        return None
    early = files.rules.state == "upfront"
    strategy = settings.strategy if early else strategy_of(files.rules, settings, shape.architecture)
    if not strategy.startswith("extra_buffer"):
        return None
    page = settings.page_size
    chunk = _STATE_CHUNK if early else files.config.get("mamba_chunk_size", _STATE_CHUNK)
    if settings.track_interval % page:
        return Refused(
            f"extra_buffer wants --mamba-track-interval {settings.track_interval} to be a multiple of --page-size "
            f"{page}: SGLang ends with an AssertionError",
            "a --page-size that divides it",
        )
    if isinstance(chunk, int) and chunk > 0 and max(chunk, page) % min(chunk, page):
        return Refused(
            f"extra_buffer wants --page-size {page} to divide chunks of {chunk} tokens, or these it: SGLang ends "
            "with an AssertionError",
            f"a --page-size that divides {chunk}",
        )
    return None


def _on(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").strip().lower() in ("1", "true", "yes", "y")


_CHECKS: tuple[Callable[[Files], Refused | None], ...] = (_context, _dspark, _pages)
