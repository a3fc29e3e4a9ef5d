"""Deaths made on purpose on an H200, SGLang 0.5.17 (docs/h200.md), by the log alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.postmortem.model import Confidence

from .test_captures import examined

HERE = Path(__file__).resolve().parents[1] / "data" / "sglang" / "h200"


@pytest.mark.parametrize(
    ("name", "cause", "confidence"),
    [
        ("bad_flag", "config-invalid", Confidence.CERTAIN),
        ("k10", "cuda-oom-kv-pool-init", Confidence.CERTAIN),
        ("no-room-for-kv", "cuda-oom-kv-pool-init", Confidence.CERTAIN),
        ("graph-capture", "cuda-oom-cuda-graph-capture", Confidence.CERTAIN),
        ("runtime-oom", "cuda-oom-runtime-activation", Confidence.CERTAIN),
        ("adaptive", "illegal-memory-access", Confidence.CERTAIN),
        ("drain", "healthy-exit", Confidence.CERTAIN),
        ("kill_child", "unsettled", Confidence.UNSETTLED),
        ("kill_main", "unsettled", Confidence.UNSETTLED),
    ],
)
def test_why(name: str, cause: str, confidence: Confidence) -> None:
    verdict = examined(HERE / f"death-{name}.log")
    assert (verdict.cause, verdict.confidence) == (cause, confidence)
    if cause == "unsettled":
        assert "user-or-supervisor-sigkill" in [candidate.cause for candidate in verdict.candidates]
        assert "OOM" not in verdict.summary


def test_a_kill_in_mid_drain_is_no_memory_s_fault() -> None:
    """Four requests in flight, SIGTERM, SIGKILL three seconds later: the founding case's end, on a real server."""
    verdict = examined(HERE / "death-drain-killed.log")
    assert (verdict.cause, verdict.phase) == ("unsettled", "shutdown")
    assert verdict.candidates[0].cause == "stop-timeout-sigkill"
    assert "memory" not in verdict.summary.lower()
