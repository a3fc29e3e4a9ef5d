"""MLPs: dense, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator

from draftmark.engines.model_config.attention import switched
from draftmark.engines.model_config.families import Family
from draftmark.engines.model_config.fields import Fields
from draftmark.engines.model_config.layers import Feed
from draftmark.engines.model_config.tensors import Part, Tensor, linear


def tensors(family: Family, fields: Fields, hidden: int, feed: Feed) -> Iterator[Tensor]:
    """Weights of one layer's MLP."""
    if feed == "experts":
        yield from _experts(family, fields, hidden)
    elif family.name == "granite_hybrid":  # without routed experts only its shared MLP is left
        yield from _shared(family, fields, hidden)
    else:
        width = fields.need(family.dense_width)
        bias = switched(family.mlp_bias, fields)
        yield from _mlp("mlp", family.mlp_name, hidden, width, gated=family.gated_mlp, bias=bias)


def _mlp(
    part: Part, name: str, hidden: int, width: int, *, gated: bool, bias: bool = False, count: int = 1
) -> Iterator[Tensor]:
    if gated:
        yield from linear(part, f"{name}.gate_proj", width, hidden, bias=bias, count=count)
    yield from linear(part, f"{name}.up_proj", width, hidden, bias=bias, count=count)
    yield from linear(part, f"{name}.down_proj", hidden, width, bias=bias, count=count)


def _experts(family: Family, fields: Fields, hidden: int) -> Iterator[Tensor]:
    count, width = fields.need(family.experts), fields.need(family.expert_width)
    router = f"{family.mlp_name}.{family.router_name}"
    yield Tensor("router", router, count, hidden)
    if family.router_bias == "noaux_tc":
        method = fields.raw("topk_method")
        if method is None:
            fields.assume("topk_method is not in config.json: noaux_tc")
        if method not in ("greedy", "group_limited_greedy"):
            yield Tensor("router", f"{router}.e_score_correction_bias", count, itemsize=4)
    elif switched(family.router_bias, fields):
        wide = None if family.name == "gpt_oss" else 4  # a plain bias there, a score correction elsewhere
        yield Tensor("router", f"{router}.e_score_correction_bias", count, itemsize=wide)
    reads = hidden
    if family.name == "nemotron_h":
        reads = fields.optional("moe_latent_size") or hidden
    if reads != hidden:
        yield from linear("experts", f"{family.mlp_name}.fc1_latent_proj", reads, hidden, pieces=1)
        yield from linear("experts", f"{family.mlp_name}.fc2_latent_proj", hidden, reads, pieces=1)
    yield from _mlp(
        "experts",
        f"{family.mlp_name}.experts.*",
        reads,
        width,
        gated=family.gated_mlp,
        bias=family.expert_bias,
        count=count,
    )
    yield from _shared(family, fields, hidden)


def _shared(family: Family, fields: Fields, hidden: int) -> Iterator[Tensor]:
    """Experts that every token meets."""
    size = fields.optional(family.shared_field) if family.shared else 0
    if not size:
        return
    width = size
    if family.shared == "count":
        named = "moe_shared_expert_intermediate_size" if family.name == "nemotron_h" else family.expert_width
        width = size * fields.need(named)
    name = "shared_experts" if family.shared == "count" else "shared_expert"
    yield from _mlp("mlp", f"{family.mlp_name}.{name}", hidden, width, gated=family.gated_mlp)
    if family.shared_gate:
        yield Tensor("router", f"{family.mlp_name}.shared_expert_gate", 1, hidden)
