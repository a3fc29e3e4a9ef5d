"""Which CUDA graphs a command line asks for: one JSON, or flags of either phase, or the older ones for both. Pure.

Source: 17:server_args.py:4275-4335: the JSON stands above the flags of a phase, and those above the older ones; a
list of batch sizes stands above the largest one (17:server_args.py:4705, 10:server_args.py:1233).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Values = Mapping[str, object]

LISTS = frozenset({"cuda_graph_bs", "cuda_graph_bs_decode", "cuda_graph_bs_prefill", "piecewise_cuda_graph_tokens"})
"""Arguments of several values."""

_OFF = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """What is captured.

    Attributes:
        decode: Decoding is.
        prefill: Prefill is, unless the server finds that it cannot be.
        max_bs: Largest batch of decoding; None for the card's default.
        prefill_tokens: Largest prefill; None for the default.
        prefill_sizes: How many sizes of it, where they are listed.
    """

    decode: bool = True
    prefill: bool = True
    max_bs: int | None = None
    prefill_tokens: int | None = None
    prefill_sizes: int | None = None


def graphs_of(values: Values) -> Graphs:
    """From arguments by name.

    Raises:
        ValueError: A number is none; the argument's name is in the message.
    """
    decode, prefill = _phase(values, "decode"), _phase(values, "prefill")
    listed = _sizes(decode.get("bs") or values.get("cuda_graph_bs_decode") or values.get("cuda_graph_bs"), "bs")
    largest = decode.get("max_bs") or values.get("cuda_graph_max_bs_decode") or values.get("cuda_graph_max_bs")
    captured = _sizes(
        prefill.get("bs") or values.get("cuda_graph_bs_prefill") or values.get("piecewise_cuda_graph_tokens"),
        "bs-prefill",
    )
    tokens = (
        prefill.get("max_bs")
        or values.get("cuda_graph_max_bs_prefill")
        or values.get("piecewise_cuda_graph_max_tokens")
    )
    return Graphs(
        decode=_captured(values, decode, "decode", ("disable_decode_cuda_graph",)),
        prefill=_captured(
            values, prefill, "prefill", ("disable_prefill_cuda_graph", "disable_piecewise_cuda_graph")
        ),
        max_bs=max(listed) if listed else _size(largest, "max-bs"),
        prefill_tokens=_size(tokens, "max-bs-prefill"),
        prefill_sizes=len(captured) or None,
    )


def _phase(values: Values, phase: str) -> Values:
    """Of `--cuda-graph-config`. A log prints it in a form of its own, which tells nothing here."""
    given = values.get("cuda_graph_config")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {}
    found = given.get(phase) if isinstance(given, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _captured(values: Values, config: Values, phase: str, switches: Sequence[str]) -> bool:
    for chosen in (config.get("backend"), values.get(f"cuda_graph_backend_{phase}")):
        if isinstance(chosen, str):
            return chosen.lower() != _OFF
    return not any(values.get(name) is True for name in (*switches, "disable_cuda_graph"))


def _sizes(given: object, name: str) -> tuple[int, ...]:
    if not isinstance(given, list | tuple):
        return ()
    return tuple(size for each in given if (size := _size(each, name)) is not None)


def _size(given: object, name: str) -> int | None:
    if given is None or isinstance(given, bool):
        return None
    text = str(given)[:16]
    if not text.lstrip("+").isascii() or not text.lstrip("+").isdigit() or len(text) > 15 or int(text) < 1:
        raise ValueError(f"--cuda-graph-{name} {text!r} is not a number above 0")
    return int(text)
