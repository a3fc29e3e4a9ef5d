"""What a hasty reader gets wrong: words that mean something else, wrappers, and deaths of others."""

from __future__ import annotations

import pytest

from draftmark.postmortem.model import Source

from .small import DECODE, SGLANG_START, SGLANG_UP, STARTED, crash, journal, kernel, log, timed, verdict

SERVED = (*SGLANG_UP, DECODE, DECODE, DECODE)
VLLM_UP = ("vLLM API server version 0.32.0", "INFO:     Application startup complete.")
LLAMA = ("build: 6411 (5fd1a2c4) with cc", "main: loading model")
TORN_DOWN = (
    "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    "kill_process_tree called: parent_pid=9, include_parent=True, pid=9",
)
TIDY = (
    "SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
    "Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].",
    TORN_DOWN[1],
)
STOPPING = (0.0, "Stopping llm.service - LLM server...")
TIDILY = (5.0, "llm.service: Deactivated successfully.")
SHM = "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-3b, error: No space left on device (28)"
NCCL = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268"


def guard(comm: str, pid: int) -> Source:
    text = f'sending SIGTERM to process {pid} uid 26 "{comm}": oom_score 1302, VmRSS 61022 MiB, cmdline "{comm}"'
    return timed([(4, text)], name="earlyoom.log", ident="earlyoom")


def chained(first: str, second: str) -> tuple[str, ...]:
    link = "During handling of the above exception, another exception occurred:"
    return (*crash(first, head=""), "", link, "", *crash(second))


CASES: dict[str, tuple[str, tuple[Source, ...]]] = {
    "a guard of memory uses SIGTERM, and the exit is tidy": (
        "earlyoom",
        (log(*SERVED, *TIDY), guard("python3", 4471), journal(STARTED, TIDILY)),
    ),
    "the same guard took a neighbour": (
        "healthy-exit",
        (log(*SERVED, *TIDY), guard("postgres", 812), journal(STARTED, STOPPING, TIDILY)),
    ),
    "NCCL's system error is about /dev/shm": (
        "shared-memory-too-small",
        (log(SGLANG_START[0], SHM, *crash(f"{NCCL}, unhandled system error, NCCL version 2.21.5")),),
    ),
    "NCCL's CUDA error is an out-of-memory": (
        "cuda-oom-runtime-activation",
        (
            log(
                SGLANG_START[0],
                "alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'",
                *crash(f"{NCCL}, unhandled cuda error"),
            ),
        ),
    ),
    "a failed capture is printed with advice about memory": (
        "unsupported-model-feature",
        (
            log(
                *SGLANG_START,
                "Capture cuda graph begin. avail mem=9.80 GB",
                *chained("ValueError: Unsupported head_dim: 112", "Exception: Capture cuda graph failed: head_dim"),
                "Possible solutions:",
                "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
            ),
        ),
    ),
    "the books do not balance, and no memory is short": (
        "kv-accounting-leak",
        (
            log(
                *SERVED,
                *crash("ValueError: token_to_kv_pool_allocator memory leak detected! size=281002"),
                *TORN_DOWN,
            ),
        ),
    ),
    "out of memory of the token pool": (
        "kv-pool-exhausted",
        (log(*SERVED, *crash("RuntimeError: Decode out of memory. Try to lower your batch size."), *TORN_DOWN),),
    ),
    "the watchdog's own dump fails": (
        "watchdog-timeout",
        (
            log(
                *SERVED,
                "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
                "Pyspy failed to dump PID 4471. Error: py-spy: command not found",
                *TORN_DOWN,
                "Killed",
            ),
        ),
    ),
    "a worker's SIGTERM is not a stop of the service": (
        "user-or-supervisor-sigterm",
        (log(*VLLM_UP, "[shutdown] EngineCore: trigger received signal=SIGTERM"),),
    ),
    "a clean stop of vLLM kills what remains and calls the engine dead": (
        "healthy-exit",
        (
            log(
                *VLLM_UP,
                "[shutdown] API server: shutdown triggered",
                "[shutdown] Process manager: force killing remaining processes count=1",
                "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
                "INFO:     Application shutdown complete.",
            ),
            journal(STARTED, STOPPING, TIDILY),
        ),
    ),
    "the port is noticed after the start looked complete": (
        "port-in-use",
        (
            log(
                *SGLANG_UP[:-1],
                "ERROR:    [Errno 98] bind on address ('0.0.0.0', 30000): address already in use",
                "INFO:     Application shutdown complete.",
            ),
        ),
    ),
    "a probe's kill looks like Ctrl-C": (
        "liveness-probe-kill",
        (
            log(VLLM_UP[0], *crash("KeyboardInterrupt: terminated", head="")),
            log("Container vllm failed startup probe, will be restarted", name="events.txt"),
        ),
    ),
    "a limit of processes that is a neighbour's": (
        "python-exception-scheduler",
        (
            log(*SERVED, *crash("IndexError: x"), *TORN_DOWN),
            journal(STARTED),
            kernel((1, "cgroup: fork rejected by pids controller in /system.slice/reportd.service")),
        ),
    ),
    "the kernel killed in another container": (
        "user-or-supervisor-sigkill",
        (
            log(*SERVED, "Killed"),
            kernel((1, "Memory cgroup out of memory: Killed process 5 (java) total-vm:1kB, anon-rss:1kB")),
        ),
    ),
    "llama.cpp loads, and the context does not fit": (
        "cuda-oom-kv-pool-init",
        (
            log(
                *LLAMA,
                "llama_context: constructing llama_context",
                "ggml_backend_cuda: allocating 9216.00 MiB on device 0: cudaMalloc failed: out of memory",
                "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
                "main: exiting due to model loading error",
            ),
        ),
    ),
    "llama.cpp gives up loading because the file is broken": (
        "model-load-error",
        (
            log(
                *LLAMA,
                "gguf_init_from_file_impl: invalid magic characters: 'PK', expected 'GGUF'",
                "srv    load_model: failed to load model, '/srv/q.gguf'",
                "main: exiting due to model loading error",
            ),
        ),
    ),
    "one request found no descriptor": (
        "healthy-running",
        (log(*SERVED, *crash("OSError: [Errno 24] Too many open files", head=""), DECODE, DECODE, DECODE),),
    ),
    "memory of the card is somebody else's": (
        "gpu-memory-busy-at-start",
        (
            log(
                VLLM_UP[0],
                *crash(
                    "ValueError: Free memory on device cuda:0 (12/79 GiB) on startup is less than desired GPU "
                    "memory utilization (0.92, 72.85 GiB).",
                    head="",
                ),
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_trap(name: str) -> None:
    cause, sources = CASES[name]
    assert verdict(*sources).cause == cause


def test_what_systemd_does_afterwards_is_no_evidence() -> None:
    found = verdict(
        journal(
            STARTED,
            (3.0, "llm.service: Main process exited, code=exited, status=1/FAILURE"),
            (3.0, "llm.service: Failed with result 'exit-code'."),
            (3.0, "llm.service: Triggering OnFailure= dependencies."),
        )
    )
    assert found.cause == "unsettled"
    assert [e.text.rpartition("llm.service: ")[2] for e in found.evidence] == [
        "Main process exited, code=exited, status=1/FAILURE",
        "Failed with result 'exit-code'.",
    ]


def test_a_main_process_that_is_gone_without_a_word_is_not_called_running() -> None:
    tracker = (
        "/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear "
        "to be 1 leaked semaphore objects to clean up at shutdown",
        "  warnings.warn('resource_tracker: There appear to be %d '",
    )
    warned = "torch ulimit: Found ulimit of 1024 and failed to automatically increase"
    found = verdict(log(*SERVED, warned, *tracker))
    assert found.cause == "unsettled"
    assert "resource tracker" in found.summary
    assert verdict(log(*SERVED, *TIDY, *tracker)).cause == "healthy-exit"
