"""Against the reference emitter, when it lies beside the checkout: it knows what it sent, and when."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftmark.load.client import LoadRun, run_closed_loop
from draftmark.load.measurement import measure, spread
from draftmark.model import Measurement, Message, Prompt, Workload

LAB = Path(__file__).resolve().parents[2].parent / "shared" / "stream-lab"
pytestmark = [
    pytest.mark.skipif(
        not (LAB / "streamlab").exists(), reason="the reference emitter is not at ../shared/stream-lab"
    ),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the reference emitter needs a C compiler"),
]


class Emitter:
    """A running emitter and, after `stop`, its truth."""

    def __init__(self, folder: Path, schedule: dict[str, Any]) -> None:
        self.truth = folder / "truth.jsonl"
        (folder / "schedule.json").write_text(json.dumps(schedule))
        command = [LAB / "streamlab", "serve", "--schedule", folder / "schedule.json", "--truth", self.truth]
        environment = {**os.environ, "STREAMLAB_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().split()[1]}"

    def stop(self) -> list[dict[str, Any]]:
        """One row a request, in the order in which they came."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(10) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()
        rows = [json.loads(line) for line in self.truth.read_text().splitlines()]
        return sorted((r for r in rows if "summary" not in r), key=lambda r: r["t0_ns"])


def tokens_within(rows: list[dict[str, Any]], start_ns: float, end_ns: float) -> int:
    return sum(n for r in rows for at, n in r["chunks"] if start_ns < r["t0_ns"] + at <= end_ns)


def ask(
    folder: Path, schedule: dict[str, Any], requests: int, **options: Any
) -> tuple[LoadRun, list[dict[str, Any]]]:
    workload = Workload("lab", tuple(Prompt(f"p{i}", (Message("user", "go"),), 64) for i in range(requests)))
    emitter = Emitter(folder, schedule)
    try:
        return run_closed_loop(emitter.url, workload, model="m", **options), emitter.stop()
    finally:
        if emitter.process.poll() is None:
            emitter.process.kill()
            emitter.process.wait()


def close_enough(measured: float | None, true: float) -> bool:
    """Within 1 % or 0.3 ms."""
    return measured is not None and abs(measured - true) <= max(0.01 * true, 0.3)


@pytest.mark.parametrize("api", ["openai", "openai-chat"])
def test_sixteen_speculating_streams(tmp_path: Path, api: str) -> None:
    schedule = {"mode": "spec", "output_tokens": 64, "interval_ms": 20, "ttft_ms": 60, "warmup": 16}
    got, rows = ask(
        tmp_path,
        schedule,
        48,
        api=api,
        concurrency=16,
        extra={"stream_options": {"continuous_usage_stats": True}},
    )
    m: Measurement = measure(got.records, workload="lab", concurrency=16, client=got.client)
    truth = [r for r in rows if not r["warmup"]]
    assert m.errors == {}
    assert m.requests == len(truth) == 48
    records = {r.tag: r for r in got.records}
    for row in truth:
        record = records[row["x_request_id"]]
        assert record.output_tokens == row["tokens"]
        assert record.chunk_counts == "server"
        sizes = [
            b - a
            for a, b in zip([0.0, *(n for _, n in record.chunks)], [n for _, n in record.chunks], strict=False)
        ]
        assert sizes == [n for _, n in row["chunks"]]
    true_tpot = spread((r["last_ns"] - r["first_ns"]) / (r["tokens"] - 1) / 1e6 for r in truth)
    assert close_enough(m.tpot_ms.p50, true_tpot.p50 or 0.0)
    assert close_enough(m.tpot_ms.mean, true_tpot.mean or 0.0)
    # the client's aggregate over its whole span against the emitter's over its own
    end, begin = max(r["t0_ns"] + r["end_ns"] for r in truth), min(r["t0_ns"] for r in truth)
    true_rate = sum(r["tokens"] for r in truth) / ((end - begin) / 1e9)
    assert m.output_tokens / m.duration_s == pytest.approx(true_rate, rel=0.01)
    # and the steady window against the tokens that the emitter sent within it
    assert m.window is not None
    assert not m.window.whole
    zero_ns = min(r["t0_ns"] - records[r["x_request_id"]].sent_at_s * 1e9 for r in rows)  # the client's zero
    start_ns, end_ns = zero_ns + m.window.start_at_s * 1e9, zero_ns + m.window.end_at_s * 1e9
    steady = tokens_within(rows, start_ns, end_ns) / ((end_ns - start_ns) / 1e9)
    assert m.output_tok_s == pytest.approx(steady, rel=0.01)
    true_ttft = spread(r["first_ns"] / 1e6 for r in truth)
    assert m.ttft_ms.p50 == pytest.approx(true_ttft.p50, abs=5.0)


def test_every_fault_is_counted_as_the_emitter_expects(tmp_path: Path) -> None:
    schedule = {
        "mode": "faults",
        "output_tokens": 8,
        "interval_ms": 2,
        "ttft_ms": 2,
        "plans": 40,
    }
    got, truth = ask(tmp_path, schedule, 40, concurrency=4, warmup=0, request_timeout_s=2.0, max_errors=100)
    records = {r.tag: r for r in got.records}
    wrong = []
    for row in truth:
        record, planned = records[row["x_request_id"]], row["planned"]
        if planned["expect"] != "either" and (record.error is None) != (planned["expect"] == "ok"):
            wrong.append((planned["fault"], record.error, record.error_detail))
    assert wrong == []
    kinds = {row["planned"]["fault"]: records[row["x_request_id"]].error for row in truth}
    expected = {
        "reset": "reset",
        "close": "closed",
        "hang": "timeout",
        "http500": "http-500",
        "http503": "http-503",
        "http429": "http-429",
        "error_event": "error-event",
        "malformed": "malformed",
        "no_done": "no-end",
    }
    assert {kind: kinds[kind] for kind in expected} == expected
