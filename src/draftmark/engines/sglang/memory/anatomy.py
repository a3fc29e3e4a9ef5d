"""What memory depends on in a model: sizes per token, per request, and of its weights."""

from __future__ import annotations

from dataclasses import dataclass, field

ITEM_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_e4m3fnuz": 1,
    "bf16": 2,
    "half": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """One kind of attention layer's cache: `kv_heads` times (`key` + `value`) numbers a token and layer."""

    layers: int
    kv_heads: int
    key: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: one vector a token and layer, the same on every rank.

    Attributes:
        index_head: Numbers of the sparse-attention indexer's key; None without an indexer.
    """

    layers: int
    rank: int
    rope: int
    index_head: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """State of all linear-attention layers of one request.

    Attributes:
        conv_channels: Channels that pass the convolution, of the whole model: `inner` plus what grows with groups.
        inner: Of them, those that belong to value heads.
        group_width: Channels that one group adds (keys and queries together).
        groups: Groups of heads that share keys.
        conv_columns: Kernel size less one.
        heads: State matrices, of the whole model, each `rows` times `columns`.
        dtype: Of the matrices, where the config names one.
        gate_per_key: The gate is a vector (KDA), not a number a head.
    """

    layers: int
    inner: int
    groups: int
    group_width: int
    conv_columns: int
    heads: int
    rows: int
    columns: int
    dtype: str | None = None
    gate_per_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """Weights on one rank.

    Attributes:
        bytes: All of them.
        sizes: Of the single tensors, where they are known one by one; empty else.
        spread: Share by which `bytes` may be off either way.
    """

    bytes: int
    sizes: tuple[int, ...] = ()
    spread: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The model that drafts.

    Attributes:
        weights: What it loads, tensors shared with the target by name but loaded again included; None when unknown.
        nextn: `num_nextn_predict_layers` of its config.
        layers: Its hidden layers.
        architecture: Of its config; the target's for a path-less draft.
        wrapped: Its text model is nested in the config.
        cell: Bytes a token of its own KV pool takes on one rank, but for `windows`; None when unknown.
        windows: The same of its layers with sliding windows, where those have a pool of their own.
    """

    weights: Tensors | None
    nextn: int | None
    layers: int
    architecture: str
    wrapped: bool = False
    cell: int | None = None
    windows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """A target model.

    Attributes:
        full: Layers with a full-length cache; None when there are none.
        window: Layers that keep a sliding window only.
        window_tokens: How long that is.
        latent: Instead of `full` where attention is latent.
        state: Recurrent state; None without linear attention.
        weights: Of the target on one rank.
        nextn: `num_nextn_predict_layers` of its config.
        vision: (layers, hidden size) of the vision tower; None for a text model.
        assumptions: What had to be assumed while reading it.
    """

    architecture: str
    context: int
    layers: int
    full: Heads | None = None
    window: Heads | None = None
    window_tokens: int | None = None
    latent: Latent | None = None
    state: RecurrentState | None = None
    weights: Tensors
    nextn: int | None = None
    wrapped: bool = False
    dtype: str = "bfloat16"
    vision: tuple[int, int] | None = None
    multimodal: bool = False
    assumptions: tuple[str, ...] = field(default=())

    @property
    def cache_layers(self) -> int:
        """Layers with a full-length cache."""
        if self.latent is not None:
            return self.latent.layers
        return self.full.layers if self.full is not None else 0
