"""Against the reference emitter, when it lies beside the checkout: it knows what it sent, and when."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from draftmark.load.client import LoadRun, run_closed_loop
from draftmark.load.measurement import measure, throughput
from draftmark.model import Message, Prompt, RequestRecord, Workload

LAB = Path(__file__).resolve().parents[2].parent / "shared" / "stream-lab"
pytestmark = [
    pytest.mark.skipif(
        not (LAB / "streamlab").exists(), reason="the reference emitter is not at ../shared/stream-lab"
    ),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the reference emitter needs a C compiler"),
]


class Emitter:
    """A running emitter and, after `stop`, its truth."""

    def __init__(self, folder: Path, schedule: dict[str, Any], api: str = "openai") -> None:
        self.truth = folder / "truth.jsonl"
        (folder / "schedule.json").write_text(json.dumps(schedule))
        command = [LAB / "streamlab", "serve", "--api", api, "--schedule", folder / "schedule.json"]
        command += ["--truth", self.truth]
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


def as_records(rows: list[dict[str, Any]], zero_ns: float) -> list[RequestRecord]:
    """The truth in the form of a client's records, for the same arithmetic."""
    return [
        RequestRecord(
            tag=r["x_request_id"],
            workload="lab",
            prompt_id="p",
            concurrency=16,
            sent_at_s=(r["t0_ns"] - zero_ns) / 1e9,
            first_token_at_s=(r["t0_ns"] + r["first_ns"] - zero_ns) / 1e9,
            last_token_at_s=(r["t0_ns"] + r["last_ns"] - zero_ns) / 1e9,
            end_at_s=(r["t0_ns"] + r["end_ns"] - zero_ns) / 1e9,
            chunks=tuple(
                (at / 1e9, float(total))
                for (at, _), total in zip(r["chunks"], accumulate(n for _, n in r["chunks"]), strict=True)
            ),
            output_tokens=r["tokens"],
        )
        for r in rows
    ]


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


def off(name: str, measured: float | None, true: float | None, least: float = 0.0) -> list[str]:
    """What is further from the truth than 1 %, or than `least` where that is more."""
    assert measured is not None
    assert true is not None
    if abs(measured - true) <= max(0.01 * true, least):
        return []
    return [f"{name}: {measured:.3f}, in truth {true:.3f}"]


def timing_faults(got: LoadRun, rows: list[dict[str, Any]]) -> list[str]:
    """Which figures are not what the emitter's own times give."""
    sent = {r.tag: r.sent_at_s for r in got.records}
    zero_ns = min(r["t0_ns"] - sent[r["x_request_id"]] * 1e9 for r in rows)  # the client's zero
    true = as_records(rows, zero_ns)
    m = measure(got.records, workload="lab", concurrency=16)
    t = measure([r for r, row in zip(true, rows, strict=True) if not row["warmup"]], workload="lab", concurrency=16)
    assert m.window is not None
    assert not m.window.whole
    return [
        *off("TPOT p50", m.tpot_ms.p50, t.tpot_ms.p50, 0.3),
        *off("TPOT mean", m.tpot_ms.mean, t.tpot_ms.mean, 0.3),
        *off("amortised ITL mean", m.itl_ms.mean, t.itl_ms.mean, 0.3),
        *off("TTFT p50", m.ttft_ms.p50, t.ttft_ms.p50, 3.0),
        *off("tok/s of the whole", m.output_tokens / m.duration_s, t.output_tokens / t.duration_s),
        *off("tok/s of the window", m.output_tok_s, throughput(true, m.window)),
    ]


@pytest.mark.parametrize("api", ["openai", "openai-chat"])
def test_sixteen_speculating_streams(tmp_path: Path, api: str) -> None:
    """Counts are exact, always; times within 1 % or 0.3 ms in one of three attempts, as the machine may be busy."""
    schedule = {"mode": "spec", "output_tokens": 64, "interval_ms": 20, "ttft_ms": 60, "warmup": 16}
    extra = {"stream_options": {"continuous_usage_stats": True}}
    faults: list[str] = []
    for _ in range(3):
        got, rows = ask(tmp_path, schedule, 48, api=api, concurrency=16, extra=extra)
        records = {r.tag: r for r in got.records}
        assert len(rows) == len(records) == 64
        for row in rows:
            record = records[row["x_request_id"]]
            assert (record.error, record.warmup) == (None, row["warmup"])
            assert (record.output_tokens, record.chunk_counts) == (row["tokens"], "server")
            assert [n for _, n in record.chunks] == list(accumulate(n for _, n in row["chunks"]))
        faults = timing_faults(got, rows)
        if not faults:
            return
    pytest.fail("\n".join(faults))


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
