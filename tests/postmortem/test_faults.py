"""What failed, what that means where it happened, and what the server lived through."""

from __future__ import annotations

import pytest

from draftmark.cli.compose_why import tables
from draftmark.postmortem.faults import Fault, Stage
from draftmark.postmortem.model import Line, Phase
from draftmark.postmortem.scene import Stream, build_scene

from .small import DECODE, FRAME, SGLANG_START, SGLANG_UP, crash, line, log

ACTIVATION, KV_POOL = "cuda-oom-runtime-activation", "cuda-oom-kv-pool-init"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB"
SRT = "/sgl-workspace/sglang/python/sglang/srt"


def frame(path: str, function: str = "run") -> str:
    return f'  File "{path}", line 7, in {function}'


def stream(*texts: str | Line) -> Stream:
    return build_scene([log(*texts)], tables()).streams[0]


def faults(*texts: str | Line) -> list[Fault]:
    return stream(*texts).faults


def one(*texts: str | Line) -> Fault:
    found = faults(*texts)
    assert len(found) == 1, [(fault.cause, fault.line.text) for fault in found]
    return found[0]


# Phases and steps.


def stage(*texts: str | Line) -> Stage:
    return stream(*texts).stage


def test_the_phase_follows_the_log() -> None:
    marks = stage(
        *SGLANG_UP, DECODE, "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    )
    assert [marks.phase(order) for order in range(8)] == [Phase.STARTUP] * 5 + [Phase.SERVING] * 2 + [
        Phase.SHUTDOWN
    ]
    assert marks.phase(7, before_stop=True) is Phase.SERVING


def test_http_that_is_up_is_not_ready_where_the_engine_has_a_ready_line() -> None:
    assert stage(*SGLANG_UP[:-1]).phase(9) is Phase.STARTUP
    assert stage(*SGLANG_UP[:-1]).warming_up(9)
    assert not stage(*SGLANG_UP).warming_up(9)


def test_a_log_that_begins_in_service_is_serving() -> None:
    assert stage(DECODE, DECODE).phase(1) is Phase.SERVING


def test_before_any_mark_nothing_tells_unless_a_start_follows() -> None:
    assert stage("x").phase(0) is None
    assert stage("x", SGLANG_START[0]).phase(0) is Phase.STARTUP
    assert stage("x", DECODE).phase(0) is None


def test_the_step_of_a_start() -> None:
    marks = stage(
        *SGLANG_START, "Capture cuda graph begin. This can take", "Capture cuda graph end. Time elapsed: 8 s"
    )
    assert [marks.step(order, "") for order in range(6)] == ["", "weights", "pool", "pool", "capture", "after"]


def test_steps_are_counted_by_rank() -> None:
    rows = [line(SGLANG_START[1], actor="TP0"), line(SGLANG_START[2], actor="TP1")]
    marks = stage(*rows)
    assert (marks.step(1, "DP0 TP0"), marks.step(1, "TP1"), marks.step(1, "")) == ("weights", "pool", "pool")


# An out-of-memory of the GPU, by what it was for.


@pytest.mark.parametrize(
    ("before", "frames", "cause"),
    [
        (SGLANG_START[:2], (), "cuda-oom-weights-load"),
        (SGLANG_START[:3], (), KV_POOL),
        ((*SGLANG_START, "Capture cuda graph begin. avail"), (), "cuda-oom-cuda-graph-capture"),
        (SGLANG_UP, (), ACTIVATION),
        (SGLANG_UP, (frame(f"{SRT}/mem_cache/memory_pool.py", "_create_buffers"),), ACTIVATION),
        ((), (frame(f"{SRT}/mem_cache/memory_pool.py", "_create_buffers"),), KV_POOL),
        ((), (frame(f"{SRT}/model_loader/loader.py", "load_model"),), "cuda-oom-weights-load"),
        ((), (frame(f"{SRT}/model_executor/cuda_graph_runner.py", "capture"),), "cuda-oom-cuda-graph-capture"),
        ((), (frame("/x/vllm/v1/worker/gpu_worker.py", "determine_available_memory"),), ACTIVATION),
        (SGLANG_START[:3], (frame("/x/vllm/v1/worker/gpu_model_runner.py", "profile_run"),), ACTIVATION),
        ((), (), ACTIVATION),
    ],
)  # fmt: skip
def test_what_the_gpu_had_no_memory_for(before: tuple[str, ...], frames: tuple[str, ...], cause: str) -> None:
    assert one(*before, *crash(OOM, *(frames or (frame("/x/y.py"),)))).cause == cause


def test_a_wrapper_that_quotes_it_is_no_other_cause() -> None:
    """SGLang's capture wrapper prints the same advice whatever failed; only the text of an out-of-memory counts."""
    ecc = "CUDA error: uncorrectable ECC error encountered"
    wrapped = (
        *crash(f"torch.AcceleratorError: {ecc}", frame("/x/graph_runner.py"), head=""),
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *crash(f"Exception: Capture cuda graph failed: {ecc}", head=""),
        "Possible solutions:",
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
    )  # fmt: skip
    assert {fault.cause for fault in faults(*SGLANG_START, *wrapped)} == {"gpu-hardware-xid"}


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
        "Computed max_mamba_cache_size=-28 (total_rest_memory=-7.96 GB, mamba_cache_per_req=146.81 MB).",
        "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        "max_mamba_cache_size=2, mamba_ratio=5, resulting max_num_reqs=0.",
    ],
)
def test_no_room_for_recurrent_state_is_no_room_for_the_pool(error: str) -> None:
    assert one(*SGLANG_START[:3], *crash(error)).cause == KV_POOL


def test_an_internal_port_that_stays_taken() -> None:
    error = "ValueError: nccl_port at 28451 is not available in 30 seconds. pid=4471 (python3)"
    assert one(SGLANG_START[0], *crash(error, head="")).cause == "port-in-use"


def test_a_prefill_capture_that_fails_of_memory() -> None:
    error = "RuntimeError: Capture prefill CUDA graph failed: CUDA out of memory. Tried to allocate 2.20 GiB."
    assert one(*SGLANG_START, "Capture prefill CUDA graph begin.", *crash(error)).cause == (
        "cuda-oom-cuda-graph-capture"
    )


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ("failed to initialize the context: failed to allocate buffer for kv cache", KV_POOL),
        ("graph_reserve: failed to allocate compute buffers", ACTIVATION),
        ("llama_model_load: error loading model: unable to allocate CUDA0 buffer", "cuda-oom-weights-load"),
    ],
)  # fmt: skip
def test_llama_says_afterwards_what_the_allocation_was_for(told: str, cause: str) -> None:
    said = "ggml_backend_cuda: allocating 9216.00 MiB on device 0: cudaMalloc failed: out of memory"
    assert cause in {fault.cause for fault in faults(said, told) if not fault.wrapper}


# Exceptions.


def test_while_serving_an_ordinary_exception() -> None:
    fault = one(*SGLANG_UP, DECODE, *crash("IndexError: list index out of range"))
    assert (fault.cause, fault.certain, fault.phase) == ("python-exception-scheduler", True, Phase.SERVING)
    assert fault.line.text == "IndexError: list index out of range"
    assert any("Scheduler hit an exception" in row.text for row in fault.support)


def test_the_same_at_the_start() -> None:
    assert one(*SGLANG_START[:1], *crash("IndexError: x", frame("/x/y.py"))).cause == "python-exception-startup"


def test_the_first_of_a_chain_is_the_cause() -> None:
    chain = (
        *crash("KeyError: 'model.layers.0.midlayer.weight'", frame("/x/model_loader/loader.py", "load_weights")),
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *crash(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            head="",
        ),
    )
    fault = one(SGLANG_START[0], *chain)
    assert (fault.cause, fault.line.text[:9]) == ("model-load-error", "KeyError:")


def test_an_echo_alone_is_no_failure() -> None:
    assert faults(*SGLANG_UP, *crash("EOFError", head="")) == []
    dead = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    assert faults(*SGLANG_UP, *crash(dead, head="")) == []


@pytest.mark.parametrize(
    ("error", "where", "cause"),
    [
        ("AssertionError: topk must be 1", f"{SRT}/server_args.py", "config-invalid"),
        ("TypeError: unexpected keyword 'depth'", "/x/vllm/engine/arg_utils.py", "config-invalid"),
        ("FileNotFoundError: missing.idx", "/x/model_loader/weight_utils.py", "model-load-error"),
        ("AssertionError: shape differs", "/x/weight_loader.py", "model-load-error"),
        ("KeyError: 'lm_head.weight'", "/x/y.py", "model-load-error"),
        ("ModuleNotFoundError: No module named 'flashinfer'", "/x/y.py", "python-exception-startup"),
        ("ValueError: architectures ['Zebra'] are not supported for now.", "/x/y.py", "unsupported-model-feature"),
        ("OSError: [Errno 98] Address already in use", "/x/y.py", "port-in-use"),
        ("ImportError: libnvrtc.so.12: cannot open shared object file", "/x/y.py", "missing-shared-library"),
    ],
)  # fmt: skip
def test_what_an_exception_of_a_start_means(error: str, where: str, cause: str) -> None:
    assert one(SGLANG_START[0], *crash(error, frame(where), head="")).cause == cause


def test_a_refusal_is_one_only_at_the_start() -> None:
    """The same words while serving are an ordinary exception."""
    error = "ValueError: page_size must be set to 1 with topk > 1"
    assert one(SGLANG_START[0], *crash(error, frame("/x/y.py"), head="")).cause == "config-invalid"
    assert one(*SGLANG_UP, DECODE, *crash(error, frame("/x/y.py"))).cause == "python-exception-scheduler"


def test_words_of_a_source_line_count_for_nothing() -> None:
    """A traceback quotes code, and code names every failure there is."""
    quoted = (
        "Traceback (most recent call last):",
        FRAME,
        '    raise RuntimeError("CUDA error: an illegal memory access was encountered")',
        "IndexError: list index out of range",
    )
    assert one(*SGLANG_UP, DECODE, *quoted).cause == "python-exception-scheduler"


def test_the_pools_words_are_not_the_gpus() -> None:
    rows = crash("RuntimeError: Decode out of memory. Try to lower your batch size.")
    fault = one(*SGLANG_UP, DECODE, *rows, "Try to allocate 8 tokens.", "Available tokens: 3")
    assert fault.cause == "kv-pool-exhausted"


def test_the_frame_of_an_illegal_access_is_not_blamed() -> None:
    rows = crash(
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        frame("/x/utils.py", "tolist"),
    )
    assert one(*SGLANG_UP, DECODE, *rows).cause == "illegal-memory-access"


@pytest.mark.parametrize("level", ["I", "D"])
def test_what_a_logger_calls_information_is_no_failure(level: str) -> None:
    assert faults(line("OSError: [Errno 24] Too many open files", level=level)) == []


def test_a_warning_is_a_weak_one() -> None:
    assert one(line("OSError: [Errno 24] Too many open files", level="W")).wrapper


def test_a_peer_that_cannot_be_reached_before_the_ranks_have_met() -> None:
    said = "torch.distributed.DistBackendError: remote process exited or there was a network error"
    assert "nccl-init-error" in {f.cause for f in faults(SGLANG_START[0], "Init torch distributed begin.", said)}
    assert "peer-rank-died" in {f.cause for f in faults(*SGLANG_UP, DECODE, said)}


# What was lived through.


def request(error: str) -> tuple[str, ...]:
    return ("ERROR:    Exception in ASGI application", *crash(error, frame("/x/uvicorn/protocols.py"), head=""))


def test_a_request_that_failed_is_one() -> None:
    fault = one(*SGLANG_UP, DECODE, *request("ValueError: bad grammar"), DECODE, DECODE, DECODE)
    assert (fault.request, fault.survived) == (True, True)


def test_serving_on_is_survival() -> None:
    assert one(*SGLANG_UP, *crash("ValueError: x", head=""), *[DECODE] * 3).survived


def test_a_line_or_two_of_others_is_not() -> None:
    """Other ranks print a batch that they had before."""
    assert not one(*SGLANG_UP, *crash("ValueError: x"), DECODE, DECODE).survived


def test_what_is_torn_down_afterwards_did_not_survive() -> None:
    rows = (
        *SGLANG_UP,
        *crash("ValueError: x"),
        *[DECODE] * 2,
        "SIGQUIT received. signum=None, frame=None. It usually",
        DECODE,
    )
    assert not one(*rows).survived


def test_getting_further_is_survival() -> None:
    """An optional import that failed."""
    assert one(
        SGLANG_START[0], *crash("ModuleNotFoundError: No module named 'x'", head=""), *SGLANG_UP[1:]
    ).survived


def test_lines_of_the_same_second_are_no_survival() -> None:
    rows = [line(text, at=0) for text in (*SGLANG_UP, *crash("ValueError: x", head=""))]
    assert not one(*rows, *[line(DECODE, at=0.5) for _ in range(9)]).survived
    assert one(*rows, *[line(DECODE, at=20 + n) for n in range(9)]).survived
