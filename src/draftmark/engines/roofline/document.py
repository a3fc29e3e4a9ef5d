"""The `roofline` part of the documents of `inspect` and `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftmark.engines.roofline.measured import Measured
from draftmark.engines.roofline.passes import distinct_experts
from draftmark.engines.roofline.rounds import Roofline, Round
from draftmark.engines.roofline.words import sentences

_FIGURES = 4


def document(
    roofline: Roofline,
    depths: Sequence[int],
    levels: Sequence[int],
    context: float,
    *,
    measured: Sequence[Measured] = (),
    assumptions: Sequence[str] = (),
) -> dict[str, Any]:
    """Every depth at every concurrency; the sentences are about the deepest. Units are in the names.

    `bytes` and `operations` are of one card. Without any measurement, what needs one is null.
    """
    served, card, deepest = roofline.served, roofline.card, max(depths)
    wanted = sorted({0, *depths})
    return {
        "card": {
            "name": card.name,
            "memory_gb_s": card.bandwidth / 1e9,
            "dense_tflops": {name: value / 1e12 for name, value in card.peaks.items()},
            "source": card.source,
        },
        "tensor_parallel": served.tensor_parallel,
        "context_tokens": context,
        "draft": served.draft,
        "compute_bound_from": [
            {"depth": depth, "part": part, "concurrency": roofline.compute_bound_from(part, depth, context)}
            for depth in wanted
            for part in _parts(roofline.round(1, depth, context))
        ],
        "rounds": [_round(roofline, depth, level, context, measured) for depth in wanted for level in levels],
        "assumptions": list(assumptions),
        "sentences": list(sentences(roofline, deepest, levels, context, measured)),
    }


def _parts(whole: Round) -> list[str]:
    """Parts of the verification that compute at all."""
    return list(dict.fromkeys(each.name for each in whole.verify if each.ops))


def _round(
    roofline: Roofline, depth: int, level: int, context: float, measured: Sequence[Measured]
) -> dict[str, Any]:
    found = roofline.round(level, depth, context)
    shape = roofline.served.shape
    seen = [each for each in measured if (each.depth, each.concurrency) == (depth, level)]
    off = next((each for each in measured if (each.depth, each.concurrency) == (0, level)), None)
    return {
        "depth": depth,
        "concurrency": level,
        "tokens_verified": level * (depth + 1),
        "distinct_experts": _rounded(
            distinct_experts(shape.experts, max(1, shape.experts_per_token), level * (depth + 1))
        )
        if shape.experts
        else None,
        "floor_ms": _rounded(found.floor_s * 1000),
        "bytes": round(found.bytes),
        "operations": round(found.ops),
        "parts": [
            {
                "part": each.name,
                "bytes": round(each.bytes),
                "operations": round(each.ops),
                "floor_ms": _rounded(each.floor_s * 1000),
                "bound": each.bound,
            }
            for each in found.shares()
        ],
        "gain_at_floor": _rounded(roofline.gain_at_floor(level, depth, context)),
        "gain_ceiling": None
        if off is None
        else _rounded(roofline.gain_ceiling(off.decoding, depth, context, off.round_ms / 1000)),
        "measured": [
            {
                "workload": each.workload,
                "round_ms": _rounded(each.round_ms),
                "decoding": _rounded(each.decoding),
                "over_floor": _rounded(each.over_floor(roofline, context)),
            }
            for each in seen
        ],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{_FIGURES}g}")
