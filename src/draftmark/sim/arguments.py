"""`server_args` of a simulated start, as the version prints and serves them. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from draftmark.sim.memory import Memory

_PARSED_LATE = "cuda_graph_config"
_OPTIONAL = frozenset(
    {
        "cuda_graph_max_bs", "cuda_graph_bs", "cuda_graph_config", "cuda_graph_max_bs_decode",
        "cuda_graph_max_seq_len_prefill", "speculative_dflash_block_size",
    }
)  # fmt: skip
_SHAPE = {"chain": ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")}


@cache
def _fields() -> Mapping[str, list[Any]]:
    found: Mapping[str, list[Any]] = tomllib.loads(
        files(__package__).joinpath("arguments.toml").read_text(encoding="utf-8")
    )["fields"]
    return found


def server_args(memory: Memory, minor: int, *, seed: int, graph_sizes: list[int]) -> dict[str, Any]:
    """The resolved arguments.

    Args:
        memory: Of this start.
        minor: Version 0.5.minor, one of those read.
        seed: For `random_seed`.
        graph_sizes: Batches that decode graphs are captured for.
    """
    found: dict[str, Any] = {}
    for name, entry in _fields().items():
        default = None if not entry or name in _OPTIONAL else entry[0]
        first, _, last = (entry[1] if len(entry) > 1 else "10-23").partition("-")
        if int(first) <= minor <= int(last):
            found[name] = _typed(memory.values.get(name), default)
    found |= {name: value for name, value in _resolved(memory, seed).items() if name in found}
    sizes = {"cuda_graph_bs": graph_sizes, "cuda_graph_max_bs": max(graph_sizes, default=0)}
    found |= {name: value for name, value in sizes.items() if name in found}
    if _PARSED_LATE in found:
        found[_PARSED_LATE] = {
            "decode": {"backend": "full", "max_bs": max(graph_sizes, default=0), "bs": graph_sizes},
            "prefill": {"backend": "disabled", "max_bs": None, "bs": []},
        }
    for name, value in memory.values.items():  # flags that the table does not name
        if name not in found and value is not None and name not in _ALIASED:
            found[name] = _typed(value, None)
    return found


_ALIASED = frozenset({*_OPTIONAL, "mamba_radix_cache_strategy", "mamba_scheduler_strategy"})


def _resolved(memory: Memory, seed: int) -> dict[str, Any]:
    settings = memory.settings
    found: dict[str, Any] = {
        "tokenizer_path": settings.model_path,
        "served_model_name": memory.values.get("served_model_name") or settings.model_path,
        "mem_fraction_static": memory.fraction,
        "chunked_prefill_size": memory.chunked_prefill,
        "random_seed": seed,
        "max_running_requests": settings.requested() if settings.algorithm else settings.running,
        "mamba_radix_cache_strategy": settings.strategy,
        "mamba_scheduler_strategy": settings.strategy,
        "cuda_graph_max_bs_decode": memory.graph_max_bs,
    }
    if settings.algorithm is not None:
        found["speculative_algorithm"] = settings.algorithm
        found |= zip(_SHAPE["chain"], (settings.steps, settings.topk, settings.draft_tokens), strict=True)
        found["speculative_adaptive"] = False
    return found


def _typed(value: object, default: object) -> Any:
    """A flag's word as the type of its default; a number where it looks like one and there is none."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, str):
        return value
    if isinstance(default, str):
        return value
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return value


def printed(values: Mapping[str, Any], minor: int) -> str:
    """`ServerArgs(…)` up to 0.5.17, a dict since."""
    hidden = {name: "***" for name in ("api_key", "admin_api_key") if values.get(name)}
    values = {**values, **hidden}
    if minor >= 20:
        return repr(values)
    shown = (f"{name}={_dataclass(name, value)}" for name, value in values.items())
    return f"ServerArgs({', '.join(shown)})"


def _dataclass(name: str, value: object) -> str:
    """The graphs' settings are objects of their own up to 0.5.17."""
    if name != _PARSED_LATE or not isinstance(value, dict):
        return repr(value)
    phases = (
        f"{phase}=PhaseConfig({', '.join(f'{key}={each!r}' for key, each in entry.items())})"
        for phase, entry in value.items()
    )
    return f"CudaGraphConfig({', '.join(phases)})"
