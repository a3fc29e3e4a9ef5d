"""How long a round of a simulated server takes. Pure.

A round verifies n = c (k + 1) tokens of c requests after k drafts. Its duration is modelled as

    T = a + b u(n) + g n + k (d + e c) + m x        u(n) = 1 - (1 - experts a token / experts)^n

a: reads of what every round needs, and launches; b: reading all experts, of which n tokens meet the share u (each
token's experts taken as drawn anew); g: arithmetic a token; d, e: a draft's step, and what it takes a request more;
m: reading a cached token, x of them. Seconds. The defaults come from data sheets (two thirds of the bandwidth, a
third of the arithmetic, as seen on an H200); --calibrate puts what was measured in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from draftmark.engines.model_config import ModelShape
from draftmark.errors import BadInputError
from draftmark.sim.memory import Memory
from draftmark.sim.presets import Cards

_BANDWIDTH_SHARE = 0.65
_FLOPS_SHARE = 0.35
_LAYER_S = 65e-6  # launches and small kernels of a layer: 1.85 ms a round of 30 layers, weights of 0.06 ms (H200)
_REDUCE_S = 12e-6  # one all-reduce of a few tokens; two a layer
_DRAFT_S = 0.35e-3  # a draft's step besides its reads: 0.75 ms with 2 GiB to read (H200, 35B)
_NGRAM_S = 0.15e-3  # a look-up in the trie, for all of a request's drafts
_EAGER_FACTOR = 1.6  # a batch above the largest captured one
_PREFILL_FLOPS_SHARE = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCost:
    """The parameters of the model above, seconds.

    Attributes:
        share: Experts a token over experts; 0 without experts.
        by_tokens: By tokens verified a request, the factor by which such rounds take longer than modelled: what a
            calibration leaves over. Others take that of the nearest.
        prefill_token: Seconds a prompt token; `prefill`: what any prefill takes besides.
    """

    base: float
    experts: float
    token: float
    draft: float
    draft_request: float
    cached: float
    share: float
    prefill: float
    prefill_token: float
    by_tokens: Mapping[int, float] = field(default_factory=dict)

    def round_s(self, requests: int, steps: int, tokens: int, cached: int, *, graphs: bool = True) -> float:
        """A round.

        Args:
            requests: In the batch.
            steps: Draft passes before it; 0 without speculation.
            tokens: Verified a request; 1 without speculation.
            cached: Tokens in the caches of all of them.
            graphs: Whether the batch has a captured graph.
        """
        n = requests * tokens
        spent = self.base + self.experts * self.touched(n) + self.token * n + self.cached * cached
        spent += steps * (self.draft + self.draft_request * requests)
        return spent * self._factor(tokens) * (1.0 if graphs else _EAGER_FACTOR)

    def touched(self, tokens: int) -> float:
        """Share of the experts that so many tokens meet; 0 without experts."""
        return 1.0 - (1.0 - self.share) ** tokens if self.share else 0.0

    def _factor(self, tokens: int) -> float:
        if not self.by_tokens:
            return 1.0
        return self.by_tokens[min(self.by_tokens, key=lambda known: (abs(known - tokens), known))]

    def prefill_s(self, tokens: int) -> float:
        """A pass over so many prompt tokens."""
        return self.prefill + self.prefill_token * tokens


def default_cost(shape: ModelShape, memory: Memory, cards: Cards) -> RoundCost:
    """From the model's size and the card's data sheet."""
    tp = memory.settings.tp
    card = cards.card
    rate, flops = card.bandwidth * _BANDWIDTH_SHARE, card.peak("half")
    dense, experts = _read_bytes(shape, memory)
    active = _active_parameters(shape) / tp
    layer_s = _LAYER_S + (2 * _REDUCE_S if tp > 1 else 0.0)
    base = shape.layers * layer_s + dense / rate
    ngram = memory.settings.algorithm == "NGRAM"
    draft = _NGRAM_S if ngram else _DRAFT_S + _draft_read(memory, shape) / rate
    cell = memory.case.parts()[0].target
    return RoundCost(
        base=base,
        experts=experts / rate,
        token=2 * active / (flops * _FLOPS_SHARE),
        draft=draft,
        draft_request=5e-6,
        cached=cell / rate,
        share=min(1.0, shape.experts_per_token / shape.experts) if shape.experts else 0.0,
        prefill=base,
        prefill_token=2 * active / (flops * _PREFILL_FLOPS_SHARE),
    )


def _read_bytes(shape: ModelShape, memory: Memory) -> tuple[float, float]:
    """What a round reads of the weights in any case, and the experts; one rank."""
    total = memory.weights
    try:
        parts = shape.weights(tensor_parallel=memory.settings.tp)
    except BadInputError:  # sizes of this quantization are not known: all of it counts as dense
        return total, 0.0
    experts = float(parts.of("experts").bytes)
    embedding = 0.0 if shape.tied else float(parts.of("embedding").bytes)
    return max(0.0, total - experts - embedding), experts


def _draft_read(memory: Memory, shape: ModelShape) -> float:
    """Of the draft's weights, what one step reads: not the embedding, and of the experts those of one token."""
    total = memory.draft_weights
    if not shape.experts or not shape.mtp_layers:
        return total
    return total * 0.5


def _active_parameters(shape: ModelShape) -> float:
    """Parameters that one token meets."""
    share = shape.experts_per_token / shape.experts if shape.experts else 0.0
    total = 0.0
    for each in shape.tensors:
        if each.part in ("mtp", "mtp_copies", "embedding"):
            continue
        total += each.parameters * (share if each.part == "experts" else 1.0)
    return total
