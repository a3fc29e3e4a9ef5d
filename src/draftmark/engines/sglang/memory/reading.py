"""From a model's `config.json` to its anatomy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftmark.engines.model_config import read_shape
from draftmark.engines.model_config.shape import AttentionLayers, LinearLayers, ModelShape
from draftmark.engines.sglang.memory import weights
from draftmark.engines.sglang.memory.anatomy import (
    ITEM_BYTES,
    Anatomy,
    Draft,
    Heads,
    Latent,
    RecurrentState,
    Tensors,
)
from draftmark.engines.sglang.memory.refused_files import context_of
from draftmark.engines.sglang.memory.rules import has_window_pool, window_of
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.errors import BadInputError

Config = Mapping[str, Any]
# Whose class turns a quarter of a head unless the file says otherwise.
_QUARTER_ROTARY = ("qwen3_next", "qwen3_5")
_NESTED = ("text_config", "llm_config", "language_config")


class Target:
    """A target's config, read once for all arms.

    Raises:
        BadInputError: The architecture or a field is not known.
    """

    def __init__(self, config: Config, beside: Config | None = None) -> None:
        """From its config.json, and from ModelOpt's hf_quant_config.json where that lies beside it."""
        self.config = config
        self.text = _text(config)
        own = self.text.get("quantization_config") or config.get("quantization_config")
        self.shape = read_shape(config, hf_quant_config=None if own else beside)
        stored = own or beside
        self.quantization: Config = stored if isinstance(stored, Mapping) else {}
        self._weights: dict[tuple[int, int, str], Tensors] = {}
        self._predicting: dict[int, Tensors | None] = {}

    def weights(self, settings: Settings) -> Tensors:
        """What one rank loads, multi-token prediction aside.

        Raises:
            BadInputError: The quantization's sizes are not known.
        """
        tp, attention_tp, dtype = key = settings.tp, settings.attention_tp, settings.dtype
        if key not in self._weights:
            rotary = rotary_bytes(self.shape, self.text)
            self._weights[key] = weights.target_tensors(
                self.shape, tp, rotary, attention_tp=attention_tp, dtype=dtype
            )
        found = self._weights[key]
        return weights.quantized_by_flag(found) if self.quantized_by_flag(settings) else found

    def quantized_by_flag(self, settings: Settings) -> bool:
        """Whether weights that are not quantized are to be, while they are loaded."""
        return settings.quantization not in (None, "unquant", "none") and not self.shape.quantization.method

    def predicting(self, tp: int) -> Tensors | None:
        """What one rank loads as its own draft; None where that cannot be told, or there is none."""
        if tp not in self._predicting:
            try:
                self._predicting[tp] = weights.predicting_tensors(self.shape, tp)
            except BadInputError:
                self._predicting[tp] = None
        return self._predicting[tp]


def anatomy_of(source: Target, settings: Settings, *, weighed: bool = True) -> Anatomy:
    """A target under some flags. Unless it must be `weighed`, 0 stands for weights that cannot be told.

    Raises:
        BadInputError: The quantization's sizes are not known.
    """
    config, text, shape = source.config, source.text, source.shape
    pool = has_window_pool(shape.architecture) and settings.hybrid_window
    assumptions = list(shape.assumptions)
    assumptions.extend(f"not counted among the weights: {each}" for each in shape.not_counted)
    if shape.quantization.method:
        assumptions.append(f"weights quantized by {shape.quantization.method}: their size is an estimate")
    if source.quantized_by_flag(settings):
        assumptions.append(
            f"--quantization {settings.quantization} while they are loaded: what is left of the weights is a guess"
        )
    try:
        target = source.weights(settings)
    except BadInputError:
        if weighed:
            raise
        target = Tensors(bytes=0, spread=1.0)
    latent = next(iter(shape.of_kind("mla")), None)
    return Anatomy(
        architecture=shape.architecture,
        context=settings.context or context_of(text) or shape.max_position or 4096,
        layers=shape.layers,
        full=_heads(shape.of_kind("full") + (() if pool else shape.of_kind("sliding", "chunked"))),
        window=_heads(shape.of_kind("sliding", "chunked")) if pool else None,
        window_tokens=window_of(
            shape.architecture, next((each.window for each in shape.of_kind("sliding", "chunked")), None)
        ),
        latent=_latent(latent) if latent is not None else None,
        state=_state(shape.linear) if shape.linear is not None else None,
        weights=target,
        nextn=_whole(text.get("num_nextn_predict_layers")),
        wrapped=text is not config,
        dtype=shape.dtype,
        vision=_vision(config),
        multimodal=isinstance(config.get("vision_config"), Mapping),
        assumptions=tuple(assumptions),
    )


def own_draft(source: Target, settings: Settings) -> Draft | None:
    """The target's layers of multi-token prediction; None when it has none."""
    shape, text = source.shape, source.text
    if not shape.mtp_layers:
        return None
    return Draft(
        weights=source.predicting(settings.tp),
        nextn=_whole(text.get("num_nextn_predict_layers")),
        layers=shape.layers,
        architecture=shape.architecture,
        wrapped=text is not source.config,
        cell=_draft_cell(shape, settings, shape.mtp_layers),
    )


def other_draft(config: Config, settings: Settings) -> Draft:
    """A draft model of its own.

    Raises:
        BadInputError: Not even its number of layers can be told.
    """
    text = _text(config)
    try:
        shape = read_shape(config)
    except BadInputError:
        layers = _whole(text.get("num_hidden_layers"))
        if layers is None:
            raise
        names = config.get("architectures")
        name = str(names[0]) if isinstance(names, list) and names else ""
        return Draft(
            weights=None, nextn=_whole(text.get("num_nextn_predict_layers")), layers=layers, architecture=name
        )
    try:
        tensors: Tensors | None = weights.whole_tensors(shape, settings.tp)
    except BadInputError:
        tensors = None
    nextn = _whole(text.get("num_nextn_predict_layers"))
    return Draft(
        weights=tensors,
        nextn=nextn,
        layers=shape.layers,
        architecture=shape.architecture,
        wrapped=text is not config,
        cell=_draft_cell(shape, settings, None),
        windows=_draft_cell(shape, settings, None, windows=True) or 0,
    )


def rotary_bytes(shape: ModelShape, text: Config) -> int:
    """The table of cosines and sines: float32, a row a position (14:layers/rotary_embedding.py)."""
    if not shape.attention or shape.max_position is None:
        return 0
    first = shape.attention[0]
    nested = text.get("rope_parameters")
    share = text.get(
        "partial_rotary_factor", nested.get("partial_rotary_factor") if isinstance(nested, Mapping) else None
    )
    if share is None and str(text.get("model_type")).startswith(_QUARTER_ROTARY):
        share = 0.25
    width = first.rope_head_dim or first.head_dim
    if isinstance(share, int | float) and 0 < share <= 1:
        width = int(width * share)
    return 4 * shape.max_position * width


def _text(config: Config) -> Config:
    return next((part for name in _NESTED if isinstance(part := config.get(name), Mapping)), config)


def _heads(found: tuple[AttentionLayers, ...]) -> Heads | None:
    """Layers of one geometry. Kinds that differ are put together by what they cost."""
    if not found:
        return None
    first, layers = found[0], sum(each.count for each in found)
    return Heads(layers=layers, kv_heads=first.kv_heads, key=first.head_dim, value=first.v_head_dim)


def _latent(found: AttentionLayers) -> Latent | None:
    if found.kv_lora_rank is None:
        return None
    return Latent(
        layers=found.count, rank=found.kv_lora_rank, rope=found.rope_head_dim or 0, index_head=found.index_head_dim
    )


def _state(found: LinearLayers) -> RecurrentState:
    """The channels of keys and queries (Mamba-2: of B and C) are two state widths a group."""
    return RecurrentState(
        layers=found.count,
        inner=found.heads * found.head_dim,
        groups=found.groups,
        group_width=2 * found.state_dim,
        conv_columns=found.conv_kernel - 1,
        heads=found.heads,
        rows=found.head_dim,
        columns=found.state_dim,
        dtype=found.state_dtype,
        gate_per_key=found.kind == "kda",
    )


def _draft_cell(shape: ModelShape, settings: Settings, layers: int | None, *, windows: bool = False) -> int | None:
    """Bytes a token of the draft's own pool: of its own layers, or of `layers` like the target's full ones.

    With `windows` of those with sliding windows that have a pool of their own, else of the others.
    """
    apart = has_window_pool(shape.architecture) and settings.hybrid_window
    item = ITEM_BYTES.get(shape.dtype, 2) if settings.kv_dtype == "auto" else ITEM_BYTES.get(settings.kv_dtype, 2)
    total = 0
    for each in shape.attention:
        if layers is not None and each.kind not in ("full", "mla"):
            continue
        if windows != (apart and each.kind in ("sliding", "chunked")):
            continue
        count = each.count if layers is None else layers
        if each.kv_lora_rank is not None:
            total += count * (each.kv_lora_rank + (each.rope_head_dim or 0)) * item
        else:
            ranks = max(1, each.kv_heads // settings.attention_tp)
            total += count * ranks * (each.head_dim + each.v_head_dim) * item
    return total or None


def _vision(config: Config) -> tuple[int, int] | None:
    """Layers and width of the vision tower, with the defaults that SGLang takes where they are missing."""
    part = config.get("vision_config")
    if not isinstance(part, Mapping):
        return None
    return _whole(part.get("num_hidden_layers")) or 24, _whole(part.get("hidden_size")) or 1024


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
