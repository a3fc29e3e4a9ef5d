"""What a start of SGLang says of itself in its log. Sizes are GiB: SGLang divides by 2**30 and prints "GB"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from draftmark.engines.sglang.log.grammar import VersionRange


class WeightsLine(NamedTuple):
    """Weights loaded: the model class, free memory afterwards, what they took, and the quantisation as printed."""

    type: str
    avail_gib: float
    mem_gib: float
    quant: str | None = None


class MambaLine(NamedTuple):
    """The state pool of linear-attention layers. The intermediate states are there only under speculation."""

    max_mamba_cache_size: int
    conv_gib: float
    ssm_gib: float
    intermediate_ssm_gib: float | None
    intermediate_conv_gib: float | None


class KvLine(NamedTuple):
    """A KV pool. MLA has one tensor: then only `kv_gib` is set; it is always the whole.

    `of` is "target" or "draft": a rank's pools up to its first `Memory pool end` are the target's.
    `dtype` is None up to 0.5.12, which do not print it. `label` names a part of a pool; "post-capture" is the final
    size where the pool is sized after the graphs.
    """

    dtype: str | None
    tokens: int
    k_gib: float | None
    v_gib: float | None
    kv_gib: float
    of: str
    label: str | None = None


class SwaLine(NamedTuple):
    """Sizes of a pool with sliding-window layers, in tokens; `mem_gib` where the pool itself says them."""

    full_tokens: int
    swa_tokens: int
    mem_gib: float | None = None


class GraphLine(NamedTuple):
    """A set of graphs captured. `mem_gib` is None if the capture never ended.

    `name` is in the words of 0.5.14: "target decode", "target verify", "target prefill", "draft decode", ….
    `bs` are the captured batch sizes, for prefill the captured numbers of tokens. Up to 0.5.12 neither is printed.
    """

    name: str
    num_tokens_per_bs: int | None
    bs: tuple[int, ...]
    mem_gib: float | None
    avail_gib: float | None
    avail_before_gib: float | None = None
    elapsed_s: float | None = None
    backend: str | None = None


class SummaryLine(NamedTuple):
    """The effective values, printed once the pools and graphs are there."""

    max_total_num_tokens: int
    chunked_prefill_size: int | None
    max_prefill_tokens: int
    max_running_requests: int
    context_len: int
    available_gpu_mem_gib: float


class Warned(NamedTuple):
    """A line that says why memory or concurrency is not what was asked for. `values`: its numbers, by name."""

    line: int
    kind: str
    text: str
    values: dict[str, str]


class Failure(NamedTuple):
    """A line that says that something failed (`kind`: a rule's name in grammar.toml)."""

    line: int
    kind: str
    text: str


@dataclass(slots=True)
class RankLog:
    """What one rank says of its memory. `rank` is "" without parallelism, else as in the stamp ("DP0 TP1")."""

    rank: str = ""
    gpu_avail_before_weights_gib: float | None = None
    weights_begins: list[float] = field(default_factory=list)
    weights: list[WeightsLine] = field(default_factory=list)
    mamba: MambaLine | None = None
    kv: list[KvLine] = field(default_factory=list)
    kv_upper_bound: list[KvLine] = field(default_factory=list)
    swa: list[SwaLine] = field(default_factory=list)
    pool_ends: list[float] = field(default_factory=list)
    graphs: list[GraphLine] = field(default_factory=list)
    summary: SummaryLine | None = None


class RankDifference(NamedTuple):
    """A figure of another rank that is not the first rank's."""

    rank: str
    what: str
    first: object
    other: object


@dataclass(frozen=True, slots=True)
class BootLog:
    """One start: the last in the log. None, or empty, is what was not said.

    The memory figures are the first rank's (TP0 of DP0); `ranks` has every rank's, `differences` what differs.
    """

    version: str | None
    """Where the log names it (an image, a path, a package); SGLang itself does not print it."""
    version_range: VersionRange
    """What the wording leaves possible."""
    server_args: dict[str, object]
    """As printed, but for API keys and passwords, which are `***`."""
    server_args_complete: bool
    """False if the arguments were cut off, or not seen."""
    gpu_avail_before_weights_gib: float | None
    weights_begins: tuple[float, ...]
    """Free memory at the beginning of each load: of the target, then of what drafts."""
    weights: tuple[WeightsLine, ...]
    mamba: MambaLine | None
    kv: tuple[KvLine, ...]
    kv_upper_bound: tuple[KvLine, ...]
    swa: tuple[SwaLine, ...]
    pool_end_avail_gib: float | None
    """Free memory after the last pool, the draft's included."""
    pool_ends_gib: tuple[float, ...]
    graphs: tuple[GraphLine, ...]
    summary: SummaryLine | None
    timings_s: dict[str, float]
    replayssm: bool
    http_up: bool
    ready: bool
    warnings: tuple[Warned, ...]
    failures: tuple[Failure, ...]
    failures_left_out: int
    """Failures between the first and the last ones that are kept."""
    ranks: tuple[RankLog, ...]
    differences: tuple[RankDifference, ...]
    boots: int
    """How many starts the log holds, this one included."""
    first_line: int | None
    """The line with which this start begins."""
    unknown_lines: int
    """Records in the whole log that the grammar does not know."""
    cut: bool
    """Whether the log stops in the middle of a line: what that line says is left out where it could be a part."""
