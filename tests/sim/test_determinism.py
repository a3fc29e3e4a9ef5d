"""Same seed, same requests: the same log, to the letter."""

from __future__ import annotations

import pytest

from draftmark.load.client import run_closed_loop
from draftmark.load.workloads import load_workloads

from .conftest import Starter, drafting

CLOCK = ("--clock", "simulated")


def log_of(simulated: Starter, *words: str, concurrency: int = 1) -> str:
    port = 31_987  # it stands in the log
    server = simulated(
        "--model", "qwen35-35b", "--noise", "0.02", *CLOCK, *words, port=port,
        flags=("--decode-log-interval", "5", *drafting(3)),
    )  # fmt: skip
    (workload,) = load_workloads(["chat"])
    run_closed_loop(server.url, workload, concurrency=concurrency, warmup=0, api="sglang")
    assert server.stop() == -9
    return server.log


@pytest.mark.parametrize("concurrency", [1, 4])
def test_same_seed_same_log(simulated: Starter, concurrency: int) -> None:
    first, second = (log_of(simulated, "--seed", "7", concurrency=concurrency) for _ in range(2))
    assert "Decode batch" in first
    assert first == second


def test_another_seed_another_log(simulated: Starter) -> None:
    assert log_of(simulated, "--seed", "7") != log_of(simulated, "--seed", "8")


def test_simulated_time_is_not_waited_for(simulated: Starter) -> None:
    """A start of minutes at no speed at all, and stamps that tell of those minutes."""
    server = simulated("--model", "qwen35-122b", "--gpus", "4xrtx-pro-6000", "--speed", "1", *CLOCK)
    assert server.lines[0].startswith("[2026-01-01 00:00:0")
    assert server.lines[-1] > "[2026-01-01 00:01:30"
