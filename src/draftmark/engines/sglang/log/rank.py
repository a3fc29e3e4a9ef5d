"""One rank's memory lines, taken as they come: pools, weights, graphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from draftmark.engines.sglang.log.nouns import (
    GraphLine,
    KvLine,
    MambaLine,
    RankDifference,
    RankLog,
    SummaryLine,
    SwaLine,
    WeightsLine,
)

_MOST_DIGITS: Final = 15
MOST_LINES: Final = 256
"""Lines of one kind that are kept of one start: many more than a server has pools or sets of graphs."""

# Up to 0.5.12 a capture of the target has no name, and those of the draft have shorter ones.
_OLD_NAMES = {"draft": "draft decode", "draft extend": "draft extend", "piecewise": "target prefill"}

_Match = re.Match[str]
_T = TypeVar("_T")


def take(rank: RankLog, name: str, match: _Match, *, speculative: bool) -> bool:
    """Note what a line says of this rank's memory. False: the rule is not about memory, or a figure is none.

    `name` is the rule. `speculative`: whether the server drafts, since up to 0.5.12 the log does not say what the
    target's graphs are for.
    """
    try:
        if name in ("graph-begin-old", "graph-end-old"):
            old = match["name"]
            plain = "target verify" if speculative else "target decode"
            _graph(rank, _OLD_NAMES.get(old, "draft decode") if old else plain, match)
            return True
        handler = _HANDLERS.get(name)
        if handler is None:
            return False
        handler(rank, match)
    except NoFigureError:
        return False
    return True


def differences(first: RankLog, other: RankLog) -> list[RankDifference]:
    """What another rank says differently, of what the arithmetic of memory needs."""
    mine, theirs = _figures(first), _figures(other)
    return [
        RankDifference(other.rank, what, mine[what], theirs[what])
        for what in mine
        if theirs[what] is not None and mine[what] != theirs[what]
    ]


def order(rank: str) -> tuple[tuple[int, ...], str]:
    """Sorts ranks: the lowest indices first, whatever the dimensions are called."""
    return tuple(int(digits) for digits in re.findall(r"(\d{1,9})", rank)), rank


def _figures(rank: RankLog) -> dict[str, object]:
    return {
        "gpu_avail_before_weights_gib": rank.gpu_avail_before_weights_gib,
        "weights": tuple(rank.weights) or None,
        "mamba": rank.mamba,
        "kv": tuple(rank.kv) or None,
        "pool_end_avail_gib": rank.pool_ends[-1] if rank.pool_ends else None,
        "summary": rank.summary,
    }


def _add(lines: list[_T], line: _T) -> None:
    if len(lines) < MOST_LINES:
        lines.append(line)


def _optional(text: str | None) -> float | None:
    return _float(text) if text else None


class NoFigureError(ValueError):
    """What stands where a number belongs is none, or none that a server could have."""


def _float(text: str) -> float:
    """A figure of a line.

    Raises:
        NoFigureError: It is none: `1.2.3` in a damaged line, or far more digits than any size has.
    """
    try:
        value = float(text)
    except ValueError:
        raise NoFigureError(text[:40]) from None
    if len(text) > _MOST_DIGITS:
        raise NoFigureError(text[:40])
    return value


def whole(text: str) -> int:
    """An integer of a line.

    Raises:
        NoFigureError: It has more digits than any figure of a server.
    """
    if len(text) > _MOST_DIGITS:
        raise NoFigureError(text[:40])
    return int(text)


def _weights_begin(rank: RankLog, match: _Match) -> None:
    avail = _float(match["avail"])
    _add(rank.weights_begins, avail)
    if rank.gpu_avail_before_weights_gib is None:
        rank.gpu_avail_before_weights_gib = avail


def _weights_end(rank: RankLog, match: _Match) -> None:
    line = WeightsLine(match["type"], _float(match["avail"]), _float(match["mem"]), match["quant"])
    _add(rank.weights, line)


def _mamba(rank: RankLog, match: _Match) -> None:
    if rank.mamba is None:
        rank.mamba = MambaLine(
            whole(match["slots"]),
            _float(match["conv"]),
            _float(match["ssm"]),
            _optional(match["intermediate_ssm"]),
            _optional(match["intermediate_conv"]),
        )


def _kv_line(rank: RankLog, match: _Match) -> KvLine:
    k, v, both = _optional(match["k"]), _optional(match["v"]), _optional(match["kv"])
    size = both if both is not None else (k or 0.0) + (v or 0.0)
    of = "draft" if rank.pool_ends else "target"
    return KvLine(match["dtype"], whole(match["tokens"]), k, v, size, of, match["label"])


def _kv(rank: RankLog, match: _Match) -> None:
    _add(rank.kv, _kv_line(rank, match))


def _kv_upper_bound(rank: RankLog, match: _Match) -> None:
    _add(rank.kv_upper_bound, _kv_line(rank, match))


def _post_capture(rank: RankLog, match: _Match) -> None:
    line = KvLine(match["dtype"], whole(match["tokens"]), None, None, _float(match["kv"]), "target", "post-capture")
    _add(rank.kv, line)


def _swa_pool(rank: RankLog, match: _Match) -> None:
    _add(rank.swa, SwaLine(whole(match["full"]), whole(match["swa"]), _float(match["mem"])))


def _swa_tokens(rank: RankLog, match: _Match) -> None:
    _add(rank.swa, SwaLine(whole(match["full"] or "0"), whole(match["swa"])))


def _pool_end(rank: RankLog, match: _Match) -> None:
    _add(rank.pool_ends, _float(match["avail"]))


def _summary(rank: RankLog, match: _Match) -> None:
    rank.summary = SummaryLine(
        whole(match["tokens"]),
        None if match["chunked"] == "None" else whole(match["chunked"]),
        whole(match["prefill"]),
        whole(match["running"]),
        whole(match["context"]),
        _float(match["avail"]),
    )


def _named_graph(rank: RankLog, match: _Match) -> None:
    _graph(rank, match["name"], match)


def _graph(rank: RankLog, name: str, match: _Match) -> None:
    """A begin opens a line; the end of the same name closes the last open one, or stands alone."""
    groups = match.groupdict()
    per, sizes = groups.get("per"), tuple(whole(size) for size in re.findall(r"\d+", groups.get("bs") or ""))
    avail = _float(match["avail"])
    if "mem" not in groups:
        _add(
            rank.graphs,
            GraphLine(name, whole(per) if per else None, sizes, None, None, avail, None, groups.get("backend")),
        )
        return
    opened = GraphLine(name, None, (), None, None)
    for place in range(len(rank.graphs) - 1, -1, -1):
        if rank.graphs[place].name == name and rank.graphs[place].mem_gib is None:
            opened = rank.graphs.pop(place)
            break
    closed = opened._replace(
        bs=sizes or opened.bs, mem_gib=_float(match["mem"]), avail_gib=avail, elapsed_s=_float(match["elapsed"])
    )
    _add(rank.graphs, closed)


_HANDLERS: Mapping[str, Callable[[RankLog, _Match], None]] = {
    "weights-begin": _weights_begin,
    "weights-end": _weights_end,
    "mamba": _mamba,
    "kv": _kv,
    "kv-without-dtype": _kv,
    "kv-upper-bound": _kv_upper_bound,
    "post-capture-kv": _post_capture,
    "swa-pool": _swa_pool,
    "swa-tokens": _swa_tokens,
    "pool-end": _pool_end,
    "summary": _summary,
    "graph-begin": _named_graph,
    "graph-end": _named_graph,
}
