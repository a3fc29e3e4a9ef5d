"""What a simulated server says when it dies, in SGLang's words by version. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftmark.sim.memory import GIB, Memory
from draftmark.sim.step import Step

_SITE = "/usr/local/lib/python3.12/dist-packages/sglang/srt"


def exception(frames: Sequence[tuple[str, int, str, str]], error: str) -> str:
    """A scheduler's traceback as it is logged: (file below srt/, line, function, source line) each."""
    told = "".join(
        f'  File "{_SITE}/{file}", line {line}, in {function}\n    {source}\n'
        for file, line, function, source in frames
    )
    return f"Scheduler hit an exception: Traceback (most recent call last):\n{told}{error}\n"


_START = (("managers/scheduler.py", 4931, "run_scheduler_process", "scheduler = Scheduler("),)
_LOOP = (
    ("managers/scheduler.py", 4958, "run_scheduler_process", "scheduler.run_event_loop()"),
    ("managers/scheduler.py", 1611, "event_loop_overlap", "batch_result = self.run_batch(batch)"),
)


def no_pool(memory: Memory, minor: int, available: float) -> Iterator[Step]:
    """The pools cannot be made."""
    pre = memory.case.budget.pre
    least = max(0.0, 1.0 - available / pre)
    fraction = f"{memory.fraction:g}"
    slots = memory.pools.slots
    frames = (*_START, ("model_executor/model_runner.py", 775, "alloc_memory_pool", "self.configure("))
    if minor <= 12:
        error = (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={fraction}"
        )
    elif slots is not None and slots <= 0 < memory.pools.left:
        error = (
            "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
            f"max_mamba_cache_size={slots}."
        )
    else:
        error = (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static="
            f"{fraction}. Raise --mem-fraction-static above {least:.3f} (minimum viable = 1 - available/pre = "
            f"{least:.4f}). If using speculative decoding, draft weights are now counted."
        )
    yield Step(text=exception(frames, error), after_s=0.3, first=True)


def no_graphs(minor: int) -> Iterator[Step]:
    """Nothing is left to capture graphs with."""
    flag = "--cuda-graph-max-bs" if minor <= 12 else "--cuda-graph-max-bs-decode"
    error = (
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1.25 GiB.\n"
        "Possible solutions:\n"
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
        f"2. set {flag} to a smaller value (e.g., 16)\n"
        "3. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
        "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose"
    )
    frames = (*_START, ("model_executor/model_runner.py", 944, "init_cuda_graphs", "capture_cuda_graphs("))
    yield Step(text=exception(frames, error), after_s=4.0, first=True)


def out_of_memory(memory: Memory) -> str:
    """A CUDA OOM in the middle of service."""
    total = memory.case.budget.pre / GIB
    return exception(
        (*_LOOP, ("model_executor/model_runner.py", 2304, "forward", "return self._forward_raw(")),
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of "
        f"{total:.2f} GiB of which 0.81 GiB is free. Including non-PyTorch memory, this process has "
        f"{total - 0.81:.2f} GiB memory in use.",
    )


SIGQUIT_AT_START = "Received sigquit from a child process. It usually means the child failed."


def sigquit(number: str = "3") -> str:
    """The main process hears that a child failed, in service."""
    return f"SIGQUIT received. signum={number}, frame=None. It usually means one child failed."


def watchdog(seconds: float) -> tuple[str, str]:
    """No forward pass for so long."""
    return (
        "Scheduler debug info:",
        f"Scheduler watchdog timeout (self.watchdog_timeout={seconds:g}, self.soft=False)",
    )


def child_died(name: str, pid: int, code: int) -> str:
    """A child is gone."""
    return f"Subprocess {name} (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."


def kill_tree(pid: int, *, itself: bool) -> str:
    """The last line of every teardown since 0.5.14."""
    return f"kill_process_tree called: parent_pid={pid}, include_parent={itself}, pid={pid}"


SIGTERM = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."


def draining(rids: Sequence[str]) -> str:
    """How many requests the drain waits for."""
    return (
        f"Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests "
        f"remaining_rids={list(rids)}."
    )


def retracted(requests: int, gained: int, before: float, after: float, slots: int | None) -> str:
    """Requests went back to the queue."""
    states = f", #mamba_num_gained: {slots}" if slots is not None else ""
    return (
        f"KV cache pool is full. Retract requests. #retracted_reqs: {requests}, #new_tokens_gained: {gained}"
        f"{states}, #new_token_ratio: {before:.4f} -> {after:.4f}"
    )


OUT_OF_MEMORY_REQUEST = (
    "Out of memory even after retracting all other requests in the decode batch. Aborting the last request."
)
