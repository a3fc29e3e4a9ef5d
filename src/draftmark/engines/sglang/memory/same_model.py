"""Whether a boot log is of the model asked about: another one's figures would look as sure as its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from draftmark.engines.sglang.memory.anatomy import Tensors
from draftmark.engines.sglang.memory.cards import GIB
from draftmark.engines.sglang.memory.settings import Settings

if TYPE_CHECKING:
    from draftmark.engines.sglang.log.nouns import BootLog

_OFF = 0.1
"""Share by which computed weights may be off, besides their own uncertainty: far above what was ever seen."""
_OFF_ELSEWHERE = 0.6
_LEAST = 0.3 * GIB  # what loading leaves behind besides weights
_QUANTIZED = 0.2  # of the weights in the config's own type, what no quantization goes below

# Arguments with which a rank loads another part of the model, or loads it in another type.
_ELSEWHERE = (
    "cpu_offload_gb",
    "ep_size",
    "dwdp_size",
    "moe_dp_size",
    "attn_cp_size",
    "enable_eplb",
    "torchao_config",
)


def another_model(
    log: BootLog, settings: Settings, values: Mapping[str, object], weights: Tensors, architecture: str
) -> str | None:
    """Why the log must be of another model, in words; None where it may well be of this one.

    Args:
        log: Of the start.
        settings: With which it was started.
        values: Its arguments by name.
        weights: Of the model that is asked about, on one rank under these settings; 0 bytes if not known.
        architecture: By its config.
    """
    if not log.weights or not weights.bytes:
        return None
    loaded = log.weights[0]
    logged = loaded.mem_gib * GIB
    expected = weights.bytes / max(1, settings.pp)
    off = _OFF + 3 * weights.spread
    if settings.pp > 1 or settings.dp_attention or any(values.get(name) not in _USUAL for name in _ELSEWHERE):
        off = _OFF_ELSEWHERE
    least = expected * (1 - off) if settings.quantization is None else expected * _QUANTIZED
    if least - _LEAST <= logged <= expected * (1 + off) + _LEAST:
        return None
    return (
        f"the log is of another model: it loaded {loaded.mem_gib:.2f} GiB of weights ({loaded.type}), and "
        f"{architecture} has {expected / GIB:.2f} GiB by its config"
    )


_USUAL = (None, 0, 1, "0", "1", False, "")
