"""What a boot log says of the start that it is of: its flags, its fraction. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftmark.engines.sglang.memory.settings import SPECULATIVE_RUNNING, Settings, settings_of
from draftmark.model import FitFigures

if TYPE_CHECKING:
    from draftmark.engines.sglang.log.nouns import BootLog

# What memory depends on, or a start of another depth needs, by the argument's name.
_CARRIED = (
    "model_path", "dtype", "quantization", "kv_cache_dtype", "context_length", "mem_fraction_static",
    "max_total_tokens", "chunked_prefill_size", "max_prefill_tokens", "page_size", "swa_full_tokens_ratio",
    "tp_size", "pp_size", "dp_size", "attn_dp_size", "ep_size", "moe_a2a_backend",
    "max_running_requests", "mamba_full_memory_ratio", "max_mamba_cache_size",
    "mamba_ssm_dtype", "mamba_track_interval", "linear_attn_backend", "linear_replayssm_cache_len",
    "speculative_algorithm",
    "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
    "speculative_draft_model_path", "speculative_draft_model_quantization", "speculative_adaptive_config",
    "disaggregation_mode", "json_model_override_args",
    "cpu_offload_gb",
)  # fmt: skip
_SWITCHES = (
    "disable_radix_cache", "disable_overlap_schedule", "disable_hybrid_swa_memory", "enable_dp_attention",
    "disable_cuda_graph", "enable_linear_replayssm_spec", "language_only", "speculative_adaptive",
    "enable_unified_memory", "enable_hisparse", "enable_memory_saver",
)  # fmt: skip
# Without these a start's flags are not known, and what is asked of the other depths would be another service.
_NEEDED = (
    "model_path", "kv_cache_dtype", "mem_fraction_static", "max_running_requests", "page_size",
    "disable_radix_cache", "tp_size", "pp_size", "dp_size", "speculative_algorithm", "mamba_full_memory_ratio",
)  # fmt: skip
_STRATEGIES = ("mamba_radix_cache_strategy", "mamba_scheduler_strategy")
# Left to the card where a command line does not say them; the log has what became of them.
_RESOLVED = ("chunked_prefill_size", "page_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """A start that a log is of.

    Attributes:
        settings: With which it was started.
        fraction: `--mem-fraction-static` in force.
        values: Its arguments; `max_running_requests` only where it was asked for.
        complete: The log has them all.
        running_unsure: `max_running_requests` may be what speculation set, the line that says so being lost.
    """

    log: BootLog
    settings: Settings
    fraction: float | None
    values: Mapping[str, object]
    complete: bool
    running_unsure: bool = False

    def missing(self) -> list[str]:
        """Flags that memory depends on and that were cut off."""
        return [] if self.complete else [_flag(name) for name in _NEEDED if name not in self.values]

    def resolved(self) -> dict[str, object]:
        """What it took for flags that a command line leaves to the card."""
        return {name: self.values[name] for name in _RESOLVED if self.values.get(name) is not None}


def read(lines: Iterable[str]) -> BootLog:
    """The last start in a log. Its grammar is loaded only for one who has a log."""
    from draftmark.engines.sglang.log.boot import read_boot

    return read_boot(lines)


def boot_of(log: BootLog, command_values: Mapping[str, object]) -> Boot | None:
    """The start of a log; None when neither log nor command line say with what it was started.

    Speculation sets a running limit of 48 by itself, and the arguments are printed with it: a line that says so
    tells it from one that was asked for.
    """
    logged = dict(log.server_args)
    complete = bool(logged) and log.server_args_complete
    values: dict[str, object] = {**({} if complete else command_values), **logged}
    if not values:
        return None
    unsure = False
    if any(each.kind == "running-reset-48" for each in log.warnings):
        values["max_running_requests"] = None
    elif logged.get("max_running_requests") == SPECULATIVE_RUNNING and _speculates(logged):
        unsure = True
        if not (log.warnings and log.warnings[0].line == log.first_line):  # the launcher's words were cut off
            values["max_running_requests"] = None
    chunk = values.get("chunked_prefill_size")
    settings = settings_of(values)
    if settings.dp_attention and isinstance(chunk, int) and logged.get("chunked_prefill_size") == chunk:
        values["chunked_prefill_size"] = chunk * settings.dp  # printed once it is divided among the groups
        settings = settings_of(values)
    return Boot(
        log=log,
        settings=settings,
        fraction=settings.fraction,
        values=values,
        complete=complete,
        running_unsure=unsure,
    )


def command_of(values: Mapping[str, object], model: str | None) -> tuple[str, ...]:
    """A command line with the arguments of a log that memory depends on."""
    words: list[str] = ["python3", "-m", "sglang.launch_server"]
    for name in _CARRIED:
        value = model if name == "model_path" and model else values.get(name)
        if (
            value is None
            or value is False
            or value == ""
            or (name.startswith("speculative") and not _speculates(values))
        ):
            continue
        words += [_flag(name), str(value)]
    words += [_flag(name) for name in _SWITCHES if values.get(name) is True]
    for name in _STRATEGIES:
        if isinstance(values.get(name), str):
            words += [_flag(name), str(values[name])]
            break
    return tuple(words)


def _speculates(values: Mapping[str, object]) -> bool:
    return values.get("speculative_algorithm") not in (None, "", "NONE")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def same_weights(own: Settings, other: Settings) -> Sequence[str]:
    """Why figures of one start do not hold for another: flags that change what a rank loads."""
    names = (("tp", "--tp-size"), ("pp", "--pp-size"), ("quantization", "--quantization"), ("dtype", "--dtype"))
    return [flag for name, flag in names if getattr(own, name) != getattr(other, name)]


def figures_of(lines: Sequence[str]) -> FitFigures | None:
    """What the last start in a log has; None when it never said."""
    log = read(lines)
    if log.summary is None:
        return None
    return FitFigures(
        kv_tokens=log.summary.max_total_num_tokens,
        max_running_requests=log.summary.max_running_requests,
        state_slots=log.mamba.max_mamba_cache_size if log.mamba else None,
    )
