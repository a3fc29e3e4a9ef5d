"""From a config.json to a model's shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import cast

from draftmark.engines.model_config import attention, build, linear_attention, towers
from draftmark.engines.model_config.families import Family, Found, find, unmodelled
from draftmark.engines.model_config.fields import MOST_LAYERS, Fields, UnknownArchitectureError, mapping, words
from draftmark.engines.model_config.layers import Layer, plan
from draftmark.engines.model_config.quantization import quantization
from draftmark.engines.model_config.shape import AttentionKind, AttentionLayers, LinearLayers, ModelShape
from draftmark.engines.model_config.tensors import Tensor

_LINEAR = ("gdn", "mamba2", "kda")


def read_shape(config: Mapping[str, object], *, hf_quant_config: Mapping[str, object] | None = None) -> ModelShape:
    """What a config.json says of its model.

    Args:
        config: The parsed file.
        hf_quant_config: ModelOpt's file of that name, which lies beside a config.json that does not speak of
            quantization at all.

    Raises:
        UnknownArchitectureError: Its class is not known.
        BadInputError: A field that nothing can do without is missing or of no use; it is named.
    """
    found = find(mapping(config, "the file"))
    family, assumptions, not_counted = found.family, list(found.assumptions), list(found.not_counted)
    fields = Fields(found.text, family.defaults, assumptions)
    _refuse_unmodelled(found)
    layers = plan(family, fields)
    tied = _tied(family, fields)
    count = _mtp_layers(family, fields)
    not_counted += [family.unpublished] if family.unpublished else []
    if not family.mtp and fields.maybe("num_nextn_predict_layers", "mtp_num_hidden_layers"):
        not_counted.append("its layers for multi-token prediction")
    tensors = tuple(
        build.draft(family, fields, layers)
        if family.draft
        else chain(
            build.body(family, fields, layers, tied=tied),
            build.prediction(family, fields, layers, count),
            _tower(family, config, fields, assumptions, not_counted),
        )
    )
    stored = hf_quant_config or found.text.get("quantization_config") or found.text.get("compression_config")
    return ModelShape(
        architecture=found.architecture,
        family=family.name,
        layers=len(layers),
        hidden=fields.need("hidden_size"),
        vocab=fields.need("vocab_size"),
        tied=tied,
        attention=_attention(family, fields, layers),
        linear=_linear(family, fields, layers),
        mtp_layers=count,
        experts=(fields.maybe(family.experts) or 0) if family.experts else 0,
        experts_per_token=fields.maybe("num_experts_per_tok", "num_experts_per_token", "experts_per_token") or 0,
        max_position=fields.maybe("max_position_embeddings", "model_max_length"),
        dtype=_dtype(fields),
        quantization=quantization(mapping(stored, "quantization_config") if stored else None),
        draft=family.draft,
        assumptions=tuple(assumptions),
        not_counted=tuple(not_counted),
        tensors=tensors,
    )


def _refuse_unmodelled(found: Found) -> None:
    """Stops at a field that brings weights of a kind that is not known for this family."""
    nested = found.text.get("linear_attn_config")
    gate = "use_full_rank_gate" if isinstance(nested, Mapping) and nested.get("use_full_rank_gate") else None
    name = gate or next((each for each in unmodelled(found.family) if found.text.get(each)), None)
    if name is not None:
        raise UnknownArchitectureError(
            f"config.json of {found.architecture} has {name}, which models built like {found.family.name} have not:"
            " its weights cannot be told",
            evidence=(f"{name}: {str(found.text.get(name))[:80]}",),
            next_step="start it once: its log has the tokens and the requests at once that it comes to",
        )


def _tied(family: Family, fields: Fields) -> bool:
    """Whether the head is the embedding: its class knows when the file does not say."""
    told = fields.raw("tie_word_embeddings")
    if told is None and not family.draft:
        state = "tied" if family.tied else "not tied"
        fields.assume(f"tie_word_embeddings is not in config.json: {state}, as is usual for {family.name}")
    return family.tied if told is None else bool(told)


def _mtp_layers(family: Family, fields: Fields) -> int:
    return fields.optional(family.mtp_field, most=MOST_LAYERS) if family.mtp else 0


def _dtype(fields: Fields) -> str:
    told = fields.raw("dtype", "torch_dtype")
    if told is None or told == "auto":
        fields.assume("config.json names no type of its weights: bfloat16")
        return "bfloat16"
    return str(told).removeprefix("torch.")


def _attention(family: Family, fields: Fields, layers: tuple[Layer, ...]) -> tuple[AttentionLayers, ...]:
    counts: dict[str, int] = {}
    for mixer in chain.from_iterable(each.mixers for each in layers):
        if mixer not in _LINEAR:
            counts[mixer] = counts.get(mixer, 0) + 1
    made = []
    for kind, count in counts.items():
        if kind == "mla":
            dims = attention.latent(family, fields)
            made.append(
                AttentionLayers(
                    kind="mla",
                    count=count,
                    heads=dims.heads,
                    kv_heads=dims.kv_heads,
                    head_dim=dims.nope + dims.rope,
                    v_head_dim=dims.value,
                    kv_lora_rank=dims.kv_rank,
                    rope_head_dim=dims.rope,
                    index_head_dim=dims.index_dim or None,
                    index_layers=sum(build.indexers(family, fields, len(layers))),
                )
            )
            continue
        grouped = attention.grouped(fields)
        window = {"sliding": "sliding_window", "chunked": "attention_chunk_size"}.get(kind)
        made.append(
            AttentionLayers(
                kind=cast(AttentionKind, kind),
                count=count,
                heads=grouped.heads,
                kv_heads=grouped.kv_heads,
                head_dim=grouped.head_dim,
                v_head_dim=grouped.head_dim,
                window=fields.need(window) if window else None,
            )
        )
    return tuple(made)


def _linear(family: Family, fields: Fields, layers: tuple[Layer, ...]) -> LinearLayers | None:
    count = sum(mixer in _LINEAR for each in layers for mixer in each.mixers)
    return linear_attention.dims(family, fields, count) if count else None


def _tower(
    family: Family, config: Mapping[str, object], fields: Fields, assumptions: list[str], not_counted: list[str]
) -> Iterator[Tensor]:
    """The vision tower of a wrapper, where it is known; what is not known is said."""
    if config.get("audio_config") is not None:
        not_counted.append("the tower of audio_config")
    vision = config.get("vision_config")
    if vision is None:
        if any(each.endswith("ForConditionalGeneration") for each in words(config.get("architectures"))):
            not_counted.append("a vision tower: config.json has no vision_config")
        return iter(())
    if not family.vision:
        not_counted.append("the tower of vision_config")
        return iter(())
    part = Fields(mapping(vision, "vision_config"), {}, assumptions)
    if family.vision == "qwen3":
        return towers.qwen3(part)
    return {"siglip": towers.siglip, "llama4": towers.llama4}[family.vision](part, fields.need("hidden_size"))
