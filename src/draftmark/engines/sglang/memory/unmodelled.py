"""Flags and models whose memory is not modelled here: said, never passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftmark.errors import BadInputError

SPREAD = 0.05
"""Share of the card's memory by which a budget may be off for each flag that is not modelled."""

_VALUES = {
    "disaggregation_mode": ("null", None),
    "cpu_offload_gb": ("0", 0, None),
    "pp_size": ("1", 1, None),
    "dcp_size": ("1", 1, None),
    "attn_cp_size": ("1", 1, None),
    "lora_paths": (None,),
    "torchao_config": ("", None),
    "moe_dense_tp_size": (None,),
    "attn_dp_size": ("1", 1, None),
    "ep_num_redundant_experts": ("0", 0, None),
    "speculative_draft_kv_cache_dtype": ("auto", None),
    "config": (None,),
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
    "enable_multi_layer_eagle",
    "enable_int8_mamba_checkpoint",
    "enable_linear_replayssm",
)
# Their KV is compressed or sparse in ways of its own (14:pool_configurator.py:420-560, 17:…:236-290).
_MODELS = ("DeepseekV4", "MiniMaxM3", "MiniMaxSparse", "Inkling")


def not_modelled(values: Mapping[str, object], environment: Mapping[str, str]) -> list[str]:
    """Assumptions, in words."""
    found = [
        f"--{name.replace('_', '-')} {values[name]} is not modelled"
        for name, usual in _VALUES.items()
        if values.get(name) not in usual and values.get(name) != []
    ]
    found += [f"--{name.replace('_', '-')} is not modelled" for name in _SWITCHES if values.get(name) is True]
    if values.get("load_format") in _LOADED_OTHERWISE:
        found.append(f"--load-format {values['load_format']} is not modelled")
    if environment.get("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING", "0").lower() in ("1", "true"):
        found.append("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING is not modelled: pools are sized after graph capture")
    return found


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
