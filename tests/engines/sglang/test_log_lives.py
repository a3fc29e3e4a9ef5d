"""Several starts in one file: the last counts. And failures, with the lines that show them."""

from pathlib import Path

import pytest

from draftmark.engines.sglang.log import SglangLog, read_log
from draftmark.engines.sglang.log.boot import read_boot

HERE = Path(__file__).parents[2] / "data" / "sglang"
STAMP = "[2026-01-01 00:00:00] "
RESET = STAMP + "Max running requests is reset to 48 for speculative decoding. You can override this by …"


def text_of(name: str) -> list[str]:
    return (HERE / name).read_text(encoding="utf-8").splitlines(keepends=True)


def said(*texts: str, rank: str = "") -> SglangLog:
    return read_log(f"[2026-01-01 00:00:00{rank}] {text}\n" for text in texts)


def test_the_last_start_counts() -> None:
    first, second = text_of("sglang-0.5.10.log"), text_of("sglang-0.5.20.log")
    both, alone = read_log([*first, *second]), read_log(second)
    assert both.boot.boots == 2
    assert both.boot.first_line == len(first) + 1
    assert both.boot.server_args == alone.boot.server_args
    assert both.boot.version_range == alone.boot.version_range
    assert [w.kind for w in both.boot.warnings] == [w.kind for w in alone.boot.warnings]
    assert both.boot.ranks == alone.boot.ranks
    assert both.serving == alone.serving
    assert both.ending.way == alone.ending.way
    assert both.lines.total == len(first) + len(second)


def test_a_start_after_a_silent_death() -> None:
    """Killed from outside, the first says nothing; the launcher's warning before the arguments is of the second."""
    first = [line for line in text_of("sglang-0.5.20.log") if "SIGTERM" not in line][:18]
    second = text_of("sglang-0.5.20.log")
    boot = read_boot([*first, *second])
    assert boot.boots == 2
    assert boot.first_line == len(first) + 1
    assert [w.kind for w in boot.warnings] == ["running-reset-48", "running-capped-by-mamba"]
    assert boot.warnings[0].line == len(first) + 1


def test_a_restart_that_the_launcher_refuses() -> None:
    """No arguments are printed; still it is another start, and the figures of the one before are not its own."""
    refused = [RESET + "\n", "Traceback (most recent call last):\n", '  File "x.py", line 1\n', "AssertionError\n"]
    boot = read_boot([*text_of("sglang-0.5.20.log"), *refused])
    assert boot.boots == 2
    assert not boot.ready
    assert boot.summary is None
    assert [f.kind for f in boot.failures] == ["error"]
    assert boot.failures[0].text == "AssertionError"


def test_ready_is_not_uvicorn() -> None:
    boot = said("INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)").boot
    assert boot.http_up
    assert not boot.ready


FAILURES = {
    "Scheduler hit an exception: Traceback (most recent call last):": "exception",
    "DetokenizerManager hit an exception: Traceback (most recent call last):": "exception",
    "MultiTokenizerRouter hit an exception: Traceback": "exception",
    "Received sigquit from a child process. It usually means the child failed.": "sigquit-launch",
    "SIGQUIT received. signum=3, frame=None. It usually means one child failed.": "sigquit",
    "Subprocess detokenizer (pid=77) crashed with exit code -11. Triggering SIGQUIT for cleanup...": "child-died",
    "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit": "child-died-in-start",
    "Initialization failed. Please see the error messages above.": "start-failed",
    "Initialization failed. warmup error: Traceback": "start-failed",
    "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)": "watchdog",
    "Watchdog timeout (self.watchdog_timeout=300)": "watchdog",
    "Capture cuda graph failed: CUDA out of memory": "capture-failed",
    "Exception: Capture prefill CUDA graph failed: x": "capture-failed",
    "Piecewise CUDA graph failed.": "capture-failed",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.": "kv-pool-negative",
    "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.6": "weights-leave-nothing",
    "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Comp": "mamba-too-large",
    "Hybrid (mamba/linear-attention) state cache is too small to serve any requests.": "mamba-too-large",
    "RuntimeError: Decode out of memory. Try to lower your batch size.": "token-pool-exhausted",
    "Prefill out of memory. Try to lower your batch size.": "token-pool-exhausted",
    "alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. ": (
        "request-slots-exhausted"
    ),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "cuda-oom",
    "token_to_kv_pool_allocator memory leak detected! x": "memory-leak",
    "NaN detected in logits; values were sanitized before sampling.": "nan",
    "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.": "health-failed",
    "RuntimeError: Port is already in use. dist_init_port=1": "port-in-use",
    "dist_init_port at 30011 is not available in 30 seconds. x": "port-in-use",
    "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use": (
        "port-in-use"
    ),
    "KVTransferError(bootstrap_room=7): x": "disaggregation",
    "The memory capacity is unbalanced. Some GPUs may be occupied by other processes.": "memory-unbalanced",
    "launch_server.py: error: unrecognized arguments: --foo": "bad-arguments",
    "launch_server.py: error: ambiguous option: --cuda-graph-max-bs could match a, b": "bad-arguments",
}


@pytest.mark.parametrize("text", FAILURES)
def test_failures(text: str) -> None:
    (failure,) = said("Load weight begin. avail mem=1.00 GB", text).boot.failures
    assert failure == (2, FAILURES[text], text.strip())


def test_a_soft_watchdog_ends_nothing() -> None:
    log = said("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)")
    assert [f.kind for f in log.boot.failures] == ["watchdog-soft"]
    assert log.ending.way == "none"


def test_a_captures_advice_is_no_failure() -> None:
    log = read_log(
        [
            STAMP + "Scheduler hit an exception: Traceback (most recent call last):\n",
            '  File "x.py", line 3, in y\n',
            "\n",
            "During handling of the above exception, another exception occurred:\n",
            "\n",
            "Traceback (most recent call last):\n",
            "    raise Exception(\n",
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB\n",
            "Possible solutions:\n",
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n",
            "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n",
            "3. disable CUDA graph by --disable-cuda-graph. (Not recommended.)\n",
            "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n",
        ]
    )
    assert [f.kind for f in log.boot.failures] == ["exception", "capture-failed"]
    assert log.lines.unknown == 0


def test_failures_are_kept_from_both_ends() -> None:
    boot = said(*(f"Health check failed. {i}" for i in range(1000))).boot
    assert len(boot.failures) == 128
    assert boot.failures_left_out == 872
    assert (boot.failures[0].line, boot.failures[-1].line) == (1, 1000)


def test_a_capture_that_never_ended() -> None:
    begin = (
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, bs=[1, 2], avail mem=9.00 GB"
    )
    (graph,) = said(begin).boot.graphs
    assert graph == ("target verify", 4, (1, 2), None, None, 9.0, None, "full")


def test_lines_without_end_are_bounded() -> None:
    boot = said(*["Load weight end. type=A, avail mem=1.00 GB, mem usage=1.00 GB."] * 1000).boot
    assert len(boot.weights) == 256


@pytest.mark.parametrize(
    ("last", "way"),
    [
        (("SIGTERM received. signum=15 frame=None.",), "draining"),
        (
            ("SIGTERM received. signum=15", "Gracefully exiting... Remaining number of requests 7. Remaining"),
            "draining",
        ),
        (
            ("SIGTERM received. x", "Signal SIGTERM received while health check failed. Force exiting."),
            "forced",
        ),
        (("kill_process_tree called: parent_pid=1, include_parent=True, pid=1",), "torn-down"),
        (("Load weight begin. avail mem=1.00 GB",), "none"),
        (("SIGTERM received. x", "Scheduler hit an exception: Traceback"), "exception"),
    ],
)
def test_ways_to_end(last: tuple[str, ...], way: str) -> None:
    assert said(*last).ending.way == way


def test_a_long_drain_keeps_both_ends() -> None:
    waits = [
        f"Gracefully exiting... Remaining number of requests {n}. Remaining requests x" for n in range(500, -1, -1)
    ]
    drain = said("SIGTERM received. x", *waits).ending.drain
    assert len(drain) == 64
    assert (drain[0].remaining, drain[-1].remaining) == (500, 0)
