"""The open loop against the reference emitter while it stands still for two seconds, with and without a limit.

A request whose time comes in the stall is answered after it. Without a limit it waits in the server, and every
latency shows that. With a limit it waits in the client, where only the latency from its intended time does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftmark.load.spreads import percentile
from draftmark.model import Message, Prompt, RequestRecord, Workload

from .driving import carry_out, measured, plan
from .test_streamlab import Emitter, pytestmark  # noqa: F401 - skips where there is no emitter

RATE = 40.0
COUNT = 160
STALL = {"after_s": 1.0, "seconds": 2.0}
SCHEDULE = {"mode": "stall", "output_tokens": 4, "ttft_ms": 30, "interval_ms": 5, "stalls": [STALL]}


def ask(folder: Path, cap: int, **options: Any) -> tuple[list[RequestRecord], dict[str, dict[str, Any]]]:
    """The records, and the emitter's truth by tag."""
    workload = Workload("lab", (Prompt("p", (Message("user", "go"),), 64),))
    at = tuple(i / RATE for i in range(COUNT))
    emitter = Emitter(folder, SCHEDULE)
    try:
        run = carry_out(emitter.url, plan(workload, send_at_s=at, concurrency=cap, **options))
        rows = emitter.stop()
    finally:
        if emitter.process.poll() is None:
            emitter.process.kill()
            emitter.process.wait()
    assert [r.error for r in run.records] == [None] * COUNT
    assert run.unsent == {}
    return measured(run), {row["x_request_id"]: row for row in rows}


def intended_ttft(record: RequestRecord) -> float:
    assert record.intended_at_s is not None
    assert record.first_token_at_s is not None
    return record.first_token_at_s - record.intended_at_s


def plain_ttft(record: RequestRecord) -> float:
    assert record.first_token_at_s is not None
    return record.first_token_at_s - record.sent_at_s


def p(values: list[float], share: float) -> float:
    found = percentile(sorted(values), share)
    assert found is not None
    return found


@pytest.mark.parametrize("cap", [0, 4], ids=["no limit", "four at once"])
def test_a_stall_is_in_the_latency_from_the_intended_time(tmp_path: Path, cap: int) -> None:
    records, truth = ask(tmp_path, cap)
    assert len(truth) == COUNT
    intended, plain = [intended_ttft(r) for r in records], [plain_ttft(r) for r in records]
    # two of four seconds' requests met the stall: evenly from 2 s down to nothing, and then the queue that it left
    assert 1.7 < p(intended, 99) < 2.4
    assert p(intended, 75) > 0.9
    late = [r.sent_at_s - (r.intended_at_s or 0.0) for r in records]
    if cap:
        assert p(plain, 90) < 0.5  # what a load generator says that counts from the real send
        assert p(late, 75) > 0.8
    else:
        assert p(plain, 75) > 0.9
        assert p(late, 90) < 0.1


@pytest.mark.parametrize("cap", [0, 4], ids=["no limit", "four at once"])
def test_the_latency_from_the_intended_time_is_the_emitters_own(tmp_path: Path, cap: int) -> None:
    """The truth: the emitter's first chunk of each request, and the schedule, whose begin is the client's zero.

    Within 1 % or 5 ms in one of three attempts, as the machine may be busy.
    """
    off = ""
    for _ in range(3):
        records, truth = ask(tmp_path, cap)
        zero_ns = min(truth[r.tag]["t0_ns"] - r.sent_at_s * 1e9 for r in records)
        true = [
            (truth[r.tag]["t0_ns"] + truth[r.tag]["first_ns"] - zero_ns) / 1e9 - (r.intended_at_s or 0.0)
            for r in records
        ]
        got = [intended_ttft(r) for r in records]
        pairs = {share: (p(got, share), p(true, share)) for share in (50, 90, 99)}
        if all(abs(mine - theirs) <= max(0.01 * theirs, 0.005) for mine, theirs in pairs.values()):
            return
        off = str(pairs)
    pytest.fail(off)
