"""Rounds as a run measured them, from its result document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from draftmark.engines.roofline.rounds import Roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One arm under one load.

    Attributes:
        round_ms: Time per output token times accept length: what one round took, launches and prefills of others
            included.
        decoding: Requests that decoded together, on average: output tokens a second times the time per token
            (Little's law). Fewer than `concurrency`, some of which wait for their first token.
    """

    depth: int
    workload: str
    concurrency: int
    round_ms: float
    decoding: float

    def over_floor(self, roofline: Roofline, context: float) -> float:
        """In units of its floor at as many requests as decoded."""
        return self.round_ms / (roofline.round(self.decoding, self.depth, context).floor_s * 1000)


def measured_rounds(result: Mapping[str, Any]) -> tuple[Measured, ...]:
    """Every round that a `draftmark.tune/1` document tells, in its order."""
    arms = result.get("arms")
    return tuple(each for arm in arms if isinstance(arm, dict) for each in _of_arm(arm)) if arms else ()


def _of_arm(arm: Mapping[str, Any]) -> Iterator[Measured]:
    depth, axes = arm.get("depth"), arm.get("axes")
    # An adaptive arm drafts now more, now less: no one depth is its own.
    if not isinstance(depth, int) or arm.get("arm") not in ("off", f"d{depth}") or not isinstance(axes, Mapping):
        return
    for key, axis in axes.items():
        workload, _, level = str(key).rpartition("@")
        tpot, rate = axis.get("tpot_ms_p50"), axis.get("tok_s")
        accepted = axis.get("accept_len") if depth else 1.0
        if not level.isdecimal() or not tpot or not rate or not accepted:
            continue
        decoding = min(float(level), max(1.0, rate * tpot / 1000))
        yield Measured(
            depth=depth,
            workload=workload,
            concurrency=int(level),
            round_ms=tpot * accepted,
            decoding=decoding,
        )
