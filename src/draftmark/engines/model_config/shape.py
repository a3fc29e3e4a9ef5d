"""A model as an engine's memory sees it: layers by kind, widths, weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from draftmark.engines.model_config.quantization import Quantization
from draftmark.engines.model_config.tensors import Tensor
from draftmark.engines.model_config.weights import Weights, bill

AttentionKind = Literal["full", "sliding", "chunked", "mla"]
LinearKind = Literal["gdn", "mamba2", "kda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayers:
    """Layers with a KV cache, of one kind.

    Attributes:
        count: How many; those of multi-token prediction are not among them.
        kv_heads: Of the whole model, before any sharding.
        v_head_dim: Width of a value; `head_dim` but in MLA.
        window: Tokens that a sliding or chunked layer looks back at; None elsewhere.
        kv_lora_rank: MLA: width of the latent in the cache, beside `rope_head_dim` for position. None elsewhere.
        index_head_dim: DeepSeek sparse attention: width of the indexer's keys. None elsewhere.
        index_layers: Of these layers, those with an indexer of their own.
    """

    kind: AttentionKind
    count: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None
    index_head_dim: int | None = None
    index_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayers:
    """Layers with a state of fixed size: gated delta net, Mamba-2 or Kimi delta attention. Before any sharding.

    A state is `heads` × `head_dim` × `state_dim` elements, and beside it `conv_channels` × (`conv_kernel` - 1).

    Attributes:
        head_dim: Width of a value head.
        state_dim: Width of a key head (Mamba-2: of the state).
        groups: Heads of keys (Mamba-2: groups of B and C).
        state_dtype: Type of the state that config.json names; None when it does not.
    """

    kind: LinearKind
    count: int
    heads: int
    head_dim: int
    state_dim: int
    groups: int
    conv_channels: int
    conv_kernel: int
    state_dtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a config.json says of a model.

    Attributes:
        architecture: The class in the file; `family`: our name for how it is built.
        layers: Hidden layers, without those of multi-token prediction (`mtp_layers`).
        attention: By kind; a layer of Falcon-H1 counts here and in `linear`.
        experts: Routed experts of a layer, `experts_per_token` of which a token meets; 0 without.
        dtype: Of what is not quantized.
        draft: `eagle` or `eagle3` for a draft that is no model of its own, else "".
        assumptions: In words, what did not come from the file.
        not_counted: In words, weights that are there and not in the bill.
    """

    architecture: str
    family: str
    layers: int
    hidden: int
    vocab: int
    tied: bool
    attention: tuple[AttentionLayers, ...]
    linear: LinearLayers | None
    mtp_layers: int
    experts: int
    experts_per_token: int
    max_position: int | None
    dtype: str
    quantization: Quantization
    draft: str = ""
    assumptions: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()
    tensors: tuple[Tensor, ...] = field(repr=False, default=())

    @property
    def attention_layers(self) -> int:
        """Layers that have a KV cache, whatever their kind."""
        return sum(each.count for each in self.attention)

    def of_kind(self, *kinds: AttentionKind) -> tuple[AttentionLayers, ...]:
        """The attention layers of these kinds."""
        return tuple(each for each in self.attention if each.kind in kinds)

    def weights(self, *, tensor_parallel: int = 1, dtype: str | None = None) -> Weights:
        """Parameters and bytes by part, of one rank of a tensor-parallel group.

        Args:
            tensor_parallel: Ranks of the group.
            dtype: What an engine loads unquantized weights as, where that is not how they are stored: 16 bits of a
                float32 checkpoint, as a rule.

        Raises:
            BadInputError: The quantization's sizes are not known.
        """
        return bill(self.tensors, self.quantization, dtype or self.dtype, tensor_parallel)
