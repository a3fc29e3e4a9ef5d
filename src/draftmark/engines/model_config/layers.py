"""Which layer of a model has which attention and which MLP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftmark.engines.model_config.families import Family
from draftmark.engines.model_config.fields import MOST_LAYERS, Fields
from draftmark.errors import BadInputError

Mixer = Literal["full", "sliding", "chunked", "mla", "gdn", "mamba2", "kda"]
Feed = Literal["dense", "experts"]

# The words of `layer_types`.
_TYPES: dict[str, Mixer] = {
    "full_attention": "full",
    "attention": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
}
_LINEAR_TYPES = {"linear_attention", "mamba", "mamba2"}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what mixes tokens (two side by side in Falcon-H1, none in some of Nemotron-H), then its MLP."""

    mixers: tuple[Mixer, ...]
    feed: Feed | None


_MAMBA, _ATTENTION = Layer(("mamba2",), None), Layer(("full",), None)
_DENSE, _EXPERTS = Layer((), "dense"), Layer((), "experts")
# Nemotron-H's letters, and the words that newer files have for them.
_BLOCKS: dict[str, Layer] = {
    "M": _MAMBA, "*": _ATTENTION, "-": _DENSE, "E": _EXPERTS,
    "mamba": _MAMBA, "attention": _ATTENTION, "mlp": _DENSE, "moe": _EXPERTS,
}  # fmt: skip


def plan(family: Family, fields: Fields) -> tuple[Layer, ...]:
    """All layers of a model, from the first to the last, without those of multi-token prediction."""
    if family.name == "nemotron_h":
        return nemotron(fields, "hybrid_override_pattern", "layers_block_type")
    count = fields.layers()
    return tuple(map(Layer, _mixers(family, fields, count), _feeds(family, fields, count)))


def nemotron(fields: Fields, letters: str, listed: str) -> tuple[Layer, ...]:
    """Nemotron-H's layers, each of which is one thing: by letters in the field `letters`, or words in `listed`."""
    told = fields.raw(letters, listed)
    blocks = [_BLOCKS.get(str(each)) for each in told] if isinstance(told, (str, list)) else []
    if not blocks or None in blocks or len(blocks) > MOST_LAYERS:
        raise BadInputError(f"config.json has no usable {letters}", next_step="check the file")
    return tuple(block for block in blocks if block)


def _mixers(family: Family, fields: Fields, count: int) -> list[tuple[Mixer, ...]]:
    full: Mixer = "mla" if family.attention == "mla" else "full"
    if family.parallel:
        return [("mamba2", "full")] * count
    if family.linear == "kda":
        return _kda(fields, count)
    types = fields.names("layer_types", count)
    if types is not None:
        return [(_by_type(each, full, family),) for each in types]
    if family.linear:
        interval = fields.need("full_attention_interval")
        return [(full if (index + 1) % interval == 0 else family.linear,) for index in range(count)]
    return [(each,) for each in _windowed(family, fields, count, full)]


def _by_type(word: str, full: Mixer, family: Family) -> Mixer:
    if word in _LINEAR_TYPES and family.linear:
        return family.linear
    kind = _TYPES.get(word)
    if kind is None:
        raise BadInputError(f"config.json: the layer type {word[:60]} is not known for {family.name}")
    return full if kind == "full" else kind


def _kda(fields: Fields, count: int) -> list[tuple[Mixer, ...]]:
    """Kimi-Linear lists its layers, from 1."""
    part = fields.part("linear_attn_config")
    linear, full = set(part.numbers("kda_layers") or ()), set(part.numbers("full_attn_layers") or ())
    if linear & full or linear | full != set(range(1, count + 1)):
        raise BadInputError(f"config.json: linear_attn_config does not name each of the {count} layers once")
    return [("kda",) if number in linear else ("mla",) for number in range(1, count + 1)]


def _windowed(family: Family, fields: Fields, count: int, full: Mixer) -> list[Mixer]:
    if family.windows == "chunks":
        listed = fields.numbers("no_rope_layers")
        if listed and len(listed) == count:
            return ["chunked" if rope else "full" for rope in listed]
        interval = fields.need("no_rope_layer_interval")
        return ["full" if (index + 1) % interval == 0 else "chunked" for index in range(count)]
    if family.windows == "pattern":
        interval = fields.need("sliding_window_pattern")
        return [full if (index + 1) % interval == 0 else "sliding" for index in range(count)]
    if not family.windows or not fields.optional("sliding_window"):
        return [full] * count
    if family.windows == "all":
        return ["sliding"] * count
    if not fields.flag(family.windows):
        return [full] * count
    first = fields.maybe("max_window_layers") or 0
    return [full if index < first else "sliding" for index in range(count)]


def _feeds(family: Family, fields: Fields, count: int) -> list[Feed]:
    if not family.experts or not fields.optional(family.experts):
        return ["dense"] * count
    types = fields.names("mlp_layer_types", count)
    if types is not None:
        return ["dense" if each == "dense" else "experts" for each in types]
    if family.name == "llama4":
        step = fields.need("interleave_moe_layer_step")
        return ["experts" if (index + 1) % step == 0 else "dense" for index in range(count)]
    dense = set(fields.numbers("mlp_only_layers") or ())
    if family.shared == "count":  # the families of DeepSeek's making
        dense.update(range(fields.optional("first_k_dense_replace", most=MOST_LAYERS)))
    every = fields.raw("moe_layer_freq") or 1
    if isinstance(every, list) and len(every) == count:
        return ["experts" if each else "dense" for each in every]
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise BadInputError("config.json: moe_layer_freq is no usable number", next_step="check the file")
    step = fields.maybe("decoder_sparse_step") or 1
    return [
        "experts" if index not in dense and index % every == 0 and (index + 1) % step == 0 else "dense"
        for index in range(count)
    ]
