"""Whether a boot log is of the model asked about: another one's figures would look as sure as its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from draftmark.engines.sglang.memory.anatomy import ITEM_BYTES, Anatomy
from draftmark.engines.sglang.memory.cards import GIB
from draftmark.engines.sglang.memory.loading import is_of, target_line
from draftmark.engines.sglang.memory.settings import Settings

if TYPE_CHECKING:
    from draftmark.engines.sglang.log.nouns import BootLog

_OFF = 0.1
"""Share by which computed weights may be off, besides their own uncertainty: far above what was ever seen."""
_OFF_ELSEWHERE = 0.6
_LEAST = 0.3 * GIB  # what loading leaves behind besides weights
_ROUNDED = 0.011  # GiB: two sizes, printed to two digits
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
    log: BootLog, settings: Settings, values: Mapping[str, object], model: Anatomy, classes: Sequence[str]
) -> str | None:
    """Why the log must be of another model, in words; None where it may well be of this one.

    Args:
        log: Of the start.
        settings: With which it was started.
        values: Its arguments by name.
        classes: Architectures by which its files name it.
        model: That is asked about, under these settings; its weights have 0 bytes if they are not known.
    """
    weights, architecture = model.weights, model.architecture
    loaded = target_line(log)
    if loaded is None:  # that line was lost
        return _other_pool(log, settings, model)
    if not any(is_of(loaded.type, each) for each in classes):
        return (
            f"the log is of another model: it loaded {loaded.mem_gib:.2f} GiB of weights ({loaded.type}), and the "
            f"config is of a {architecture}"
        )
    if not weights.bytes:
        return None
    logged = loaded.mem_gib * GIB
    expected = weights.bytes / max(1, settings.pp)
    off = _OFF + 3 * weights.spread
    if settings.pp > 1 or settings.dp_attention or any(values.get(name) not in _USUAL for name in _ELSEWHERE):
        off = _OFF_ELSEWHERE
    least = expected * (1 - off) if settings.quantization is None else expected * _QUANTIZED
    if least - _LEAST <= logged <= expected * (1 + off) + _LEAST:
        return None
    meanwhile = ", or something else took memory meanwhile" if logged > expected else ""
    return (
        f"the log is of another model{meanwhile}: it loaded {loaded.mem_gib:.2f} GiB of weights ({loaded.type}), "
        f"and {architecture} has {expected / GIB:.2f} GiB by its config"
    )


_USUAL = (None, 0, 1, "0", "1", False, "")


def _other_pool(log: BootLog, settings: Settings, model: Anatomy) -> str | None:
    """Why the log's KV pool is not one of this model: what a token takes in it is not what its layers need."""
    pool = next((line for line in log.kv if line.of == "target" and line.label is None), None)
    heads = model.full
    if pool is None or heads is None or model.latent or model.window or log.swa or settings.pp > 1:
        return None
    item = ITEM_BYTES.get((pool.dtype or "").removeprefix("torch.").replace("float8_e4m3fn", "fp8_e4m3"))
    if item is None:
        return None
    rank = max(1, heads.kv_heads // settings.attention_tp) * (heads.key + heads.value) * heads.layers * item
    expected = rank * (pool.tokens + settings.page_size) / GIB
    if abs(expected - pool.kv_gib) <= 0.01 * expected + _ROUNDED:
        return None
    return (
        f"the log is of another model: its {pool.tokens:,} tokens of KV take {pool.kv_gib:.2f} GiB, and those of "
        f"{model.architecture} would take {expected:.2f} by its config"
    )
