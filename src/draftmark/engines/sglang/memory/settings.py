"""The flags of one arm that memory depends on, resolved as SGLang resolves them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftmark.engines.sglang.flags import parse
from draftmark.engines.sglang.memory.graphs import LISTS, graphs_of
from draftmark.engines.sglang.versions import rules_for

# Arguments that changed their name.
_ALIASES = {
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
    "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
}
_EAGLE = frozenset({"EAGLE", "EAGLE3", "FROZEN_KV_MTP", "STANDALONE"})
# 14:arg_groups/speculative_hook.py:512-545: (steps, topk, draft tokens) when all three are left out.
_AUTO = {"LlamaForCausalLM": (5, 4, 8), "Grok1ForCausalLM": (5, 4, 8), "Grok1VForCausalLM": (5, 4, 8)}
_AUTO_ELSE = (3, 1, 4)
_NGRAM_DRAFT_TOKENS = 12
_DFLASH_BLOCK = 16
SPECULATIVE_RUNNING = 48
"""Requests at once that speculation sets when `--max-running-requests` is not given (14:…hook:260-405)."""

_LONGEST, _MOST_DIGITS = 100, 15

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one start is asked for.

    Attributes:
        fraction: `--mem-fraction-static`; None for the default.
        algorithm: Upper case, NEXTN as EAGLE; None without speculation.
        steps: `--speculative-num-steps`; 0 without speculation.
        draft_tokens: D: tokens that one verification looks at; 0 without speculation.
        draft_path: Of the draft model; None when it is loaded from the target or there is none.
        running: `--max-running-requests` as asked for; None for the default.
        state_slots: `--max-mamba-cache-size`.
        state_ratio: `--mamba-full-memory-ratio`.
        strategy: `--mamba-radix-cache-strategy`.
        dp: With data-parallel attention, the groups that the ranks are divided into; else whole replicas.
        dp_attention: Whether attention is divided so. With one group it is not.
        chunked_prefill: `--chunked-prefill-size` of all groups together.
        window_eviction: Tokens after which a sliding window's oldest are given back.
        prefill_graph_tokens: Largest prefill that is captured; `prefill_graph_sizes`: how many sizes, if listed.
        candidates: Steps that it switches between while it serves; empty where they stay.
    """

    model_path: str | None = None
    fraction: float | None = None
    algorithm: str | None = None
    steps: int = 0
    topk: int = 1
    draft_tokens: int = 0
    draft_path: str | None = None
    draft_quantization: str | None = None
    running: int | None = None
    max_total_tokens: int | None = None
    page_size: int = 1
    kv_dtype: str = "auto"
    dtype: str = "auto"
    ssm_dtype: str | None = None
    state_slots: int | None = None
    state_ratio: float = 0.9
    strategy: str = "auto"
    linear_backend: str = "triton"
    radix: bool = True
    overlap: bool = True
    window_ratio: float = 0.8
    hybrid_window: bool = True
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dp_attention: bool = False
    context: int | None = None
    chunked_prefill: int | None = None
    prefill_tokens: int | None = None
    graph_max_bs: int | None = None
    graphs: bool = True
    prefill_graphs: bool = True
    prefill_graph_tokens: int | None = None
    prefill_graph_sizes: int | None = None
    deepep: bool = False
    window_eviction: int = 128
    track_interval: int = 256
    replayssm: bool = False
    replay_length: int = 16
    quantization: str | None = None
    language_only: bool = False
    candidates: tuple[int, ...] = ()

    @property
    def eagle(self) -> bool:
        """The draft is a model with a KV pool of its own, as long as the target's."""
        return self.algorithm in _EAGLE

    @property
    def most_draft_tokens(self) -> int:
        """Of all candidates: what buffers are sized for, where the budget goes by the one at the start."""
        return max(self.draft_tokens, *(steps + 1 for steps in self.candidates), 0)

    @property
    def attention_tp(self) -> int:
        """Ranks that one request's attention is spread over."""
        return max(1, self.tp // self.dp) if self.dp_attention else self.tp

    @property
    def shards(self) -> int:
        """Workers that `--max-running-requests` is divided among.

        Replicas each have all of it (10:model_executor/model_runner.py:340, 17:layers/dp_attention.py:320).
        """
        return max(1, self.dp) if self.dp_attention else 1

    @property
    def rank_chunk(self) -> int | None:
        """Tokens that one group prefills at a time (10:server_args.py:2641, 23:arg_groups/parallel_hook.py:327)."""
        if self.chunked_prefill is None or not self.dp_attention:
            return self.chunked_prefill
        return self.chunked_prefill // self.dp

    def requested(self) -> int | None:
        """M: requests at once of one worker as asked for, or as speculation sets it; None for SGLang's estimate."""
        asked = self.running
        if asked is None and self.algorithm is not None:
            asked = SPECULATIVE_RUNNING
        return None if asked is None else asked // self.shards


def values_of(command: Sequence[str], version: str | None) -> dict[str, object]:
    """Flags of a command line under the argument's own name; a flag without value is True or False."""
    parsed = parse(command, rules_for(version))
    found: dict[str, object] = {"model_path": parsed.positional}
    for given in parsed.given:
        name = given.name.removeprefix("--").replace("-", "_")
        name = _ALIASES.get(name, name)
        if name in LISTS:
            found[name] = given.values
        else:
            found[name] = given.values[-1] if given.values else not given.spelled.startswith("--no-")
    return found


def settings_of(values: Values, architecture: str | None = None) -> Settings:
    """Settings from arguments by name, as on a command line (strings) or in a log's `server_args` (typed).

    Raises:
        ValueError: A number is none; the argument's name is in the message.
    """
    algorithm = _algorithm(values)
    steps, topk, tokens = _shape(values, algorithm, architecture)
    dp, dp_attention = _data_parallel(values)
    graphs = graphs_of(values)
    return Settings(
        model_path=_text(values, "model_path"),
        fraction=_share(values, "mem_fraction_static"),
        algorithm=algorithm,
        steps=steps,
        topk=topk,
        draft_tokens=tokens,
        draft_path=_text(values, "speculative_draft_model_path") if algorithm else None,
        draft_quantization=_text(values, "speculative_draft_model_quantization"),
        running=_count(values, "max_running_requests"),
        max_total_tokens=_count(values, "max_total_tokens"),
        page_size=_count(values, "page_size") or 1,
        kv_dtype=_text(values, "kv_cache_dtype") or "auto",
        dtype=_text(values, "dtype") or "auto",
        ssm_dtype=_text(values, "mamba_ssm_dtype"),
        state_slots=_count(values, "max_mamba_cache_size"),
        state_ratio=_or(_float(values, "mamba_full_memory_ratio"), 0.9),
        strategy=_text(values, "mamba_radix_cache_strategy") or _text(values, "mamba_scheduler_strategy") or "auto",
        linear_backend=_text(values, "linear_attn_backend") or "triton",
        track_interval=_count(values, "mamba_track_interval") or 256,
        radix=not _flag(values, "disable_radix_cache"),
        overlap=not _flag(values, "disable_overlap_schedule"),
        window_ratio=_or(_float(values, "swa_full_tokens_ratio"), 0.8),
        hybrid_window=not _flag(values, "disable_hybrid_swa_memory"),
        tp=_count(values, "tp_size") or 1,
        pp=_count(values, "pp_size") or 1,
        dp=dp,
        ep=_count(values, "ep_size") or 1,
        dp_attention=dp_attention,
        context=_count(values, "context_length"),
        chunked_prefill=_int(values, "chunked_prefill_size"),
        prefill_tokens=_int(values, "max_prefill_tokens"),
        graph_max_bs=graphs.max_bs,
        graphs=graphs.decode,
        prefill_graphs=graphs.prefill,
        prefill_graph_tokens=graphs.prefill_tokens,
        prefill_graph_sizes=graphs.prefill_sizes,
        deepep=_text(values, "moe_a2a_backend") == "deepep",
        replayssm=_flag(values, "enable_linear_replayssm_spec"),
        replay_length=_int(values, "linear_replayssm_cache_len") or 16,
        quantization=_text(values, "quantization"),
        language_only=_flag(values, "language_only"),
    )


def _data_parallel(values: Values) -> tuple[int, bool]:
    """Groups or replicas, and whether they are groups of data-parallel attention.

    0.5.23 counts groups by `--attn-dp-size`, of which `--dp-size N --enable-dp-attention` is the older spelling
    (23:arg_groups/parallel_hook.py:40-60, 285-295); with one group there is none of it.
    """
    replicas, groups = _count(values, "dp_size") or 1, _count(values, "attn_dp_size") or 1
    if groups > 1 and replicas > 1:
        raise ValueError(
            f"--dp-size {replicas} with --attn-dp-size {groups}: SGLang ends with a ValueError, replicas of "
            "data-parallel attention not being supported"
        )
    if groups > 1:
        return groups, True
    return replicas, replicas > 1 and _flag(values, "enable_dp_attention")


def _algorithm(values: Values) -> str | None:
    name = (_text(values, "speculative_algorithm") or "").upper()
    if name in ("", "NONE"):
        return None
    return "EAGLE" if name == "NEXTN" else name


def _shape(values: Values, algorithm: str | None, architecture: str | None) -> tuple[int, int, int]:
    """Steps, width of the draft tree and D, as the hooks of A.2 resolve them."""
    if algorithm is None:
        return 0, 1, 0
    steps = _int(values, "speculative_num_steps")
    topk = _int(values, "speculative_eagle_topk")
    tokens = _int(values, "speculative_num_draft_tokens")
    if algorithm == "NGRAM":
        tokens = tokens or _NGRAM_DRAFT_TOKENS
        width = topk or 10
        return steps or max(1, tokens // width), width, tokens
    block = _int(values, "speculative_dspark_block_size")
    if algorithm == "DSPARK" and block is not None:  # 17:arg_groups/speculative_hook.py: the anchor comes on top
        return 1, 1, block + 1
    if algorithm not in _EAGLE:  # DFLASH and its kin draft one block at a time
        return 1, 1, tokens or _int(values, "speculative_dflash_block_size") or _DFLASH_BLOCK
    if steps is None:
        auto = _AUTO_ELSE if algorithm == "STANDALONE" else _AUTO.get(architecture or "", _AUTO_ELSE)
        steps, topk, tokens = auto
    topk = topk or 1
    return steps, topk, steps + 1 if topk == 1 or tokens is None else tokens


def _plain(values: Values, name: str) -> object:
    value = values.get(name)
    return None if value is None or value is True or value in ("None", "null", "") else value


def _text(values: Values, name: str) -> str | None:
    value = _plain(values, name)
    return None if value is None else str(value)


def _int(values: Values, name: str) -> int | None:
    value = _plain(values, name)
    if value is None:
        return None
    try:
        number = int(str(value)[:_LONGEST])
    except ValueError:
        raise ValueError(f"{_flag_name(name)} {str(value)[:60]!r} is not a whole number") from None
    if len(str(value)) > _MOST_DIGITS:
        raise ValueError(f"{_flag_name(name)} {str(value)[:60]} is not a number that a server could have")
    return number


def _count(values: Values, name: str) -> int | None:
    number = _int(values, name)
    if number is not None and number < 1:
        raise ValueError(f"{_flag_name(name)} {number} is not a number above 0")
    return number


def _share(values: Values, name: str) -> float | None:
    number = _float(values, name)
    if number is not None and number > 1:
        raise ValueError(f"{_flag_name(name)} {number:g} is no share of the memory: it is between 0 and 1")
    return number


def _float(values: Values, name: str) -> float | None:
    value = _plain(values, name)
    if value is None:
        return None
    try:
        number = float(str(value))
    except ValueError:
        raise ValueError(f"{_flag_name(name)} {str(value)[:60]!r} is not a number") from None
    if not 0 < number < 1e6:
        raise ValueError(f"{_flag_name(name)} {str(value)[:60]!r} is not a number above 0")
    return number


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def adapts(values: Values) -> bool:
    """Whether the steps are to change while it serves."""
    return _flag(values, "speculative_adaptive") and _algorithm(values) is not None


def _flag(values: Values, name: str) -> bool:
    value = values.get(name)
    if isinstance(value, str):
        return value.lower() not in ("false", "0", "none")
    return bool(value)


def _flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")
