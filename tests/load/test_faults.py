"""Whatever goes wrong has its own name, and ends within its limit."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from draftmark.load.client import LoadPlan, run_load
from draftmark.model import Message, Prompt, RequestRecord, Workload

from . import test_streamlab as lab
from .scripted import Script, answer, failing, serving

TIMEOUT_S = 1.0

EMITTED: dict[str, str | None] = {
    "none": None,
    "reset": "reset",
    "close": "closed",
    "hang": "timeout",
    "no_done": "no-end",
    "http500": "http-500",
    "http503": "http-503",
    "http429": "http-429",
    "error_event": "error-event",
    "malformed": "malformed",
    "truncated_utf8": "malformed",
    "empty": None,
    "no_usage": None,
    "split_utf8": None,
    "split_events": None,
    "comments": None,
    "crlf": None,
    "slow_headers": None,
}
"""The reference emitter's faults, and what each is called."""


def plan(prompts: int, **options: Any) -> LoadPlan:
    ids = (1, 2, 3) if options.get("api") == "sglang" else None
    asked = tuple(Prompt(f"p{i}", (Message("user", "go"),), 8, token_ids=ids) for i in range(prompts))
    defaults = {"concurrency": 6, "warmup": 0, "model": "m", "request_timeout_s": TIMEOUT_S, "max_errors": 999}
    return LoadPlan(workload=Workload("w", asked), **{**defaults, **options})


@pytest.mark.skipif(
    not (lab.LAB / "streamlab").exists(), reason="the reference emitter is not at ../shared/stream-lab"
)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("api", ["openai", "openai-chat", "sglang"])
def test_every_fault_of_the_emitter(tmp_path: Path, api: str, workers: int) -> None:
    n = len(EMITTED)
    faults = [{"kind": kind, "every": n, "offset": i, "seconds": 0.3} for i, kind in enumerate(EMITTED)]
    faults[list(EMITTED).index("hang")]["seconds"] = 30
    schedule = {"mode": "faults", "faults": faults, "plans": n, "output_tokens": 8, "interval_ms": 2, "ttft_ms": 2}
    emitter = lab.Emitter(tmp_path, schedule, "sglang" if api == "sglang" else "openai")
    try:
        begin = time.monotonic()
        run = run_load(emitter.url, plan(2 * n, api=api), workers=workers)
        seconds = time.monotonic() - begin
    finally:
        truth = emitter.stop()
    records = {record.tag: record for record in run.records}
    assert len(records) == len(truth) == 2 * n
    named = [(row["planned"]["fault"], records[row["x_request_id"]]) for row in truth]
    wrong = [
        (fault, record.error, record.error_detail) for fault, record in named if record.error != EMITTED[fault]
    ]
    assert wrong == []
    assert seconds < 4 * TIMEOUT_S + 5 * (workers - 1)
    for fault, record in named:
        assert record.error is None or record.error_detail, fault
        if fault in ("http429", "http503"):
            assert (record.error_detail or "").endswith("(Retry-After: 1)")
        if record.error is None and fault != "empty":
            assert record.chunks[-1][1] == 8.0, fault


def kinds(url: str, **options: Any) -> tuple[list[str | None], float]:
    begin = time.monotonic()
    run = run_load(url, plan(2, concurrency=1, **options), connect_timeout_s=TIMEOUT_S)
    records: list[RequestRecord] = sorted(run.records, key=lambda record: record.tag)
    return [record.error for record in records], time.monotonic() - begin


def test_a_server_that_accepts_and_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found, seconds = kinds(f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert found == ["timeout"] * 2
    assert seconds < 4 * TIMEOUT_S


def test_a_server_that_does_not_even_accept() -> None:
    with socket.socket() as listener, socket.socket() as filler:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        filler.connect(listener.getsockname())
        found, seconds = kinds(f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert found == ["connect-timeout"] * 2
    assert seconds < 4 * TIMEOUT_S


def test_nobody_there() -> None:
    assert kinds("http://127.0.0.1:9")[0] == ["connect-refused"] * 2


def test_a_name_that_nobody_knows() -> None:
    assert kinds("http://no-such-host.invalid")[0] == ["dns"] * 2


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (failing("401 Unauthorized", b'{"error":{"message":"no key"}}'), "http-401"),
        (failing("404 Not Found", b'{"detail":"Not Found"}'), "http-404"),
        (failing("502 Bad Gateway", b"<html>"), "http-502"),
        (answer(finish=None, tokens=0, done=False), "no-end"),
    ],
)
def test_refusals_and_half_answers(script: Script, kind: str) -> None:
    with serving(script) as server:
        assert kinds(server.url)[0] == [kind] * 2


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: ", "closed"),
        (b"", "closed"),
    ],
)
def test_bytes_that_are_no_answer(said: bytes, kind: str) -> None:
    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        found, _ = kinds(f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert found == [kind] * 2
