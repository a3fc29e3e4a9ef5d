"""All weights of a model, put together from its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from draftmark.engines.model_config import attention, feed_forward, linear_attention
from draftmark.engines.model_config.families import Family
from draftmark.engines.model_config.fields import Fields
from draftmark.engines.model_config.layers import Layer, nemotron
from draftmark.engines.model_config.tensors import Tensor, linear, norm, under


def body(family: Family, fields: Fields, layers: tuple[Layer, ...], *, tied: bool) -> Iterator[Tensor]:
    """The text model, without multi-token prediction."""
    hidden, vocab = fields.need("hidden_size"), fields.need("vocab_size")
    yield Tensor("embedding", "embed_tokens", vocab, hidden, pieces=0)
    alike: dict[tuple[Layer, bool], tuple[Tensor, ...]] = {}
    for index, kind in enumerate(zip(layers, indexers(family, fields, len(layers)), strict=True)):
        if kind not in alike:
            alike[kind] = tuple(layer_tensors(family, fields, kind[0], indexer=kind[1]))
        yield from under(f"layers.{index}", alike[kind])
    yield norm("norm", hidden)
    if not tied:
        yield from linear("lm_head", "lm_head", vocab, hidden)


def indexers(family: Family, fields: Fields, count: int) -> list[bool]:
    """Which layers have an indexer of sparse attention of their own; GLM-5.2 shares one among several."""
    if not family.sparse:
        return [False] * count
    types = fields.names("indexer_types", count)
    if types is not None:
        return [each == "full" for each in types]
    fields.assume("indexer_types is not in config.json: each layer has an indexer of its own")
    return [True] * count


def layer_tensors(family: Family, fields: Fields, layer: Layer, *, indexer: bool = False) -> Iterator[Tensor]:
    """One layer: its mixers, its MLP, its norms."""
    hidden = fields.need("hidden_size")
    for mixer in layer.mixers:
        if mixer == "mla":
            yield from attention.latent_tensors(family, fields, hidden, indexer=indexer)
        elif mixer in {"gdn", "mamba2", "kda"}:
            yield from linear_attention.tensors(family, fields, hidden)
        else:
            yield from attention.grouped_tensors(family, fields, hidden)
    if layer.feed:
        yield from feed_forward.tensors(family, fields, hidden, layer.feed)
    count = family.norms if layer.mixers and layer.feed else 1
    yield Tensor("norms", "norms", hidden, 1, count)


def prediction(family: Family, fields: Fields, layers: tuple[Layer, ...], count: int) -> Iterator[Tensor]:
    """`count` layers for multi-token prediction, and the copies that a checkpoint keeps for them."""
    hidden, vocab = fields.need("hidden_size"), fields.need("vocab_size")
    if not count:
        return
    if family.mtp == "qwen":
        full = Layer(("full",), layers[-1].feed)
        yield from _mtp(linear("mtp", "mtp.fc", hidden, 2 * hidden))
        yield Tensor("mtp", "mtp.norms", hidden, 1, 3)
        for index in range(count):
            yield from under(f"mtp.layers.{index}", layer_tensors(family, fields, full), "mtp")
        return
    if family.mtp == "nemotron":
        yield from _nemotron(family, fields, count)
        return
    for index in range(len(layers), len(layers) + count):
        name = f"layers.{index}" if family.mtp == "deepseek" else f"mtp_layers.{index - len(layers)}"
        yield from under(name, layer_tensors(family, fields, layers[-1], indexer=family.sparse), "mtp")
        # The fusing projection stays wide in the published FP8 checkpoints.
        yield Tensor("mtp", f"{name}.eh_proj", hidden, 2 * hidden)
        yield Tensor("mtp", f"{name}.norms", hidden, 1, 3)
        if family.mtp_copies:
            yield Tensor("mtp_copies", f"{name}.embed_tokens", vocab, hidden, pieces=0)
            yield Tensor("mtp_copies", f"{name}.shared_head.head", vocab, hidden, pieces=0)


def _nemotron(family: Family, fields: Fields, count: int) -> Iterator[Tensor]:
    hidden = fields.need("hidden_size")
    pattern = nemotron(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    for step in range(count):
        for index, layer in enumerate(pattern):
            yield from under(f"mtp.{step}.layers.{index}", layer_tensors(family, fields, layer), "mtp")
        yield Tensor("mtp", f"mtp.{step}.eh_proj", hidden, 2 * hidden)
        yield Tensor("mtp", f"mtp.{step}.norms", hidden, 1, 3)


def _mtp(tensors: Iterator[Tensor]) -> Iterator[Tensor]:
    for each in tensors:
        yield replace(each, part="mtp")


def draft(family: Family, fields: Fields, layers: tuple[Layer, ...]) -> Iterator[Tensor]:
    """An EAGLE draft: it reads the target's hidden states beside its own embedding."""
    hidden, vocab = fields.need("hidden_size"), fields.need("vocab_size")
    yield Tensor("embedding", "embed_tokens", vocab, hidden, pieces=0)
    if family.draft == "eagle":  # the first version: target's state and embedding fused, no norms around the stack
        yield from linear("draft", "fc", hidden, 2 * hidden, bias=fields.raw("bias") is not False)
        for index, layer in enumerate(layers):
            yield from under(f"layers.{index}", layer_tensors(family, fields, layer))
        yield from linear("lm_head", "lm_head", vocab, hidden)
        return
    reads = fields.maybe("target_hidden_size") or hidden
    yield from linear("draft", "fc", hidden, 3 * reads)
    yield from under("midlayer", attention.grouped_tensors(family, fields, hidden, width=2 * hidden))
    yield from under("midlayer", feed_forward.tensors(family, fields, hidden, "dense"))
    yield Tensor("norms", "norms", hidden, 1, 4)
    shown = fields.maybe("draft_vocab_size") or vocab
    yield from linear("lm_head", "lm_head", shown, hidden)
    if shown != vocab:
        yield Tensor("draft", "d2t", shown, itemsize=8)
