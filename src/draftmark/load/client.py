"""A load for callers that are not asynchronous: the command line's main thread.

The event loop runs in a thread of its own, or in processes of its own, for two reasons. A signal handler that
raises does so in the main thread, at any line: within asyncio's own code the exception could be swallowed or leave
the loop broken, here it only ever interrupts the wait for the next record. And the callbacks (disk, terminal) run
in the main thread, so that slow ones do not hold up the arrivals.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Protocol, TypeAlias

from draftmark.errors import Interrupted, UsageError
from draftmark.load.drive import OnProgress, OnRecord, drive
from draftmark.load.endpoint import Endpoint
from draftmark.load.limits import make_room
from draftmark.load.plan import LoadPlan, LoadRun, Stop
from draftmark.load.proxies import proxy_passed_by
from draftmark.load.runner import load_runner
from draftmark.model import RequestRecord, Workload

__all__ = ["LoadPlan", "LoadRun", "run_closed_loop", "run_load"]

_SWITCH_S = 0.0005  # how long a busy callback may hold the interpreter against an arrival; 5 ms by default
_JOIN_S = 10.0
_HAND_OVER_S = 5.0
"""How long an interrupted run may take to hand over what it measured."""

_Said: TypeAlias = "RequestRecord | tuple[int, int, float | None, int] | LoadRun | BaseException"


class _Sending(Protocol):
    """Something that carries out a plan; what happens goes to a queue, the outcome last."""

    def start(self) -> None: ...

    def stop(self, because: str) -> None:
        """End it soon and have it hand over what it has."""

    def close(self) -> None:
        """End it at once, and wait until it is over."""


class _LoopThread:
    """Carries out a plan in a thread."""

    def __init__(self, endpoint: Endpoint, plan: LoadPlan, say: Callable[[_Said], None]) -> None:
        self._endpoint = endpoint
        self._plan = plan
        self._say = say
        self._lock = threading.Lock()
        self._cancelled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[LoadRun] | None = None
        self._stop: Stop | None = None
        self._thread = threading.Thread(target=self._run, name="draftmark-load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, because: str) -> None:
        with self._lock:
            if self._loop is not None and self._stop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stop.request, because)

    def close(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._loop is not None and self._task is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        outcome: _Said
        try:
            with load_runner() as runner:
                outcome = runner.run(self._main())
        except BaseException as error:  # handed over to the thread that waits for it
            outcome = error
        self._say(outcome)

    async def _main(self) -> LoadRun:
        task = asyncio.current_task()
        with self._lock:
            self._loop, self._task, self._stop = asyncio.get_running_loop(), task, Stop()
            if self._cancelled:
                raise asyncio.CancelledError
        try:
            return await drive(
                self._endpoint,
                self._plan,
                on_record=self._say,
                on_progress=lambda *now: self._say(now),
                stop=self._stop,
            )
        finally:
            with self._lock:
                self._loop = self._task = self._stop = None


def run_load(
    base_url: str,
    plan: LoadPlan,
    *,
    headers: Mapping[str, str] | None = None,
    connect_timeout_s: float = 10.0,
    workers: int = 1,
    on_record: OnRecord | None = None,
    on_progress: OnProgress | None = None,
    on_interrupted: Callable[[LoadRun], None] | None = None,
) -> LoadRun:
    """Carry out a plan and wait for it.

    Whatever a signal handler raises comes through; the sockets are closed first, and the processes ended. The
    callbacks are called in this thread, in the order of the requests' ends.

    Args:
        base_url: `http://host:port` or `https://…`.
        plan: What to send, and the limits.
        headers: Sent with every request, such as `Authorization`.
        connect_timeout_s: Limit for name lookup, TCP and TLS together.
        workers: Processes that share the sending; 1 is a thread of this one.
        on_record: Called with each record, warm-up included.
        on_progress: Called with (measured requests ended, their total, output tokens per second so far, errors).
        on_interrupted: Called with what was measured until a Ctrl-C or SIGTERM, before that comes through.

    Raises:
        UsageError: The URL, a header or a figure cannot be used, or this computer's limits do not allow it.
    """
    endpoint = Endpoint(base_url, headers=headers, connect_timeout_s=connect_timeout_s)
    if workers < 1 or (workers > 1 and 0 < plan.concurrency < workers):
        raise UsageError(
            f"{plan.concurrency} requests at once cannot be shared among {workers} processes",
            next_step="use at most as many workers as requests at once, and at least one",
        )
    make_room(plan.concurrency or None, workers)
    said: queue.SimpleQueue[_Said] = queue.SimpleQueue()
    sending: _Sending
    if workers == 1:
        sending = _LoopThread(endpoint, plan, said.put)
    else:
        from draftmark.load.workers import Processes

        sending = Processes(base_url, plan, workers, headers or {}, connect_timeout_s, said.put)
    switch = sys.getswitchinterval()
    try:
        sys.setswitchinterval(_SWITCH_S)
        sending.start()
        try:
            run = _followed(said, on_record, on_progress)
        except (KeyboardInterrupt, Interrupted) as interrupt:
            if on_interrupted is not None:
                sending.stop(f"interrupted by {_name(interrupt)}")
                with contextlib.suppress(queue.Empty):  # too slow: what was said until now must do
                    on_interrupted(_told(_followed(said, on_record, on_progress, _HAND_OVER_S), base_url))
            raise
        return _told(run, base_url)
    finally:
        sys.setswitchinterval(switch)
        sending.close()


def _followed(
    said: queue.SimpleQueue[_Said],
    on_record: OnRecord | None,
    on_progress: OnProgress | None,
    limit_s: float | None = None,
) -> LoadRun:
    """Hand on what is said until the outcome comes.

    Raises:
        queue.Empty: It did not come within the limit.
        BaseException: It is an error.
    """
    deadline = None if limit_s is None else monotonic() + limit_s
    while True:
        match said.get(timeout=None if deadline is None else max(0.0, deadline - monotonic())):
            case RequestRecord() as record:
                if on_record is not None:
                    on_record(record)
            case (int(done), int(total), tok_s, int(errors)):
                if on_progress is not None:
                    on_progress(done, total, tok_s, errors)
            case LoadRun() as run:
                return run
            case BaseException() as error:
                raise error


def _told(run: LoadRun, base_url: str) -> LoadRun:
    """With what is to be said about the way to the server."""
    passed_by = proxy_passed_by(base_url, os.environ)
    return run if passed_by is None else dataclasses.replace(run, assumptions=(*run.assumptions, passed_by))


def _name(interrupt: BaseException) -> str:
    return signal.Signals(interrupt.signum).name if isinstance(interrupt, Interrupted) else "SIGINT"


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
    plan = LoadPlan(
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
    )
    return run_load(
        base_url,
        plan,
        headers=headers,
        connect_timeout_s=connect_timeout_s,
        on_record=on_record,
        on_progress=on_progress,
    )
