"""The closed loop for callers that are not asynchronous: the command line's main thread.

The event loop runs in a thread of its own, for two reasons. A signal handler that raises does so in the main
thread, at any line: within asyncio's own code the exception could be swallowed or leave the loop broken, here it
only ever interrupts the wait for the next record. And the callbacks (disk, terminal) run in the main thread, so
that slow ones do not hold up the arrivals.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from draftmark.load.closed_loop import OnProgress, OnRecord, closed_loop
from draftmark.load.endpoint import Endpoint
from draftmark.load.plan import LoadPlan, LoadRun
from draftmark.model import RequestRecord, Workload

__all__ = ["LoadPlan", "LoadRun", "closed_loop", "run_closed_loop"]

_SWITCH_S = 0.0005  # how long a busy callback may hold the interpreter against an arrival; 5 ms by default
_JOIN_S = 10.0


@dataclass(frozen=True, slots=True)
class _Progress:
    done: int
    total: int
    tok_s: float | None
    errors: int


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


_Said: TypeAlias = "RequestRecord | _Progress | _Failed | LoadRun"


class _LoopThread:
    """Runs one closed loop in a thread; what happens is put in `said`, the outcome last."""

    def __init__(self, endpoint: Endpoint, plan: LoadPlan) -> None:
        self.said: queue.SimpleQueue[_Said] = queue.SimpleQueue()
        self._endpoint = endpoint
        self._plan = plan
        self._lock = threading.Lock()
        self._cancelled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[LoadRun] | None = None
        self.thread = threading.Thread(target=self._run, name="draftmark-load", daemon=True)

    def cancel(self) -> None:
        """End it soon; from any thread, at any time, any number of times."""
        with self._lock:
            self._cancelled = True
            if self._loop is not None and self._task is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _run(self) -> None:
        outcome: _Said
        try:
            with asyncio.Runner() as runner:
                outcome = runner.run(self._main())
        except BaseException as error:  # handed over to the thread that waits for it
            outcome = _Failed(error)
        self.said.put(outcome)

    async def _main(self) -> LoadRun:
        task = asyncio.current_task()
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), task
            if self._cancelled:
                raise asyncio.CancelledError
        try:
            return await closed_loop(
                self._endpoint,
                self._plan,
                on_record=self.said.put,
                on_progress=lambda *now: self.said.put(_Progress(*now)),
            )
        finally:
            with self._lock:
                self._loop = self._task = None


def run_closed_loop(
    base_url: str,
    workload: Workload,
    *,
    concurrency: int,
    api: str = "openai-chat",
    repeat: int = 1,
    warmup: int | None = None,
    extra: Mapping[str, object] | None = None,
    request_timeout_s: float = 120.0,
    max_seconds: float | None = None,
    headers: Mapping[str, str] | None = None,
    model: str | None = None,
    first_tag: int = 1,
    connect_timeout_s: float = 10.0,
    max_errors: int | None = None,
    on_record: OnRecord | None = None,
    on_progress: OnProgress | None = None,
) -> LoadRun:
    """Run a workload as a closed loop and wait for it.

    Whatever a signal handler raises comes through at once; the sockets are closed first. Both callbacks are called
    in this thread, in the order of the requests' ends.

    Args:
        base_url: `http://host:port` or `https://…`.
        workload: What to ask.
        concurrency: Slots.
        api: `openai-chat`, `openai` or `sglang`.
        repeat: Passes over the workload.
        warmup: Requests sent first and marked; None is one a slot.
        extra: The engine's further body fields; a value `"{tag}"` becomes the request's tag.
        request_timeout_s: Limit for one request.
        max_seconds: Limit for the whole; what was measured until then is returned.
        headers: Sent with every request, such as `Authorization`.
        model: None asks `/v1/models` once, and leaves the field out if that fails.
        first_tag: Number of the first request's tag, `bench-<n>`.
        connect_timeout_s: Limit for name lookup, TCP and TLS together.
        max_errors: So many connection-level failures in a row end the run; None is twice the slots, at least 8.
        on_record: Called with each record, warm-up included.
        on_progress: Called with (measured requests ended, their total, output tokens per second so far, errors).

    Raises:
        UsageError: The URL, a header or a figure cannot be used.
    """
    worker = _LoopThread(
        Endpoint(base_url, headers=headers, connect_timeout_s=connect_timeout_s),
        LoadPlan(
            workload=workload,
            concurrency=concurrency,
            api=api,
            repeat=repeat,
            warmup=warmup,
            extra=extra or {},
            request_timeout_s=request_timeout_s,
            max_seconds=max_seconds,
            model=model,
            first_tag=first_tag,
            max_errors=max_errors,
        ),
    )
    switch = sys.getswitchinterval()
    try:
        sys.setswitchinterval(_SWITCH_S)
        worker.thread.start()
        while True:
            match worker.said.get():
                case RequestRecord() as record:
                    if on_record is not None:
                        on_record(record)
                case _Progress(done, total, tok_s, errors):
                    if on_progress is not None:
                        on_progress(done, total, tok_s, errors)
                case _Failed(error):
                    raise error
                case LoadRun() as run:
                    return run
    finally:
        sys.setswitchinterval(switch)
        worker.cancel()
        if worker.thread.ident is not None:
            worker.thread.join(_JOIN_S)
