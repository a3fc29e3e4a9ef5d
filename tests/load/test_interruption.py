"""Whatever interrupts a closed loop comes through at once and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from draftmark.errors import Interrupted
from draftmark.load.client import LoadPlan, LoadRun, run_closed_loop
from draftmark.load.drive import drive
from draftmark.load.endpoint import Endpoint
from draftmark.model import Message, Prompt, RequestRecord, Workload

from .scripted import Request, Script, Wire, answer, delta, serving


def workload(prompts: int = 2) -> Workload:
    return Workload("w", tuple(Prompt(f"p{i}", (Message("user", f"say {i}"),), 8) for i in range(prompts)))


def run(url: str, prompts: int = 2, **options: Any) -> LoadRun:
    options.setdefault("concurrency", 1)
    options.setdefault("warmup", 0)
    return run_closed_loop(url, workload(prompts), **options)


def wait_until_closed(server: Any) -> bool:
    for _ in range(100):
        if server.open == 0:
            return True
        time.sleep(0.01)
    return False


async def hang(wire: Wire, request: Request) -> None:
    wire.stream()
    await wire.event(delta("a"))
    await wire.until_left()


class FullError(Exception):
    pass


def left_behind() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "draftmark-load"]


def test_an_exception_of_a_callback_comes_through_and_leaves_nothing() -> None:
    def full(record: RequestRecord) -> None:
        raise FullError

    with serving(answer(gap_s=0.01)) as server:
        with pytest.raises(FullError):
            run(server.url, 1000, concurrency=4, on_record=full)
        assert wait_until_closed(server)
    assert left_behind() == []


@contextmanager
def raising_handler(signum: int, error: BaseException) -> Iterator[None]:
    def handler(number: int, frame: object) -> None:
        raise error

    before = signal.signal(signum, handler)
    # What a handler raises inside a collector's callback is swallowed by Python. With the heap of a whole test
    # session a collection takes so long that the signal would meet one.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        signal.signal(signum, before)


@pytest.mark.parametrize("error", [Interrupted(signal.SIGUSR1), KeyboardInterrupt()], ids=["own", "keyboard"])
@pytest.mark.parametrize("script", [hang, answer(("a",) * 8, gap_s=0.002)], ids=["silent", "busy"])
def test_a_signal_handler_that_raises_ends_the_run_at_once(error: BaseException, script: Script) -> None:
    with serving(script) as server, raising_handler(signal.SIGUSR1, error):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        begin = time.monotonic()
        with pytest.raises(type(error)) as caught:
            run(server.url, 10_000, concurrency=4)
        timer.join()
        assert caught.value is error
        assert time.monotonic() - begin < 1.5
        assert wait_until_closed(server)
    assert left_behind() == []


def test_a_signal_while_connecting_ends_the_run_at_once() -> None:
    with socket.socket() as listener, socket.socket() as filler:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        filler.connect(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with raising_handler(signal.SIGUSR1, Interrupted(signal.SIGUSR1)):
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            begin = time.monotonic()
            with pytest.raises(Interrupted):
                run(url, 2, concurrency=2, model="m")
            assert time.monotonic() - begin < 1.5
            timer.join()
    assert left_behind() == []


def test_cancelling_the_coroutine_leaves_no_task_and_no_socket() -> None:
    async def main(url: str) -> int:
        plan = LoadPlan(workload=workload(100), concurrency=3, model="m")
        task = asyncio.create_task(drive(Endpoint(url), plan))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(asyncio.all_tasks())

    with serving(hang) as server:
        assert asyncio.run(main(server.url)) == 1
        assert wait_until_closed(server)


def test_it_works_within_another_thread_and_twice_at_once() -> None:
    with serving(answer(gap_s=0.01)) as server:
        out: list[LoadRun] = []
        threads = [threading.Thread(target=lambda: out.append(run(server.url, 4))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert [len(r.records) for r in out] == [4, 4]
