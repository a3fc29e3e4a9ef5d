"""Flags and models whose memory is not modelled here: said, never passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftmark.errors import BadInputError

SPREAD = 0.05
"""Share of the card's memory by which the budget of a version that was not read may be off."""

_VALUES = {
    "disaggregation_mode": ("null", None),
    "cpu_offload_gb": ("0", 0, None),
    "pp_size": ("1", 1, None),
    "dcp_size": ("1", 1, None),
    "attn_cp_size": ("1", 1, None),
    "lora_paths": (None,),
    "torchao_config": ("", None),
    "moe_dense_tp_size": (None,),
    "ep_num_redundant_experts": ("0", 0, None),
    "speculative_draft_kv_cache_dtype": ("auto", None),
    "config": (None,),
    "device": ("cuda", "auto", None),
    "mamba_max_states_per_path": ("-1", -1, None),
}
_LOADED_OTHERWISE = ("bitsandbytes", "gguf")
_SWITCHES = (
    "enable_unified_memory",
    "enable_hisparse",
    "enable_memory_saver",
    "enable_lora",
    "enable_dsa_cache_layer_split",
    "prefill_only_disable_kv_cache",
    "enable_page_major_kv_layout",
    "enable_dp_lm_head",
    "enable_symm_mem",
    "enable_multi_layer_eagle",
    "enable_int8_mamba_checkpoint",
    "enable_linear_replayssm",
)
# Their KV is compressed or sparse in ways of its own (14:pool_configurator.py:420-560, 17:…:236-290).
_MODELS = ("DeepseekV4", "MiniMaxM3", "MiniMaxSparse", "Inkling")


# What they take is there before the pools: a start under the same flag, whose pools follow from it, tells it.
_TOLD_BY_A_START = frozenset({
    "cpu_offload_gb", "lora_paths", "enable_lora", "torchao_config", "moe_dense_tp_size",
    "ep_num_redundant_experts", "enable_memory_saver", "enable_dp_lm_head", "enable_symm_mem", "load_format",
})  # fmt: skip


def not_modelled(
    values: Mapping[str, object], environment: Mapping[str, str], start: Mapping[str, object] | None = None
) -> list[str]:
    """Why no figure can be given, in words: bounds for what is not known would be made up.

    Args:
        values: Arguments by name.
        environment: Of the service.
        start: Arguments of a start whose figures are known; what was in force then, too, is in its figures.
    """
    names = [name for name, usual in _VALUES.items() if values.get(name) not in usual and values.get(name)]
    names += [name for name in _SWITCHES if values.get(name) is True]
    if values.get("load_format") in _LOADED_OTHERWISE:
        names.append("load_format")
    if start is not None:
        names = [
            name for name in names if name not in _TOLD_BY_A_START or str(values[name]) != str(start.get(name))
        ]
    found = [f"{_shown(name, values[name])} is not modelled: no figure is given" for name in names]
    if environment.get("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING", "0").lower() in ("1", "true"):
        found.append("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING is not modelled: pools are sized after graph capture")
    return found


def _shown(name: str, value: object) -> str:
    return f"--{name.replace('_', '-')}" + ("" if value is True else f" {str(value)[:60]}")


def refuse_model(config: Mapping[str, Any]) -> None:
    """Models whose KV follows rules that are not here.

    Raises:
        BadInputError: Such a model.
    """
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    if name.startswith(_MODELS):
        raise BadInputError(
            f"the memory of {name[:80]} follows rules of its own, which are not known here",
            next_step="start it once, and read max_total_num_tokens in its log",
        )
