"""How a simulated start fills the GPU: weights, pools, graphs, with the memory that each leaves. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftmark.engines.model_config import ModelShape
from draftmark.sim import failures
from draftmark.sim.graphs import Graphs, sets_of
from draftmark.sim.memory import GIB, Memory
from draftmark.sim.step import Step

IMPORT_S = 22.0
"""Until the first line of a scheduler."""
_READ_RATE = 4.0e9  # bytes a second from disk, all ranks together
_KERNEL_COLUMNS = 1  # of the convolution's window, beyond D: D + kernel - 2 in all, kernel - 1 in a slot

_MTP = {
    "Qwen3NextForCausalLM": "Qwen3NextForCausalLMMTP",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5ForCausalLMMTP",
}


GRAPH_KEYS = {
    "prefill": "target prefill",
    "decode": "target decode",
    "target_verify": "target verify",
    "draft_prefill": "draft prefill",
    "draft_decode": "draft decode",
    "draft_extend": "draft extend",
}
"""Names of graph sets as timings and memory_usage have them, and as the log has."""


class StartFailedError(Exception):
    """The start ends here; the log has said why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a start is told of.

    Attributes:
        minor: Version 0.5.minor whose words hold.
        args: `server_args`.
        deprecated: Flags given that the version warns of, each with what to write instead.
        die: `kv-start`, to fail where pools are made.
    """

    minor: int
    memory: Memory
    shape: ModelShape
    args: dict[str, object]
    deprecated: tuple[tuple[str, str], ...] = ()
    die: str | None = None


class Loader:
    """Weights, pools and graphs, with the memory that each leaves."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.memory = start.memory
        self.settings = start.memory.settings
        self.free = start.memory.begin
        self.load_s = 0.0
        self.graph_s: dict[str, float] = {}

    def target_weights(self) -> Iterator[Step]:
        """The target's."""
        memory = self.memory
        self.load_s = memory.weights * self.settings.tp / _READ_RATE
        yield from self._weights(self.start.shape.architecture, memory.weights, self.load_s)

    def draft_weights(self) -> Iterator[Step]:
        """The draft's, where there is one."""
        memory = self.memory
        if not memory.draft_weights or memory.case.draft is None:
            return
        own = memory.case.draft.architecture
        name = _MTP.get(own, own if self.settings.draft_path else f"{own}NextN") or "DraftForCausalLM"
        seconds = memory.draft_weights * self.settings.tp / _READ_RATE
        yield from self._weights(name, memory.draft_weights, seconds)

    def _weights(self, name: str, amount: float, seconds: float) -> Iterator[Step]:
        yield Step(text=f"Load weight begin. avail mem={self._gib(self.free)}", after_s=1.0, ranks=True)
        self.free -= amount
        quant = self.start.shape.quantization.method
        kind = f"type={name}, {f'quant={quant}, ' if quant else ''}"
        yield Step(
            text=f"Load weight end. elapsed={seconds:.2f} s, {kind}avail mem={self._gib(self.free)}, "
            f"mem usage={self._gib(amount)}.",
            after_s=seconds,
            ranks=True,
        )

    def target_pool(self) -> Iterator[Step]:
        """State slots and KV; or why there is no room for them."""
        memory, pools = self.memory, self.memory.pools
        if self.start.die == "kv-start" or not pools.starts:
            yield from failures.no_pool(memory, self.start.minor, self.free)
            raise StartFailedError
        yield from self._reduced()
        if memory.model.state is not None:
            yield Step(text=self._state(), after_s=0.2, ranks=True)
        cell = memory.case.parts()[0]
        window = memory.model.window is not None
        size = pools.tokens * (cell.bytes if window else cell.target) + cell.fixed
        if window:
            swa = int(pools.tokens * self.settings.window_ratio)
            yield Step(
                text=f"Use sliding window memory pool. full_layer_tokens={pools.tokens}, swa_layer_tokens={swa}",
                ranks=True,
            )
        yield Step(text=self._kv(pools.tokens, size), after_s=0.2, ranks=True)
        self.free -= size + pools.state_taken
        yield Step(text=f"Memory pool end. avail mem={self._gib(self.free)}", ranks=True)

    def draft_pool(self) -> Iterator[Step]:
        """As long as the target's."""
        if not self.settings.eagle:
            return
        size = self.memory.draft_pool_bytes
        self.free -= size
        if self.start.minor <= 12 or self.free > 0:
            yield Step(text=self._kv(self.memory.pools.tokens, size), ranks=True)
            yield Step(text=f"Memory pool end. avail mem={self._gib(self.free)}", ranks=True)

    def _reduced(self) -> Iterator[Step]:
        pools, asked = self.memory.pools, self.settings.requested()
        if asked is None or pools.running >= asked or self.start.minor < 14:
            return
        if pools.limit == "state-slots" and self.start.minor >= 17:
            cost = self.memory.case.parts()[1]
            per_request = cost.per_request if cost else 1
            yield Step(
                text=f"max_running_requests is capped to {pools.running} by the mamba state cache "
                f"(max_mamba_cache_size={pools.slots}, {per_request} state slots per request). To raise it: "
                "increase --mamba-full-memory-ratio or --max-mamba-cache-size, or halve the state size with "
                "--mamba-ssm-dtype bfloat16.",
                ranks=True,
            )
            return
        yield Step(
            text=f"max_running_requests was reduced from the requested {asked} to {pools.running} (per dp worker) "
            "due to the available KV cache capacity.",
            ranks=True,
        )

    def _state(self) -> str:
        """Sizes as they are allocated: one slot more than is told from 0.5.17 on."""
        memory = self.memory
        state, cost = memory.model.state, memory.case.parts()[1]
        assert state is not None  # noqa: S101 - the caller looked
        assert cost is not None  # noqa: S101 - as the state
        extra = 1 if memory.case.rules.state == "padded" else 0
        slots, running = (memory.pools.slots or 0) + extra, memory.pools.running + extra
        matrices = max(1, state.heads // self.settings.attention_tp) * state.rows * state.columns * state.layers
        item = 2 if (self.settings.ssm_dtype or state.dtype) in ("bfloat16", "float16") else 4
        ssm = matrices * item
        conv = cost.slot - ssm
        text = (
            f"Mamba Cache is allocated. max_mamba_cache_size: {memory.pools.slots}, "
            f"conv_state size: {slots * conv / GIB:.2f}GB, ssm_state size: {slots * ssm / GIB:.2f}GB "
        )
        drafted = cost.draft_tokens
        if drafted:
            columns = drafted + state.conv_columns - _KERNEL_COLUMNS
            window = running * conv / max(1, state.conv_columns) * columns
            text += (
                f"intermediate_ssm_state_cache size: {running * drafted * ssm / GIB:.2f}GB "
                f"intermediate_conv_window_cache size: {window / GIB:.2f}GB "
            )
        return text

    def _kv(self, tokens: int, size: float) -> str:
        dtype = "" if self.start.minor <= 12 else f"dtype: {self._dtype()}, "
        if self.memory.model.latent is not None:
            return f"KV Cache is allocated. {dtype}#tokens: {tokens}, KV size: {size / GIB:.2f} GB"
        half = size / 2 / GIB
        return f"KV Cache is allocated. {dtype}#tokens: {tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB"

    def _dtype(self) -> str:
        name = self.settings.kv_dtype
        if name == "auto":
            return "torch.bfloat16" if self.memory.model.dtype == "bfloat16" else f"torch.{self.memory.model.dtype}"
        return {"fp8_e4m3": "torch.float8_e4m3fn", "fp8_e5m2": "torch.float8_e5m2"}.get(name, f"torch.{name}")

    # --- graphs ---------------------------------------------------------------------------------------------------

    def graphs(self, *, draft: bool) -> Iterator[Step]:
        """The target's, or the draft's; or why they cannot be captured."""
        if not draft and self.memory.slack.enough is False:
            yield from failures.no_graphs(self.start.minor)
            raise StartFailedError
        for each in sets_of(self.memory, self.start.minor):
            if each.draft is draft:
                yield from self._captured(each)

    def _captured(self, each: Graphs) -> Iterator[Step]:
        taken = min(each.bytes, 0.3 * max(0.0, self.free))
        before, self.free = self.free, self.free - taken
        self.graph_s[each.name] = each.seconds
        minor = self.start.minor
        if minor <= 12:
            yield from self._captured_old(each, before, taken)
            return
        sizes = f"{'num_tokens' if each.prefill else 'bs'}={list(each.sizes)}, "
        per = "" if each.prefill else f"num_tokens_per_{'bs' if minor == 14 else 'req'}={each.tokens}, "
        late = minor >= 23 and each.name in ("target verify", "target decode")
        backend = f"backend={'breakable' if each.prefill else 'full'}, "
        yield Step(
            text=f"Capture {each.name} CUDA graph begin. {backend}{per}{'' if late else sizes}"
            f"avail mem={self._gib(before)}",
            ranks=True,
        )
        yield Step(
            text=f"Capture {each.name} CUDA graph end. {sizes if late else ''}elapsed={each.seconds:.2f} s, "
            f"mem usage={self._gib(taken)}, avail mem={self._gib(self.free)}.",
            after_s=each.seconds,
            ranks=True,
        )

    def _captured_old(self, each: Graphs, before: float, taken: float) -> Iterator[Step]:
        """In the words up to 0.5.12, in which the target's have no name."""
        name = {"draft decode": "draft ", "draft extend": "draft extend ", "target prefill": "piecewise "}
        noun = "CUDA" if each.prefill else "cuda"
        said = f"Capture {name.get(each.name, '')}{noun} graph"
        long = "" if each.prefill else "This can take up to several minutes. "
        yield Step(text=f"{said} begin. {long}avail mem={self._gib(before)}", ranks=True)
        yield Step(
            text=f"{said} end. Time elapsed: {each.seconds:.2f} s. mem usage={self._gib(taken)}. "
            f"avail mem={self._gib(self.free)}.",
            after_s=each.seconds,
            ranks=True,
        )

    # --- the end --------------------------------------------------------------------------------------------------

    def summary(self) -> Iterator[Step]:
        """What it came to."""
        memory = self.memory
        yield Step(
            text=f"max_total_num_tokens={memory.pools.tokens}, chunked_prefill_size={memory.chunked_prefill}, "
            f"max_prefill_tokens={self.start.args.get('max_prefill_tokens', 16384)}, "
            f"max_running_requests={memory.pools.running}, context_len={memory.context}, "
            f"available_gpu_mem={self._gib(self.free)}",
            first=True,
        )
        if self.start.minor < 17:
            return
        captured = "".join(
            f"{', ' if index else ''}{key}={self.graph_s.get(name, 0.0):.2f}"
            for index, (key, name) in enumerate(GRAPH_KEYS.items())
        )
        whole = IMPORT_S + self.load_s + sum(self.graph_s.values())
        yield Step(
            text=f"Engine startup timings (s): load_weight={self.load_s:.2f}, kv_cache_allocation=0.40, "
            f"scheduler_e2e={whole:.2f}, cuda_graph={{{captured}}}, tokenizer_e2e={whole + 4:.2f}"
        )

    def _gib(self, amount: float) -> str:
        return f"{max(0.0, amount) / GIB:.2f} GB"
