"""What weights take of a GPU's memory once PyTorch's allocator has placed them. Pure.

Tensors of 10 MiB and more get blocks of their own, multiples of 2 MiB; smaller ones share blocks of 20 MiB, into
the rest of which the draft's small tensors go, too (c10/cuda/CUDACachingAllocator: kMinLargeAlloc, kLargeBuffer,
kRoundLarge).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from draftmark.engines.model_config.shape import ModelShape
from draftmark.engines.model_config.tensors import Part, Tensor
from draftmark.engines.model_config.weights import ITEMSIZES
from draftmark.engines.sglang.memory.anatomy import Tensors

_OF_ATTENTION: tuple[Part, ...] = ("attention", "linear_attention", "embedding")
_APART = 0.1
_LARGE = 10 << 20
_ROUND = 2 << 20
SHARED_BLOCK = 20 << 20

# Projections that SGLang keeps as one tensor: what stands in for each of them.
_FUSED = (
    (re.compile(r"\.self_attn\.[qkv]_proj$"), ".self_attn.qkv_proj"),
    (re.compile(r"\.(?:gate|up)_proj$"), ".gate_up_proj"),
)


def placed_bytes(sizes: Iterable[int], *, first: bool = False) -> tuple[int, int]:
    """Bytes that tensors of these sizes take, as likely as not, and by how much that may be off either way.

    The first that are placed begin a block with their small ones.
    """
    large = small = 0
    for size in sizes:
        if size >= _LARGE:
            large += -(-size // _ROUND) * _ROUND
        else:
            small += size
    blocks = -(-small // SHARED_BLOCK) if first else round(small / SHARED_BLOCK)
    return large + blocks * SHARED_BLOCK, SHARED_BLOCK if small else _ROUND


def target_tensors(
    shape: ModelShape, tp: int, rotary: int, *, attention_tp: int | None = None, dtype: str = "auto"
) -> Tensors:
    """Weights of the target on one rank, with its table of positions, without multi-token prediction.

    With data-parallel attention (`attention_tp` below `tp`) attention and embedding are divided among fewer ranks
    than the rest; what else is kept whole then was read in no source, so that the bounds are wide.

    Raises:
        BadInputError: The quantization's sizes are not known.
    """
    apart = attention_tp is not None and attention_tp != tp
    if shape.quantization.method:
        weights = shape.weights(tensor_parallel=tp, dtype=loaded_as(shape, dtype))
        amount = weights.target_bytes + rotary
        if apart:
            fewer = shape.weights(tensor_parallel=attention_tp or 1, dtype=loaded_as(shape, dtype))
            amount += fewer.of(*_OF_ATTENTION).bytes - weights.of(*_OF_ATTENTION).bytes
        return Tensors(bytes=amount, spread=_APART if apart else 0.04)
    item = ITEMSIZES.get(loaded_as(shape, dtype), 2)
    own = [each for each in shape.tensors if each.part not in ("mtp", "mtp_copies")]
    with_attention = [each for each in own if each.part in _OF_ATTENTION]
    others = [each for each in own if each.part not in _OF_ATTENTION]
    sizes = (
        (*fused_sizes(with_attention, item, attention_tp or 1), *fused_sizes(others, item, tp))
        if apart
        else fused_sizes(own, item, tp)
    )
    placed, _ = placed_bytes((*sizes, rotary), first=True)
    return Tensors(bytes=placed, spread=_APART if apart else 0.03 if shape.not_counted else 0.002)


def loaded_as(shape: ModelShape, dtype: str) -> str:
    """The type that weights have once they are loaded: float32 ones become 16 bits, unless float32 is asked for.

    Source: 14:configs/model_config.py _get_and_verify_dtype.
    """
    if dtype in ("float", "float32"):
        return "float32"
    if dtype in ("half", "float16", "bfloat16") or shape.dtype == "float32":
        return "bfloat16"
    return shape.dtype


def quantized_by_flag(unquantized: Tensors) -> Tensors:
    """Weights that are quantized while they are loaded: from 4 bits to nearly all of them, as likely as not 8."""
    return Tensors(bytes=int(unquantized.bytes * 0.6), spread=0.6)


def predicting_tensors(shape: ModelShape, tp: int) -> Tensors | None:
    """The target's own layers of multi-token prediction as SGLang loads them as a draft; None when it has none.

    Embedding and output are loaded a second time, and stay until the pools have been sized (issue 36452).
    """
    if not shape.mtp_layers:
        return None
    if shape.quantization.method:
        total = shape.weights(tensor_parallel=tp).mtp_draft_bytes
        return Tensors(bytes=total, spread=0.3) if total else None
    own = [each for each in shape.tensors if each.part in ("mtp", "embedding", "lm_head")]
    sizes = fused_sizes(own, ITEMSIZES.get(shape.dtype, 2), tp)
    if shape.tied:
        sizes += tuple(fused_sizes((e for e in own if e.part == "embedding"), ITEMSIZES.get(shape.dtype, 2), tp))
    return Tensors(bytes=sum(sizes), sizes=sizes, spread=0.01)


def whole_tensors(shape: ModelShape, tp: int) -> Tensors:
    """A draft that is a model of its own.

    Raises:
        BadInputError: The quantization's sizes are not known.
    """
    return Tensors(bytes=shape.weights(tensor_parallel=tp).bytes, spread=0.1)


def fused_sizes(tensors: Iterable[Tensor], item: int, tp: int) -> tuple[int, ...]:
    """Sizes of tensors on one rank, projections that run as one put together, experts of a layer stacked."""
    sizes: dict[str, int] = {}
    for index, each in enumerate(tensors):
        ranks = tp if each.pieces == 0 else min(tp, each.pieces)
        amount = each.parameters * (each.itemsize or item) // max(1, ranks)
        name = _fused_name(each.name)
        if each.count > 1 and "experts" not in name:  # alike, but apart
            sizes.update({f"{name}#{index}.{copy}": amount // each.count for copy in range(each.count)})
        else:
            sizes[name] = sizes.get(name, 0) + amount
    return tuple(sizes.values())


def _fused_name(name: str) -> str:
    for pattern, fused in _FUSED:
        found = pattern.search(name)
        if found is not None:
            return name[: found.start()] + fused
    return name
