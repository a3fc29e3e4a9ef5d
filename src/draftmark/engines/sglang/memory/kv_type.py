"""Which type `--kv-cache-dtype auto` is: by the checkpoint, the card, or what a log says became of it. Pure.

Source: 10:model_executor/model_runner.py:1905, 17:mem_cache/kv_cache_dtype.py; in layers/quantization
modelopt_quant.py (10:448-464; 17:436-462, 690, 1300-1324) and 20:fp8.py:349; 10:server_args.py:1431,
17:arg_groups/overrides.py:1539, 20:…:605.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftmark.engines.cards import card_of, majors_of
from draftmark.engines.model_config.shape import ModelShape
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.model import Gpu

if TYPE_CHECKING:
    from draftmark.engines.sglang.log.nouns import BootLog

FP8 = "fp8_e4m3"
_LOGGED = {"torch.float8_e4m3fn": FP8, "torch.float8_e4m3fnuz": FP8, "torch.float8_e5m2": "fp8_e5m2"}
_LOGGED_16 = ("torch.bfloat16", "torch.float16")
_BLACKWELL = 10
_LARGEST_HOPPER_MIB = 150_000


@dataclass(frozen=True, slots=True)
class KvType:
    """What `auto` is: a name as the flag takes it, the other one that it may be, and what was assumed."""

    name: str = "auto"
    otherwise: str | None = None
    assumption: str | None = None


def of_log(log: BootLog) -> KvType | None:
    """As the pool of a start was allocated; None where the log does not tell (up to 0.5.12)."""
    pool = next((line for line in log.kv if line.of == "target" and line.label is None), None)
    if pool is None or pool.dtype is None:
        return None
    return KvType(_LOGGED[pool.dtype]) if pool.dtype in _LOGGED else KvType() if pool.dtype in _LOGGED_16 else None


def automatic(rules: Rules, shape: ModelShape, quantization: Mapping[str, object], gpus: Sequence[Gpu]) -> KvType:
    """By the checkpoint, and for DeepSeek's sparse attention by the card.

    Args:
        rules: Of the version.
        shape: Of the model.
        quantization: `quantization_config`, or ModelOpt's own file.
        gpus: The cards.
    """
    if any(layers.index_head_dim is not None for layers in shape.attention):
        return _sparse(gpus)
    return _of_checkpoint(rules, shape, quantization)


def _of_checkpoint(rules: Rules, shape: ModelShape, config: Mapping[str, object]) -> KvType:
    modelopt = shape.quantization.method.startswith("modelopt")
    if not modelopt and not (shape.quantization.method == "fp8" and rules.fp8_kv_of_checkpoint):
        return KvType()
    nested = config.get("quantization")
    table = nested if isinstance(nested, Mapping) else config
    scheme, name = table.get("kv_cache_scheme"), table.get("kv_cache_quant_algo")
    if modelopt and isinstance(scheme, Mapping):
        eight = scheme.get("type") == "float" and scheme.get("num_bits") == 8
        return KvType(FP8, None, _told("kv_cache_scheme")) if eight else KvType()
    if isinstance(scheme, str) and modelopt:
        name = "FP8" if scheme.strip().upper() in ("FP8", "FLOAT8") else None
    if not isinstance(name, str) or name.upper() != "FP8":
        return KvType()
    if table is nested or rules.modelopt_flat_kv or not modelopt:
        return KvType(FP8, None, _told("kv_cache_quant_algo"))
    return KvType(FP8, "auto", f"{_told('kv_cache_quant_algo')}; by this version, perhaps not")


def _told(field: str) -> str:
    return f"KV cache in FP8, as the checkpoint has it ({field})"


def _sparse(gpus: Sequence[Gpu]) -> KvType:
    """fp8 from Blackwell on, else 16 bits; both where the card's generation is not known."""
    card = min(gpus, key=lambda each: each.total_mib, default=None)
    if card is None:
        return KvType(
            "bfloat16", FP8, "sparse attention keeps FP8 on a Blackwell card, else bfloat16: which is not known"
        )
    named = card_of(card.name)
    known = {named.major} if named is not None and named.major is not None else majors_of(card.total_mib)
    if len(known) == 1:
        newer = next(iter(known)) >= _BLACKWELL
        return KvType(FP8 if newer else "bfloat16", None, "sparse attention: KV cache in FP8" if newer else None)
    newer = card.total_mib > _LARGEST_HOPPER_MIB
    name, other = (FP8, "bfloat16") if newer else ("bfloat16", FP8)
    return KvType(
        name,
        other,
        f"sparse attention keeps FP8 on a Blackwell card, else bfloat16: by its size, {name} is assumed",
    )
