"""Every way to die: the log in the engine's words, the right exit, and `why` naming it from that log alone."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from draftmark.cli.why import examine_paths
from draftmark.engines.sglang.log import read_log
from draftmark.postmortem.model import Verdict

from .conftest import FAST, Server, Starter, drafting

QUICK = ("--model", "smollm2-135m", *FAST, "--die-after", "0.1")


def judged(server: Server, status: int | None = None) -> Verdict:
    """What `why` says of the log, and of the exit status where it is known."""
    path = server.path / "server.log"
    path.write_text(server.log)
    paths = [str(path)]
    if status is not None:
        other = server.path / "exit status"
        other.write_text(f"exit code: {128 - status if status < 0 else status}\n")
        paths.append(str(other))
    return examine_paths(paths)


def known(server: Server) -> None:
    assert read_log(server.lines_of_log()).lines.samples == ()


@pytest.mark.parametrize("version", ["0.5.12", "0.5.14", "0.5.17", "0.5.23"])
def test_kv_start(simulated: Starter, version: str) -> None:
    server = simulated(*QUICK, "--die", "kv-start", "--sglang-version", version, until=None)
    assert server.ended() == -signal.SIGKILL
    known(server)
    assert judged(server).cause == "cuda-oom-kv-pool-init"


def test_a_depth_that_does_not_fit_ends_the_same_way(simulated: Starter) -> None:
    flags = ("--mem-fraction-static", "0.62", "--disable-radix-cache", "--cuda-graph-max-bs", "32", *drafting(10))
    server = simulated("--model", "qwen35-35b", "--gpus", "h200", flags=flags, until=None)
    assert server.ended() == -signal.SIGKILL
    known(server)
    assert "Loaded weights leave no GPU memory" in server.log
    assert judged(server).cause == "cuda-oom-kv-pool-init"


def test_graphs_that_find_no_room(simulated: Starter) -> None:
    server = simulated(
        "--model", "llama-3.1-8b", "--gpus", "h200", flags=("--mem-fraction-static", "0.999"), until=None
    )
    assert server.ended() == -signal.SIGKILL
    known(server)
    assert judged(server).cause == "cuda-oom-cuda-graph-capture"


@pytest.mark.parametrize("version", ["0.5.12", "0.5.17", "0.5.23"])
def test_runtime_oom(simulated: Starter, version: str) -> None:
    server = simulated(*QUICK, "--die", "runtime-oom", "--sglang-version", version)
    assert server.ended() == -signal.SIGKILL
    known(server)
    log = read_log(server.lines_of_log())
    assert log.ending.way == "exception"
    assert judged(server, -9).cause == "cuda-oom-runtime-activation"


def test_watchdog(simulated: Starter) -> None:
    server = simulated(*QUICK, "--die", "watchdog", flags=("--watchdog-timeout", "300"))
    assert server.ended() == -signal.SIGKILL
    known(server)
    assert read_log(server.lines_of_log()).ending.way == "hang"
    assert judged(server).cause == "watchdog-timeout"


def test_a_killed_child_is_not_called_out_of_memory(simulated: Starter) -> None:
    server = simulated(*QUICK, "--die", "killed-child")
    assert server.ended() == -signal.SIGKILL
    known(server)
    (child,) = read_log(server.lines_of_log()).ending.children
    assert (child.name, child.code) == ("scheduler_0", -9)
    verdict = judged(server, -9)
    assert verdict.cause == "unsettled"
    assert "user-or-supervisor-sigkill" in [each.cause for each in verdict.candidates]
    assert "OOM" not in verdict.summary


def test_a_child_that_somebody_else_kills(simulated: Starter) -> None:
    """The stand-ins of the schedulers are processes: what happens to them happens to the server."""
    server = simulated(*QUICK)
    children = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(server.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    detokenizer = next(int(line.split()[0]) for line in children if "detoken" in line)
    os.kill(detokenizer, signal.SIGSEGV)
    assert server.ended() == -signal.SIGKILL
    (child,) = read_log(server.lines_of_log()).ending.children
    assert (child.name, child.code) == ("detokenizer", -11)


def test_a_signal_to_all_of_them_cuts_the_drain(simulated: Starter) -> None:
    """As KillMode=control-group does."""
    server = simulated("--model", "smollm2-135m", "--speed", "20")
    os.killpg(server.process.pid, signal.SIGTERM)
    assert server.ended() == -signal.SIGKILL
    assert read_log(server.lines_of_log()).ending.way == "children-stopped"


def test_hang(simulated: Starter) -> None:
    """It runs, says nothing, and does not answer: nothing died."""
    server = simulated(*QUICK, "--die", "hang")
    time.sleep(0.3)
    status, _ = server.call("/health")
    assert status == 503
    server.await_line("Health check failed.")
    assert server.process.poll() is None
    server.process.kill()
    server.ended()


@pytest.mark.parametrize(("version", "status"), [("0.5.12", -9), ("0.5.17", -9), ("0.5.20", 0), ("0.5.23", 0)])
def test_self_kill_after_a_drain(simulated: Starter, version: str, status: int) -> None:
    """Up to 0.5.17 an ordinary stop ends with its own SIGKILL."""
    server = simulated(*QUICK, "--die", "self-kill", "--sglang-version", version)
    assert server.ended() == status
    known(server)
    log = read_log(server.lines_of_log())
    assert log.ending.way == "graceful"
    if version >= "0.5.14":
        assert log.ending.teardown is not None
        assert log.ending.teardown.include_parent == (status == -9)
    verdict = judged(server, status)
    assert "oom" not in verdict.cause
    assert verdict.cause.startswith("healthy") or verdict.cause == "clean-exit-after-drain" or status == -9


def test_a_drain_waits_for_what_is_being_answered_and_takes_more(simulated: Starter) -> None:
    server = simulated(
        "--model", "smollm2-135m", "--speed", "50", "--serve-speed", "1", flags=("--decode-log-interval", "20")
    )
    body = {"text": "Hello", "sampling_params": {"max_new_tokens": 600, "temperature": 0}}
    answers: list[tuple[int, bytes]] = []
    asking = threading.Thread(target=lambda: answers.append(server.call("/generate", body)))
    asking.start()
    server.await_line("Decode batch")
    server.process.send_signal(signal.SIGTERM)
    server.await_line("Gracefully exiting")
    assert server.call("/health")[0] == 503
    assert server.ended() == -signal.SIGKILL
    asking.join()
    (status, answer) = answers[0]
    assert status == 200
    assert b'"completion_tokens":600' in answer
    drain = read_log(server.lines_of_log()).ending.drain
    assert drain[0].remaining == 1
    assert drain[-1].remaining == 0


def test_the_founding_death(simulated: Starter) -> None:
    """A benchmark is under way when it is stopped, and its supervisor loses patience: no word of memory from us."""
    server = simulated(
        "--model", "smollm2-135m", "--speed", "50", "--serve-speed", "1", flags=("--decode-log-interval", "20")
    )
    body = {"text": "Hello", "sampling_params": {"max_new_tokens": 7000, "temperature": 0}}
    asking = [threading.Thread(target=_asks, args=(server, body)) for _ in range(16)]
    for each in asking:
        each.start()
    server.await_line("#running-req: 16")
    server.process.send_signal(signal.SIGTERM)
    server.await_line("Remaining number of requests 16.")
    server.await_line("Remaining number of requests 16.")
    server.process.kill()  # as systemd does when TimeoutStopSec is over
    assert server.ended() == -signal.SIGKILL
    for each in asking:
        each.join()
    known(server)
    assert read_log(server.lines_of_log()).ending.way == "draining"
    verdict = judged(server, -9)
    assert verdict.cause == "unsettled"
    assert "OOM" not in verdict.summary


def _asks(server: Server, body: object) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.call("/generate", body)


def test_a_stop_while_it_loads_is_a_plain_sigterm(simulated: Starter) -> None:
    server = simulated("--model", "llama-3.1-8b", "--speed", "1", until="server_args=")
    assert server.stop() == -signal.SIGTERM
    assert "SIGTERM" not in server.log


@pytest.mark.parametrize(
    ("version", "flags", "said", "status"),
    [
        ("0.5.23", ("--cuda-graph-max-bs", "8"), "ambiguous option: --cuda-graph-max-bs", 2),
        ("0.5.17", ("--speculative-depth", "8"), "unrecognized arguments: --speculative-depth 8", 2),
        ("0.5.17", ("--speculative-algorithm", "EAGLE", "--speculative-eagle-topk", "4"), "AssertionError", 1),
        ("0.5.17", ("--speculative-algorithm", "EAGLE", "--speculative-num-steps", "4"), "TypeError", 1),
        ("0.5.17", ("--speculative-algorithm", "DFLASH"), "requires setting --speculative-draft-model-path", 1),
    ],
)
def test_flags_that_the_launcher_refuses(
    simulated: Starter, version: str, flags: tuple[str, ...], said: str, status: int
) -> None:
    server = simulated("--model", "smollm2-135m", "--sglang-version", version, flags=flags, until=None)
    assert server.ended() == status
    assert said in server.log
    assert judged(server, status).cause == "config-invalid"


def test_a_port_that_is_taken(simulated: Starter) -> None:
    first = simulated("--model", "smollm2-135m")
    words = [sys.executable, "-m", "draftmark", "sim", *FAST, "--model", "smollm2-135m", "--", "--port"]
    second = subprocess.run([*words, str(first.port)], capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert "address already in use" in second.stderr
