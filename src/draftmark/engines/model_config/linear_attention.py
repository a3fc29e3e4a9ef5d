"""Layers with a recurrent state: gated delta net (Qwen3-Next, Qwen3.5), Mamba-2, Kimi delta attention."""

from __future__ import annotations

from collections.abc import Iterator

from draftmark.engines.model_config.families import Family
from draftmark.engines.model_config.fields import Fields
from draftmark.engines.model_config.shape import LinearLayers
from draftmark.engines.model_config.tensors import Tensor, linear, norm
from draftmark.errors import BadInputError

# Config names of the state's type: Qwen3.5, Nemotron 3.
_STATE_TYPE = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")


def dims(family: Family, fields: Fields, count: int) -> LinearLayers:
    """Widths of the family's linear attention, of which the model has `count` layers."""
    state = fields.raw(*_STATE_TYPE)
    reader = {"gdn": _gdn, "mamba2": _mamba2, "kda": _kda}[family.linear]
    return reader(fields, count, state if isinstance(state, str) else None)


def tensors(family: Family, fields: Fields, hidden: int) -> Iterator[Tensor]:
    """Weights of one layer."""
    shape = dims(family, fields, 1)
    if shape.kind == "gdn":
        return _gdn_tensors(shape, hidden)
    if shape.kind == "kda":
        return _kda_tensors(shape, hidden)
    return _mamba2_tensors(family, fields, shape, hidden)


def _gdn(fields: Fields, count: int, state: str | None) -> LinearLayers:
    values, value = fields.need("linear_num_value_heads"), fields.need("linear_value_head_dim")
    keys, key = fields.need("linear_num_key_heads"), fields.need("linear_key_head_dim")
    return LinearLayers(
        kind="gdn",
        count=count,
        heads=values,
        head_dim=value,
        state_dim=key,
        groups=keys,
        conv_channels=values * value + 2 * keys * key,
        conv_kernel=fields.need("linear_conv_kernel_dim"),
        state_dtype=state,
    )


def _mamba2(fields: Fields, count: int, state: str | None) -> LinearLayers:
    heads = fields.need("mamba_num_heads", "mamba_n_heads")
    inner = fields.maybe("mamba_d_ssm")
    width = fields.raw("mamba_head_dim", "mamba_d_head")
    if not inner and isinstance(width, int):
        inner = heads * width
    elif not inner:
        inner = fields.need("mamba_expand", "expand") * fields.need("hidden_size")
        fields.assume(f"the width of Mamba's heads is not in config.json: {inner} in all, expanded hidden_size")
    if inner % heads:
        raise BadInputError(f"config.json: {heads} Mamba heads do not divide {inner}", next_step="check the file")
    size = fields.need("ssm_state_size", "mamba_d_state")
    groups = fields.need("n_groups", "mamba_n_groups")
    return LinearLayers(
        kind="mamba2",
        count=count,
        heads=heads,
        head_dim=inner // heads,
        state_dim=size,
        groups=groups,
        conv_channels=inner + 2 * groups * size,
        conv_kernel=fields.need("conv_kernel", "mamba_d_conv"),
        state_dtype=state,
    )


def _kda(fields: Fields, count: int, state: str | None) -> LinearLayers:
    part = fields.part("linear_attn_config")
    heads, width = part.need("num_heads"), part.need("head_dim")
    return LinearLayers(
        kind="kda",
        count=count,
        heads=heads,
        head_dim=width,
        state_dim=width,
        groups=heads,
        conv_channels=3 * heads * width,
        conv_kernel=part.need("short_conv_kernel_size"),
        state_dtype=state,
    )


def _gdn_tensors(shape: LinearLayers, hidden: int) -> Iterator[Tensor]:
    inner, name = shape.heads * shape.head_dim, "linear_attn"
    rows = shape.conv_channels
    yield from linear("linear_attention", f"{name}.in_proj_qkv", rows, hidden, pieces=shape.groups)
    yield from linear("linear_attention", f"{name}.in_proj_z", inner, hidden, pieces=shape.heads)
    yield from linear("linear_attention", f"{name}.in_proj_ba", 2 * shape.heads, hidden, pieces=shape.heads)
    yield Tensor("linear_attention", f"{name}.conv1d", rows, shape.conv_kernel, pieces=shape.groups)
    yield Tensor("linear_attention", f"{name}.dt_bias", shape.heads, pieces=shape.heads)
    yield Tensor("linear_attention", f"{name}.A_log", shape.heads, pieces=shape.heads)
    yield norm(f"{name}.norm", shape.head_dim)
    yield from linear("linear_attention", f"{name}.out_proj", hidden, inner, pieces=shape.heads)


def _mamba2_tensors(family: Family, fields: Fields, shape: LinearLayers, hidden: int) -> Iterator[Tensor]:
    inner, conv, heads = shape.heads * shape.head_dim, shape.conv_channels, shape.heads
    name = "mixer" if family.mixer_name == "mixer" else "mamba"
    into_bias = fields.flag("mamba_proj_bias", "use_bias")
    out_bias = fields.flag("projectors_bias") if family.parallel else into_bias
    rows = inner + conv + heads
    yield from linear("linear_attention", f"{name}.in_proj", rows, hidden, bias=into_bias, pieces=heads)
    yield Tensor("linear_attention", f"{name}.conv1d", conv, shape.conv_kernel, pieces=heads)
    if fields.flag("use_conv_bias", "mamba_conv_bias"):
        yield Tensor("linear_attention", f"{name}.conv1d.bias", conv, pieces=heads)
    for each in ("dt_bias", "A_log", "D"):
        yield Tensor("linear_attention", f"{name}.{each}", heads, pieces=heads)
    if family.gated_norm or fields.flag("mamba_rms_norm"):
        yield norm(f"{name}.norm", inner)
    yield from linear("linear_attention", f"{name}.out_proj", hidden, inner, bias=out_bias, pieces=heads)


def _kda_tensors(shape: LinearLayers, hidden: int) -> Iterator[Tensor]:
    heads, width, name = shape.heads, shape.head_dim, "self_attn"
    inner = heads * width
    for each in ("q", "k", "v"):
        yield from linear("linear_attention", f"{name}.{each}_proj", inner, hidden, pieces=heads)
        yield Tensor("linear_attention", f"{name}.{each}_conv1d", inner, shape.conv_kernel, pieces=heads)
    for each in ("f", "g"):  # decay and output gate, each through a bottleneck of a head's width
        yield from linear("linear_attention", f"{name}.{each}_a_proj", width, hidden, pieces=1)
        yield from linear("linear_attention", f"{name}.{each}_b_proj", inner, width, pieces=heads)
    yield from linear("linear_attention", f"{name}.b_proj", heads, hidden, pieces=heads)
    yield Tensor("linear_attention", f"{name}.A_log", heads, pieces=heads)
    yield Tensor("linear_attention", f"{name}.dt_bias", inner, pieces=heads)
    yield norm(f"{name}.o_norm", width)
    yield from linear("linear_attention", f"{name}.o_proj", hidden, inner, pieces=heads)
