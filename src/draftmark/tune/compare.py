"""Two runs side by side: only if they measured the same thing. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from draftmark.errors import RefusedError
from draftmark.tune.statistics import t_quantile

_LEVEL = 0.95
# Fields of the result document in which two runs must agree, and what a difference would mean.
_ALIKE = (
    ("workloads", "they asked different prompts, or for answers of another length"),
    ("settings.api", "they spoke different protocols"),
    ("settings.requests", "they sent different numbers of requests"),
    ("host.cpu_model", "they ran on different processors"),
    ("host.cpus", "they ran on different numbers of processors"),
    ("host.memory_gib", "they ran on hosts with different memory"),
)


def unlike(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Why two runs cannot be compared: field, both values, meaning. Empty when they can."""
    found = []
    for field, meaning in _ALIKE:
        left, right = _field(a, field), _field(b, field)
        if left != right:
            found.append(f"{field}: {left} against {right}: {meaning}")
    return found


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every arm and axis that both runs measured: b over a, with a 95 % interval (Welch's t on logarithms).

    Raises:
        RefusedError: The runs are unlike, or have nothing in common.
    """
    differences = unlike(a, b)
    if differences:
        raise RefusedError(
            "these runs are unlike, so a ratio between them would mean nothing",
            evidence=tuple(differences),
            next_step="measure both with the same prompts, settings and host",
        )
    arms_b = {arm["arm"]: arm for arm in b["arms"]}
    rows = []
    for arm in a["arms"]:
        other = arms_b.get(arm["arm"])
        for axis, figures in arm["axes"].items():
            if other is not None and axis in other["axes"]:
                rows.append(_row(axis, arm["arm"], figures, other["axes"][axis]))
    if not rows:
        raise RefusedError(
            "these runs have no measured arm in common",
            evidence=(f"{[x['arm'] for x in a['arms']]} against {[x['arm'] for x in b['arms']]}",),
            next_step="name at least one depth in both",
        )
    return rows


def sentence(rows: list[dict[str, Any]]) -> str:
    """What can be said of all rows together."""
    apart = [r for r in rows if r["low"] is not None and (r["low"] > 1 or r["high"] < 1)]
    unjudged = sum(1 for r in rows if r["low"] is None)
    rest = f"; {unjudged} more have a single trial on a side and cannot be judged" if unjudged else ""
    if len(rows) == unjudged:
        return "nothing can be judged: no arm has two trials in both runs; use --rounds 2 or more"
    if not apart:
        return f"no difference beyond noise in {len(rows) - unjudged} comparisons{rest}"
    most = max(apart, key=lambda r: abs(math.log(r["ratio"])))
    return (
        f"{len(apart)} of {len(rows) - unjudged} comparisons differ beyond noise{rest}; the largest: "
        f"{most['arm']} on {most['axis']}, {most['ratio']:.2f}x ({most['low']:.2f}–{most['high']:.2f})"
    )


def _row(axis: str, arm: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    left, right = ([math.log(v) for v in side["values"] if v] for side in (a, b))
    ratio = math.exp(_mean(right) - _mean(left)) if left and right else None
    low = high = None
    if ratio is not None and len(left) > 1 and len(right) > 1:
        half = _half_width(left, right)
        low, high = ratio * math.exp(-half), ratio * math.exp(half)
    return {
        "axis": axis,
        "arm": arm,
        "ratio": ratio,
        "low": low,
        "high": high,
        "a_tok_s": a["tok_s"],
        "b_tok_s": b["tok_s"],
    }


def _half_width(left: list[float], right: list[float]) -> float:
    """Welch (1947): unequal variances; degrees of freedom by Satterthwaite."""
    va, vb = _variance(left) / len(left), _variance(right) / len(right)
    if va + vb == 0:
        return 0.0
    df = (va + vb) ** 2 / (va**2 / (len(left) - 1) + vb**2 / (len(right) - 1))
    return t_quantile((1 + _LEVEL) / 2, df) * math.sqrt(va + vb)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _variance(values: list[float]) -> float:
    middle = _mean(values)
    return sum((v - middle) ** 2 for v in values) / (len(values) - 1)


def _field(document: Mapping[str, Any], path: str) -> Any:
    if path == "workloads":
        return sorted((w["name"], w["sha256"][:12]) for w in document["workloads"])
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):
        return ", ".join(f"{k} at once: {v}" for k, v in value.items())
    return value
