"""Softmax attention: its widths and its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftmark.engines.model_config.families import Family
from draftmark.engines.model_config.fields import Fields
from draftmark.engines.model_config.tensors import Tensor, linear, norm
from draftmark.errors import BadInputError


def switched(spec: str, fields: Fields) -> bool:
    """Whether something is there that a family has always, never, or by a switch."""
    return spec == "yes" or (spec != "no" and fields.flag(spec))


@dataclass(frozen=True, slots=True)
class Grouped:
    """Multi-head or grouped-query attention."""

    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention. `q_rank` is None where queries are projected at once.

    `index_heads` × `index_dim` is DeepSeek's indexer of sparse attention, 0 without.
    """

    heads: int
    kv_heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value: int
    index_heads: int
    index_dim: int


def grouped(fields: Fields) -> Grouped:
    """Widths of grouped-query attention."""
    heads = fields.need("num_attention_heads", "n_head")
    kv_heads = fields.maybe("num_key_value_heads")
    if kv_heads is None:
        fields.assume(f"num_key_value_heads is not in config.json: {heads}, one a query head")
        kv_heads = heads
    if kv_heads < 1 or kv_heads > heads:
        raise BadInputError(
            f"config.json: {kv_heads} key/value heads for {heads} heads", next_step="check the file"
        )
    width = fields.maybe("head_dim", "attention_head_dim")
    if not width:
        hidden = fields.need("hidden_size")
        if hidden % heads:
            raise BadInputError(
                f"config.json has no head_dim, and its hidden_size {hidden} is no multiple of {heads} heads",
                next_step="check the file",
            )
        width = hidden // heads
        fields.assume(f"head_dim is not in config.json: {width}, hidden_size / num_attention_heads")
    return Grouped(heads, kv_heads, width)


def latent(family: Family, fields: Fields) -> Latent:
    """Widths of latent attention."""
    heads = fields.need("num_attention_heads")
    index_heads = fields.need("index_n_heads") if family.sparse else 0
    return Latent(
        heads=heads,
        kv_heads=fields.maybe("num_key_value_heads") or heads,
        q_rank=fields.optional("q_lora_rank") or None,
        kv_rank=fields.need("kv_lora_rank"),
        nope=fields.need("qk_nope_head_dim"),
        rope=fields.optional("qk_rope_head_dim"),
        value=fields.need("v_head_dim"),
        index_heads=index_heads,
        index_dim=fields.need("index_head_dim") if index_heads else 0,
    )


def grouped_tensors(family: Family, fields: Fields, hidden: int, width: int | None = None) -> Iterator[Tensor]:
    """Weights of one layer. `width`: of what it reads, where that is not the hidden size."""
    dims = grouped(fields)
    inner, kv = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    reads, bias = width or hidden, switched(family.qkv_bias, fields)
    gated = family.output_gate and fields.raw("attn_output_gate") is not False
    name = family.mixer_name
    yield from linear(
        "attention", f"{name}.q_proj", inner * (2 if gated else 1), reads, bias=bias, pieces=dims.heads
    )
    yield from linear("attention", f"{name}.k_proj", kv, reads, bias=bias, pieces=dims.kv_heads)
    yield from linear("attention", f"{name}.v_proj", kv, reads, bias=bias, pieces=dims.kv_heads)
    out_bias = switched(family.o_bias, fields)
    yield from linear("attention", f"{name}.o_proj", hidden, inner, bias=out_bias, pieces=dims.heads)
    if family.sinks:
        yield Tensor("attention", f"{name}.sinks", dims.heads, pieces=dims.heads)
    if family.qk_norm == "whole":
        yield norm(f"{name}.q_norm", inner)
        yield norm(f"{name}.k_norm", kv)
    elif family.qk_norm == "head" or switched(family.qk_norm, fields):
        yield norm(f"{name}.q_norm", dims.head_dim)
        yield norm(f"{name}.k_norm", dims.head_dim)


def latent_tensors(family: Family, fields: Fields, hidden: int, *, indexer: bool) -> Iterator[Tensor]:
    """Weights of one layer; `indexer`: with one of its own."""
    dims = latent(family, fields)
    bias = switched(family.qkv_bias, fields)
    query, name = dims.heads * (dims.nope + dims.rope), "self_attn"
    if dims.q_rank is None:
        yield from linear("attention", f"{name}.q_proj", query, hidden, pieces=dims.heads)
    else:
        yield from linear("attention", f"{name}.q_a_proj", dims.q_rank, hidden, bias=bias, pieces=1)
        yield norm(f"{name}.q_a_layernorm", dims.q_rank)
        yield from linear("attention", f"{name}.q_b_proj", query, dims.q_rank, pieces=dims.heads)
    yield from linear(
        "attention", f"{name}.kv_a_proj_with_mqa", dims.kv_rank + dims.rope, hidden, bias=bias, pieces=1
    )
    yield norm(f"{name}.kv_a_layernorm", dims.kv_rank)
    both = dims.heads * (dims.nope + dims.value)
    yield from linear("attention", f"{name}.kv_b_proj", both, dims.kv_rank, pieces=dims.heads)
    yield from linear("attention", f"{name}.o_proj", hidden, dims.heads * dims.value, bias=bias, pieces=dims.heads)
    if indexer:
        rank = dims.q_rank or hidden
        index = f"{name}.indexer"
        yield from linear("attention", f"{index}.wq_b", dims.index_heads * dims.index_dim, rank, pieces=1)
        yield from linear("attention", f"{index}.wk", dims.index_dim, hidden, pieces=1)
        yield Tensor("norms", f"{index}.k_norm", 2 * dims.index_dim)  # a layer norm: weight and bias
        # Kept wide in every published checkpoint, so not `linear` in the sense of quantization.
        yield Tensor("attention", f"{index}.weights_proj", dims.index_heads, hidden)
