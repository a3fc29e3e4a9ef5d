"""The matrices of a model as one card of its group has them: what a pass reads, and what it multiplies by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftmark.engines.cards import Precision
from draftmark.engines.model_config import AttentionLayers, LinearLayers, ModelShape
from draftmark.engines.model_config.scheme import Scheme
from draftmark.engines.model_config.tensors import Part, Tensor
from draftmark.engines.model_config.weights import ITEMSIZES
from draftmark.engines.roofline.served import Served
from draftmark.errors import BadInputError

# Parts of the bill under the names that a reader sees.
_NAMES: dict[Part, str] = {
    "attention": "attention projections",
    "linear_attention": "linear-attention projections",
    "mlp": "dense MLPs",
    "experts": "dense MLPs",  # what a token of every kind meets: the latent projections around the routed ones
    "router": "router and norms",
    "norms": "router and norms",
    "lm_head": "head",
    "mtp": "projections",
    "draft": "projections",
}
EXPERTS = "experts"
_DEFAULT_STATE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """Matrices of one kind, on one card.

    Attributes:
        bytes: Of all of them; of all experts where they are `routed`.
        parameters: Likewise.
    """

    name: str
    bytes: float
    parameters: float
    precision: Precision
    routed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What one pass goes through, on one card.

    Attributes:
        experts: Routed experts of a layer, 0 without; `met`: those that a token meets.
        row_bytes: Of one token's row of the embedding.
        kv_bytes: Of one number in the KV cache; `state_bytes`: of a recurrent state; `conv_bytes`: beside it.
        ranks: Cards that share the heads.
    """

    gemms: tuple[Gemm, ...]
    attention: tuple[AttentionLayers, ...]
    linear: LinearLayers | None
    experts: int
    met: int
    row_bytes: float
    kv_bytes: float
    state_bytes: int
    conv_bytes: int
    ranks: int


def target_stack(served: Served) -> Stack:
    """Of the model itself.

    Raises:
        BadInputError: The bytes of its weights cannot be told.
    """
    return _whole(served.shape, served, served.state_bytes)


def draft_stack(served: Served) -> Stack | None:
    """Of one draft pass; None where nothing that is known computes on the GPU.

    Raises:
        BadInputError: As above, of the draft.
    """
    if served.draft == "model" and served.draft_shape is not None:
        return _whole(served.draft_shape, served, None)
    if served.draft != "own-layers" or not served.shape.mtp_layers:
        return None
    shape = served.shape
    own = _gemms((each for each in shape.tensors if each.part == "mtp"), shape, served)
    # A pass goes through one of them; each attends in full, whatever the layers before it do.
    part = 1 / shape.mtp_layers
    gemms = tuple(_scaled(each, part) for each in own)
    full = next(iter(shape.of_kind("full", "mla")), None)
    return _stack(shape, served, gemms + _head(shape, served), (_one(full),) if full else (), None)


def _whole(shape: ModelShape, served: Served, state_bytes: int | None) -> Stack:
    parts = ("embedding", "lm_head", "vision", "mtp", "mtp_copies")
    gemms = _gemms((each for each in shape.tensors if each.part not in parts), shape, served)
    return _stack(shape, served, gemms + _head(shape, served), shape.attention, state_bytes)


def _stack(
    shape: ModelShape,
    served: Served,
    gemms: tuple[Gemm, ...],
    attention: tuple[AttentionLayers, ...],
    state_bytes: int | None,
) -> Stack:
    item = _itemsize(shape, served)
    named = ITEMSIZES.get(shape.linear.state_dtype or "") if shape.linear else None
    return Stack(
        gemms=gemms,
        attention=attention,
        linear=shape.linear if any(each.name.startswith("linear") for each in gemms) else None,
        experts=shape.experts,
        met=min(shape.experts, max(1, shape.experts_per_token)) if shape.experts else 0,
        row_bytes=shape.hidden * item / served.tensor_parallel,
        kv_bytes=served.kv_bytes or item,
        state_bytes=state_bytes or named or _DEFAULT_STATE_BYTES,
        conv_bytes=item,
        ranks=served.tensor_parallel,
    )


def _head(shape: ModelShape, served: Served) -> tuple[Gemm, ...]:
    """The output projection: a matrix of its own, or the embedding once more."""
    wanted: Part = "embedding" if shape.tied else "lm_head"
    found = [each for each in shape.tensors if each.part == wanted]
    return tuple(
        Gemm(name="head", bytes=each.bytes, parameters=each.parameters, precision=each.precision)
        for each in _gemms(found, shape, served)
    )


def _gemms(tensors: Iterable[Tensor], shape: ModelShape, served: Served) -> tuple[Gemm, ...]:
    """Added up by what they are for and what computes them."""
    if shape.quantization.unknown:
        raise BadInputError(f"the bytes of the weights cannot be told: {shape.quantization.unknown}")
    item, ranks = _itemsize(shape, served), served.tensor_parallel
    found: dict[tuple[str, Precision, bool], list[float]] = {}
    for each in tensors:
        scheme = shape.quantization.scheme(each)
        routed = ".experts.*" in each.name
        one = (
            scheme.bytes(each.rows, each.columns) if scheme else each.rows * each.columns * (each.itemsize or item)
        )
        pieces = min(ranks, each.pieces or ranks)
        name = EXPERTS if routed else _NAMES.get(each.part, "projections")
        sums = found.setdefault((name, _precision(scheme), routed), [0.0, 0.0])
        sums[0] += one * each.count / pieces
        sums[1] += each.parameters / pieces
    return tuple(
        Gemm(name=name, bytes=sums[0], parameters=sums[1], precision=precision, routed=routed)
        for (name, precision, routed), sums in found.items()
    )


def _precision(scheme: Scheme | None) -> Precision:
    """What may compute it at best. Packed integers are widened first, but for 8 bits a channel, made for int8."""
    name = scheme.name if scheme else ""
    if name.startswith(("fp8", "mxfp8")):
        return "fp8"
    if name in ("nvfp4", "mxfp4"):
        return "fp4"
    return "int8" if name == "int8 channel" else "half"


def _itemsize(shape: ModelShape, served: Served) -> int:
    name = served.dtype or shape.dtype
    size = ITEMSIZES.get(name)
    if size is None:
        raise BadInputError(f"the type {name[:40]} of the weights is not known")
    return size


def _scaled(gemm: Gemm, part: float) -> Gemm:
    return Gemm(
        name=gemm.name,
        bytes=gemm.bytes * part,
        parameters=gemm.parameters * part,
        precision=gemm.precision,
        routed=gemm.routed,
    )


def _one(layers: AttentionLayers) -> AttentionLayers:
    """A single layer like these."""
    return AttentionLayers(
        kind=layers.kind,
        count=1,
        heads=layers.heads,
        kv_heads=layers.kv_heads,
        head_dim=layers.head_dim,
        v_head_dim=layers.v_head_dim,
        kv_lora_rank=layers.kv_lora_rank,
        rope_head_dim=layers.rope_head_dim,
        index_head_dim=layers.index_head_dim,
        index_layers=1 if layers.index_layers else 0,
    )
