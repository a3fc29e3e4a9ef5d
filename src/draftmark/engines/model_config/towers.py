"""Vision towers of wrapped models that are known: Qwen3-VL's (also Qwen3.5's), Gemma 3's SigLIP, Llama 4's."""

from __future__ import annotations

from collections.abc import Iterator

from draftmark.engines.model_config.fields import Fields
from draftmark.engines.model_config.tensors import Tensor


def qwen3(fields: Fields) -> Iterator[Tensor]:
    """Qwen3-VL: patches in three dimensions, learned positions, plain transformer blocks, mergers into the text."""
    width, inner = fields.need("hidden_size"), fields.need("intermediate_size")
    patch = fields.need("in_channels") * fields.need("temporal_patch_size") * fields.need("patch_size") ** 2
    yield from _affine("patch_embed.proj", width, patch)
    yield _plain("pos_embed", fields.need("num_position_embeddings"), width)
    for block in range(fields.layers("depth")):
        name = f"blocks.{block}"
        yield _plain(f"{name}.norms", 4, width)
        yield from _affine(f"{name}.attn.qkv", 3 * width, width)
        yield from _affine(f"{name}.attn.proj", width, width)
        yield from _affine(f"{name}.mlp.linear_fc1", inner, width)
        yield from _affine(f"{name}.mlp.linear_fc2", width, inner)
    merged, out = width * fields.need("spatial_merge_size") ** 2, fields.need("out_hidden_size")
    deep = fields.numbers("deepstack_visual_indexes")
    if deep is None:
        fields.assume("deepstack_visual_indexes is not in vision_config: none")
    for index in range(1 + len(deep or ())):  # the last norms before it merges, the others after
        name = f"merger.{index}"
        yield _plain(f"{name}.norm", 2, width if index == 0 else merged)
        yield from _affine(f"{name}.linear_fc1", merged, merged)
        yield from _affine(f"{name}.linear_fc2", out, merged)


def siglip(fields: Fields, text_width: int) -> Iterator[Tensor]:
    """SigLIP, with Gemma 3's projection into the text."""
    width, inner = fields.need("hidden_size"), fields.need("intermediate_size")
    patch, image = fields.need("patch_size"), fields.need("image_size")
    yield from _affine("embeddings.patch_embedding", width, (fields.maybe("num_channels") or 3) * patch**2)
    yield _plain("embeddings.position_embedding", (image // patch) ** 2, width)
    for layer in range(fields.layers()):
        name = f"encoder.layers.{layer}"
        yield _plain(f"{name}.norms", 4, width)
        for each in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _affine(f"{name}.self_attn.{each}", width, width)
        yield from _affine(f"{name}.mlp.fc1", inner, width)
        yield from _affine(f"{name}.mlp.fc2", width, inner)
    yield _plain("post_layernorm", 2, width)
    yield _plain("projector.weight", width, text_width)
    yield _plain("projector.norm", width, 1)


def llama4(fields: Fields, text_width: int) -> Iterator[Tensor]:
    """Llama 4's: linear patches, pixels shuffled into an adapter of two layers, a projection into the text."""
    width, inner = fields.need("hidden_size"), fields.need("intermediate_size")
    patch, image = fields.need("patch_size"), fields.need("image_size")
    yield _plain("patch_embedding", width, (fields.maybe("num_channels") or 3) * patch**2)
    yield _plain("embeddings", width, 1 + (image // patch) ** 2 + 1)  # of the class, and of positions with it
    yield _plain("norms", 4, width)
    for layer in range(fields.layers()):
        name = f"layers.{layer}"
        yield _plain(f"{name}.norms", 4, width)
        for each in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield from _affine(f"{name}.self_attn.{each}", width, width)
        yield from _affine(f"{name}.mlp.fc1", inner, width)
        yield from _affine(f"{name}.mlp.fc2", width, inner)
    out = fields.need("projector_output_dim")
    yield _plain("adapter.fc1", fields.need("projector_input_dim"), inner)
    yield _plain("adapter.fc2", out, fields.need("projector_input_dim"))
    yield _plain("projector", text_width, fields.need("vision_output_dim"))


def _plain(name: str, rows: int, columns: int) -> Tensor:
    return Tensor("vision", f"visual.{name}", rows, columns)


def _affine(name: str, rows: int, columns: int) -> Iterator[Tensor]:
    yield _plain(name, rows, columns)
    yield _plain(f"{name}.bias", rows, 1)
