"""Bytes and operations of one pass over a stack, part by part. Pure.

A pass looks at `tokens` tokens of `requests` requests, each with `context` tokens behind it. What is counted is
what no implementation can do without: every weight that is needed once, the KV of every request once, a recurrent
state read once and written once. Activations, which may stay on the chip, are left out, and so is communication.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftmark.engines.cards import Card, Precision
from draftmark.engines.model_config import AttentionLayers, LinearLayers
from draftmark.engines.roofline.stack import Stack

KV = "KV cache and scores"
STATE = "recurrent state"
EMBEDDING = "embedding"
# DeepSeek-V3.2 attends to so many tokens, whatever lies behind (index_topk of its config.json).
_SPARSE_TOKENS = 2048
# Operations a number of the state and a token. Gated delta rule: decay 1, S·k 2, outer product added 2, S·q 2.
# Mamba-2: decay 1, outer product added 2, read 2.
_STATE_OPS = {"gdn": 7, "kda": 7, "mamba2": 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one part of a pass moves and computes, on one card."""

    name: str
    bytes: float
    ops: float
    precision: Precision = "half"

    def memory_s(self, card: Card) -> float:
        """Seconds that moving it takes at least."""
        return self.bytes / card.bandwidth

    def compute_s(self, card: Card) -> float:
        """Seconds that computing it takes at least."""
        return self.ops / card.peak(self.precision)

    def floor_s(self, card: Card) -> float:
        """Seconds that it takes at least: the roofline (Williams, Waterman, Patterson 2009)."""
        return max(self.memory_s(card), self.compute_s(card))

    def times(self, count: int) -> Work:
        """The same, so many times one after the other."""
        return Work(name=self.name, bytes=self.bytes * count, ops=self.ops * count, precision=self.precision)


def distinct_experts(experts: int, met: int, tokens: float) -> float:
    """Experts of one layer that at least one of `tokens` tokens meets, on average: E·(1 - (1 - k/E)^tokens).

    Of independent tokens that spread evenly over the experts. Any preference, and any likeness of tokens to one
    another, makes them fewer, down to `met`.
    """
    return experts * (1 - (1 - met / experts) ** tokens) if experts else 0.0


def one_pass(stack: Stack, tokens: float, requests: float, context: float) -> Iterator[Work]:
    """Each part of it; parts of one name and several precisions come several times."""
    hit = distinct_experts(stack.experts, stack.met, tokens) / stack.experts if stack.experts else 0.0
    met = stack.met / stack.experts if stack.experts else 0.0
    for gemm in stack.gemms:
        read, used = (hit, met) if gemm.routed else (1.0, 1.0)
        yield Work(
            name=gemm.name,
            bytes=gemm.bytes * read,
            ops=2 * gemm.parameters * used * tokens,
            precision=gemm.precision,
        )
    for layers in stack.attention:
        yield _attention(layers, stack, tokens, requests, context)
    if stack.linear is not None:
        yield _state(stack.linear, stack, tokens, requests)
    yield Work(name=EMBEDDING, bytes=stack.row_bytes * tokens, ops=0.0)


def _attention(layers: AttentionLayers, stack: Stack, tokens: float, requests: float, context: float) -> Work:
    seen = _seen(layers, context)
    heads = layers.heads / min(stack.ranks, layers.heads)
    index = 0.0
    if layers.kv_lora_rank is not None:
        # Absorbed: queries meet the latent itself, which every card holds whole.
        width: float = layers.kv_lora_rank + (layers.rope_head_dim or 0)
        per_pair = 2 * heads * (width + layers.kv_lora_rank)
        if layers.index_head_dim:
            index = requests * context * layers.index_head_dim * layers.index_layers  # keys of a byte a number
    else:
        kv_heads = layers.kv_heads / min(stack.ranks, layers.kv_heads)
        width = kv_heads * (layers.head_dim + layers.v_head_dim)
        per_pair = 2 * heads * (layers.head_dim + layers.v_head_dim)
    return Work(
        name=KV,
        bytes=(requests * seen + tokens) * width * stack.kv_bytes * layers.count + index,
        ops=tokens * seen * per_pair * layers.count,
        precision="half" if stack.kv_bytes > 1 else "fp8",
    )


def _seen(layers: AttentionLayers, context: float) -> float:
    """Tokens that a layer looks back at, on average."""
    if layers.index_head_dim:
        return min(context, _SPARSE_TOKENS)
    if layers.window is None or context <= layers.window:
        return context
    return layers.window if layers.kind == "sliding" else layers.window / 2  # a chunk is half full, on average


def _state(linear: LinearLayers, stack: Stack, tokens: float, requests: float) -> Work:
    heads = linear.heads / min(stack.ranks, linear.heads)
    numbers = heads * linear.head_dim * linear.state_dim
    window = linear.conv_channels / min(stack.ranks, linear.heads) * (linear.conv_kernel - 1)
    one = numbers * stack.state_bytes + window * stack.conv_bytes
    return Work(
        name=STATE,
        bytes=2 * requests * one * linear.count,
        ops=tokens * _STATE_OPS[linear.kind] * numbers * linear.count,
    )
