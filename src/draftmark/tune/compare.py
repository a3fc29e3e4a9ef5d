"""Two runs side by side: only if they measured the same thing. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from draftmark.errors import RefusedError
from draftmark.tune.statistics import t_quantile

_LEVEL = 0.95  # of all intervals together
_RUN_SD = 0.02  # two runs of one server on one host differ by about this much as a whole, whatever their rounds say
_MARGIN = 0.02  # smaller differences matter to nobody
# Fields of the result document in which two runs must agree, and what a difference would mean.
_ALIKE = (
    ("engine.name", "they are different engines"),
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
    if a.get("cluster") or b.get("cluster"):
        found.append(
            "cluster: a run over several nodes: figures of different nodes are never held against one another"
        )
    for field, meaning in _ALIKE:
        left, right = _field(a, field), _field(b, field)
        if left != right:
            found.append(f"{field}: {left} against {right}: {meaning}")
    return found


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every arm and axis that both runs measured: b over a, with simultaneous 95 % intervals.

    Welch's t on logarithms, widened by what two runs of the same server differ by as a whole, Bonferroni over all
    rows: of two runs of one configuration, one pair in twenty may show a difference anywhere.

    Raises:
        RefusedError: The runs are unlike, or have nothing in common.
    """
    for run in (a, b):
        if changed := run.get("altered"):
            raise RefusedError(
                "the service's configuration was changed during one of these runs, so it has no figures",
                evidence=(f"{run['service']}, started at {run['started_at']}", *changed),
                next_step="run it again",
            )
    differences = unlike(a, b)
    if differences:
        raise RefusedError(
            "these runs are unlike, so a ratio between them would mean nothing",
            evidence=tuple(differences),
            next_step="measure both with the same prompts, settings and host",
        )
    arms_b = {arm["arm"]: arm for arm in b["arms"]}
    pairs = [
        (axis, arm["arm"], figures, other["axes"][axis])
        for arm in a["arms"]
        if (other := arms_b.get(arm["arm"])) is not None
        for axis, figures in arm["axes"].items()
        if axis in other["axes"]
    ]
    rows = [_row(*pair, comparisons=len(pairs)) for pair in pairs]
    if not rows:
        raise RefusedError(
            "these runs have no measured arm in common",
            evidence=(f"{[x['arm'] for x in a['arms']]} against {[x['arm'] for x in b['arms']]}",),
            next_step="name at least one depth in both",
        )
    return rows


def sentence(rows: list[dict[str, Any]]) -> str:
    """What can be said of all rows together."""
    apart = [r for r in rows if r["low"] is not None and _apart(r)]
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


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What is not the same and may be what the comparison is about: service, version, command line."""
    found = []
    for field in ("service", "engine.version", "engine.command", "draftmark"):
        left, right = _field(a, field), _field(b, field)
        if left != right:
            found.append(f"{field}: {_shown(left)} against {_shown(right)}")
    return found


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _apart(row: Mapping[str, Any]) -> bool:
    beyond_noise = row["low"] > 1 or row["high"] < 1
    return bool(beyond_noise and abs(math.log(row["ratio"])) >= math.log1p(_MARGIN))


def _row(axis: str, arm: str, a: Mapping[str, Any], b: Mapping[str, Any], *, comparisons: int) -> dict[str, Any]:
    left, right = ([math.log(v) for v in side["values"] if v] for side in (a, b))
    ratio = math.exp(_mean(right) - _mean(left)) if left and right else None
    low = high = None
    if ratio is not None and len(left) > 1 and len(right) > 1:
        half = _half_width(left, right, comparisons)
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


def _half_width(left: list[float], right: list[float], comparisons: int) -> float:
    """Welch (1947): unequal variances; degrees of freedom by Satterthwaite, the run-to-run part known."""
    va, vb = _variance(left) / len(left), _variance(right) / len(right)
    known = 2 * _RUN_SD**2
    within = va**2 / (len(left) - 1) + vb**2 / (len(right) - 1)
    df = (va + vb + known) ** 2 / within if within > 0 else 1e6
    tail = (1 - _LEVEL) / (2 * comparisons)
    return t_quantile(1 - tail, min(df, 1e6)) * math.sqrt(va + vb + known)


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
