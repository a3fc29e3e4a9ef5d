"""A load from several processes is the load of one: the same requests, once each, and the same figures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmark.errors import Interrupted, UsageError
from draftmark.load import workers as workers_module
from draftmark.load.client import LoadPlan, LoadRun, run_load
from draftmark.load.workers import merged_health, merged_words
from draftmark.model import ClientHealth, Message, Prompt, RequestRecord, Workload

from .scripted import Request, Wire, answer, delta, failing, serving
from .test_interruption import FullError, raising_handler, wait_until_closed


def plan(prompts: int, **options: Any) -> LoadPlan:
    workload = Workload("w", tuple(Prompt(f"p{i}", (Message("user", f"say {i}"),), 8) for i in range(prompts)))
    return LoadPlan(workload=workload, **{"concurrency": 4, "warmup": 3, "model": "m", **options})


def children() -> set[int]:
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in listed}


def wait_until(true: Callable[[], bool], limit_s: float = 5.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def tags(run: LoadRun) -> list[str]:
    return sorted((record.tag for record in run.records), key=lambda tag: int(tag.removeprefix("bench-")))


def test_every_request_is_sent_once_over_the_slots_of_the_whole() -> None:
    seen: list[RequestRecord] = []
    told: list[tuple[int, int, float | None, int]] = []
    before = children()
    with serving(answer(gap_s=0.002)) as server:
        run = run_load(
            server.url,
            plan(20, extra={"cache_salt": "{tag}"}),
            workers=3,
            headers={"Authorization": "Bearer k"},
            on_record=seen.append,
            on_progress=lambda *now: told.append(now),
        )
        posts = server.posts
    assert tags(run) == [f"bench-{i}" for i in range(1, 24)]
    assert sorted(post.headers["x-request-id"] for post in posts) == sorted(tags(run))
    assert {post.headers["authorization"] for post in posts} == {"Bearer k"}
    assert {post.body["cache_salt"] for post in posts} == set(tags(run))
    assert len({post.connection for post in posts}) == 4
    assert [r.warmup for r in sorted(run.records, key=lambda r: int(r.tag[6:]))] == [True] * 3 + [False] * 20
    assert {r.error for r in run.records} == {None}
    assert {r.concurrency for r in run.records} == {4}
    assert sorted(seen, key=lambda r: r.end_at_s) == list(run.records)
    assert told[-1][:2] == (20, 20)
    assert (run.stopped_because, run.unsent, run.disturbed, run.assumptions) == (None, {}, (), ())
    assert children() == before


def test_all_count_from_one_begin() -> None:
    with serving(answer()) as server:
        run = run_load(server.url, plan(8, warmup=0), workers=4)
    assert min(r.sent_at_s for r in run.records) >= 0.0
    firsts = sorted(r.sent_at_s for r in run.records)[:4]
    assert firsts[3] < 0.5


def test_an_open_loop_keeps_its_schedule() -> None:
    at = tuple(i * 0.02 for i in range(12))
    with serving(answer()) as server:
        run = run_load(server.url, plan(3, concurrency=0, warmup=0, send_at_s=at), workers=2)
    ordered = sorted(run.records, key=lambda r: int(r.tag[6:]))
    assert [r.intended_at_s for r in ordered] == pytest.approx(list(at))
    assert [r.prompt_id for r in ordered] == ["p0", "p1", "p2"] * 4
    assert all(r.sent_at_s >= t for r, t in zip(ordered, at, strict=True))


def test_what_one_process_would_assume_is_assumed_once() -> None:
    with serving(answer(tokens=0)) as server:
        run = run_load(server.url, plan(8), workers=2)
    assert run.assumptions == ("The server gave no token count; one token a chunk was assumed.",)


def test_a_process_that_dies_ends_the_run_and_is_told() -> None:
    before = children()
    killed = threading.Event()

    async def kill_one(wire: Wire, request: Request) -> None:
        if request.headers["x-request-id"] == "bench-9" and not killed.is_set():
            killed.set()
            os.kill(max(children() - before), signal.SIGKILL)
        await answer(gap_s=0.01)(wire, request)

    with serving(kill_one) as server:
        run = run_load(server.url, plan(400, warmup=0), workers=2)
        assert wait_until_closed(server)
    assert run.stopped_because is not None
    assert "died (SIGKILL)" in run.stopped_because
    assert run.disturbed == (run.stopped_because,)
    assert len(run.records) + sum(run.unsent.values()) == 400
    assert 0 < len(run.records) < 400
    assert children() == before


def test_an_error_of_the_plan_comes_through_as_itself() -> None:
    refusing = failing("422 Unprocessable Entity", b'{"detail":"no"}')
    with serving(refusing) as server, pytest.raises(UsageError) as caught:
        run_load(server.url, plan(4, api="sglang"), workers=2)
    assert "openai-chat" in caught.value.next_step
    assert "422" in caught.value.evidence[0]


def test_more_processes_than_slots_are_refused() -> None:
    with pytest.raises(UsageError):
        run_load("http://127.0.0.1:9", plan(4, concurrency=2), workers=3)
    with pytest.raises(UsageError):
        run_load("http://127.0.0.1:9", plan(4), workers=0)


def test_a_server_that_is_not_there_ends_all() -> None:
    run = run_load("http://127.0.0.1:9", plan(100), workers=2)
    assert "connect-refused" in (run.stopped_because or "")
    assert {r.error for r in run.records} == {"connect-refused"}


async def hang(wire: Wire, request: Request) -> None:
    wire.stream()
    await wire.event(delta("a"))
    await wire.until_left()


def test_an_exception_of_a_callback_leaves_no_process() -> None:
    before = children()

    def full(record: RequestRecord) -> None:
        raise FullError

    with serving(answer(gap_s=0.01)) as server:
        with pytest.raises(FullError):
            run_load(server.url, plan(1000), workers=2, on_record=full)
        assert wait_until_closed(server)
    assert children() == before


def test_a_listener_that_comes_late_still_reads_how_its_process_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it does so while everything is closed already (an unhandled exception fails a test)."""
    over = workers_module.Processes._over

    def late(self: workers_module.Processes, worker: workers_module._Worker) -> None:
        time.sleep(0.3)
        over(self, worker)

    def full(record: RequestRecord) -> None:
        raise FullError

    monkeypatch.setattr(workers_module.Processes, "_over", late)
    with serving(answer(gap_s=0.01)) as server, pytest.raises(FullError):
        run_load(server.url, plan(1000), workers=2, on_record=full)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_hands_over_what_was_measured_and_leaves_no_process(workers: int) -> None:
    before = children()
    kept: list[LoadRun] = []
    seen: list[RequestRecord] = []

    def interrupted_later(record: RequestRecord) -> None:
        seen.append(record)
        if len(seen) == 40:
            os.kill(os.getpid(), signal.SIGUSR1)

    with serving(answer(("a",) * 8, gap_s=0.005)) as server:
        with raising_handler(signal.SIGUSR1, Interrupted(signal.SIGTERM)), pytest.raises(Interrupted):
            run_load(
                server.url,
                plan(10_000),
                workers=workers,
                on_record=interrupted_later,
                on_interrupted=kept.append,
            )
        assert wait_until_closed(server)
    (run,) = kept
    assert run.stopped_because == "interrupted by SIGTERM"
    measured = [r for r in run.records if not r.warmup]
    assert len(measured) + sum(run.unsent.values()) == 10_000
    assert sum(r.error is None for r in measured) > 20
    assert {r.error for r in measured} <= {None, "cut"}
    assert children() == before


PARENT = """
import sys
from tests.load.test_workers import plan
from draftmark.load.client import run_load
print("up", flush=True)
run_load(sys.argv[1], plan(10_000), workers=2)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_is_killed_leaves_no_process(signum: int) -> None:
    with serving(hang) as server:
        parent = subprocess.Popen([sys.executable, "-c", PARENT, server.url], cwd=Path(__file__).parents[2])
        try:
            assert wait_until(lambda: server.open == 4, 10)
            listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
            assert len(listed) == 2
        finally:
            parent.send_signal(signum)
            parent.wait()
        assert wait_until_closed(server)
        assert wait_until(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in listed))


def test_health_of_all() -> None:
    parts = [
        ClientHealth(loop_lag_ms_p99=1.0, loop_lag_ms_max=9.0, cpu_s=2.0),
        ClientHealth(loop_lag_ms_p99=3.0, loop_lag_ms_max=4.0, loop_pauses_ms=0.0, cpu_s=1.0),
    ]
    merged = merged_health(parts, 0.5)
    assert merged == ClientHealth(loop_lag_ms_p99=3.0, loop_lag_ms_max=9.0, loop_pauses_ms=0.0, cpu_s=3.5)
    assert merged_health([], 0.5) == ClientHealth(cpu_s=0.5)


def test_words_of_all() -> None:
    parts = [("Counts in 3 answers of v1.5.", "Same."), ("Counts in 4 answers of v1.5.", "Same.", "New."), ()]
    assert merged_words(parts) == ("Counts in 7 answers of v1.5.", "Same.", "New.")
