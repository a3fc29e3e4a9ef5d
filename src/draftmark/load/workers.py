"""One load from several processes, for where one core is not enough: dealt exactly, begun together, merged exactly.

Each process is a fresh interpreter (the parent has threads, which do not survive a fork) and gets its share of the
plan, `LoadPlan.part`, over its standard input; what comes of it goes back over its standard output. When its input
ends, because the parent stopped it or is gone, it ends, and its requests with it. Times need no translation: the
monotonic clock is the same in all processes of a computer, and all count from the begin that the parent names.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import queue
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic, process_time
from typing import IO, TypeAlias

import msgspec

from draftmark import errors
from draftmark.load.drive import drive
from draftmark.load.endpoint import Endpoint
from draftmark.load.plan import LoadPlan, LoadRun, Stop
from draftmark.load.runner import load_runner
from draftmark.model import ClientHealth, RequestRecord

_PROGRESS_EVERY_S = 0.1
_LEAD_S = 0.005  # from "all are ready" to the begin, so that none hears of it too late
_END_S = 5.0
_LENGTH = struct.Struct("<I")


# --- what is said between the processes -------------------------------------------------------------------


class Share(msgspec.Struct):
    """To a process, first of all: what it shall send."""

    base_url: str
    headers: dict[str, str]
    connect_timeout_s: float
    plan: LoadPlan


class Begin(msgspec.Struct, tag=True):
    """To a process: start at this moment of the monotonic clock."""

    at: float


class End(msgspec.Struct, tag=True):
    """To a process: stop, and hand over what was measured."""

    because: str


class Ready(msgspec.Struct, tag=True):
    """From a process: it only waits for the begin."""


class Ended(msgspec.Struct, tag=True):
    """From a process: a request has ended."""

    record: RequestRecord


class Progress(msgspec.Struct, tag=True):
    """From a process: requests ended, of how many, tokens per second so far, errors. Its own share's."""

    done: int
    total: int
    tok_s: float | None
    errors: int


class Finished(msgspec.Struct, tag=True):
    """From a process: what it came to, without the records, which went before."""

    run: LoadRun


class Broken(msgspec.Struct, tag=True):
    """From a process: an error of ours that a user is meant to read."""

    kind: str
    what: str
    evidence: tuple[str, ...]
    next_step: str

    def error(self) -> errors.DraftmarkError:
        """The same error, here."""
        kind = getattr(errors, self.kind, errors.FailedError)
        made: errors.DraftmarkError = kind(self.what, evidence=self.evidence, next_step=self.next_step)
        return made


_FromWorker: TypeAlias = Ready | Ended | Progress | Finished | Broken
_encode = msgspec.msgpack.Encoder().encode
_decode_share = msgspec.msgpack.Decoder(Share).decode
_decode_order = msgspec.msgpack.Decoder(Begin | End).decode
_decode_said = msgspec.msgpack.Decoder(_FromWorker).decode


def _frame(message: msgspec.Struct) -> bytes:
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def _frames(stream: IO[bytes]) -> Iterator[bytes]:
    """Until the other end closes; what is then incomplete is left out."""
    while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
        (size,) = _LENGTH.unpack(head)
        if len(body := stream.read(size)) < size:
            return
        yield body


# --- a process --------------------------------------------------------------------------------------------


class _Out:
    """Writes to the parent in a thread of its own, so that a slow parent delays no arrival."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="draftmark-out", daemon=True)
        self._thread.start()

    def say(self, message: msgspec.Struct) -> None:
        self._frames.put(_frame(message))

    def close(self) -> None:
        self._frames.put(None)
        self._thread.join()

    def _write(self) -> None:
        try:
            while (frame := self._frames.get()) is not None:
                self._stream.write(frame)
                if self._frames.empty():
                    self._stream.flush()
        except OSError:  # the parent is gone, which the other pipe tells as well
            return


async def _send_share(share: Share, orders: Iterator[bytes], out: _Out) -> LoadRun:
    loop, task, stop = asyncio.get_running_loop(), asyncio.current_task(), Stop()
    begin: asyncio.Future[float] = loop.create_future()
    last = -_PROGRESS_EVERY_S

    def obey(order: Begin | End) -> None:
        if isinstance(order, End):
            stop.request(order.because)
        elif not begin.done():
            begin.set_result(order.at)

    def listen() -> None:
        for frame in orders:
            loop.call_soon_threadsafe(obey, _decode_order(frame))
        if task is not None:
            loop.call_soon_threadsafe(task.cancel)  # nobody is left to measure for

    async def gate() -> float:
        out.say(Ready())
        at = await begin
        await asyncio.sleep(max(0.0, at - monotonic()))
        return at

    def progress(done: int, total: int, tok_s: float | None, failed: int) -> None:
        nonlocal last
        now = monotonic()
        if now - last >= _PROGRESS_EVERY_S or done == total:
            last = now
            out.say(Progress(done, total, tok_s, failed))

    threading.Thread(target=listen, name="draftmark-in", daemon=True).start()
    return await drive(
        Endpoint(share.base_url, headers=share.headers, connect_timeout_s=share.connect_timeout_s),
        share.plan,
        on_record=lambda record: out.say(Ended(record)),
        on_progress=progress,
        stop=stop,
        gate=gate,
    )


def main() -> int:
    """Carry out the share that comes over standard input; 0 where it was, 1 where the parent went away first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    orders, out = _frames(sys.stdin.buffer), _Out(sys.stdout.buffer)
    share = _decode_share(next(orders))
    try:
        with load_runner() as runner:
            run = runner.run(_send_share(share, orders, out))
    except asyncio.CancelledError:
        return 1
    except errors.DraftmarkError as error:
        out.say(Broken(type(error).__name__, error.what, error.evidence, error.next_step))
    else:
        out.say(Finished(dataclasses.replace(run, records=())))
    out.close()
    return 0


# --- the parent -------------------------------------------------------------------------------------------


class _Worker:
    """One process, as the parent sees it."""

    def __init__(self, share: Share, number: int) -> None:
        self.number = number
        self.plan = share.plan
        self.ready = False
        self.over = False
        self.progress: Progress | None = None
        self.finished: LoadRun | None = None
        self.broken: Broken | None = None
        self.measured = 0
        self._share: Share | None = share
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the process is
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import sys; from draftmark.load.workers import main; sys.exit(main())"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": _with_ourselves(os.environ)},
            start_new_session=True,  # a Ctrl-C is the parent's to answer
        )

    def hand_over(self) -> None:
        """Tell it what to send; waits until it takes that."""
        if self._share is not None:
            self.tell(self._share)
            self._share = None

    def tell(self, message: msgspec.Struct) -> None:
        """Say something to it; one that is gone hears nothing."""
        stdin = self.process.stdin
        try:
            if stdin is not None and not stdin.closed:
                stdin.write(_frame(message))
                stdin.flush()
        except OSError:
            return

    def leave(self) -> None:
        """Close its input, which ends it; one that has not even taken its share knows no better end."""
        if self._share is not None:
            self.process.kill()
        try:
            if self.process.stdin is not None:
                self.process.stdin.close()
        except OSError:
            return

    def death(self) -> str:
        """How it ended, and its last words, for one that ended without its LoadRun."""
        status = self.process.wait()
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"{how}{': ' + lines[-1] if lines else ''}"

    def end(self, deadline: float) -> None:
        """Wait until it is gone; by force at the deadline."""
        self.leave()
        try:
            self.process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Let go of what it said: nobody listens any more."""
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()


def _with_ourselves(environment: Mapping[str, str]) -> str:
    """A module path on which the fresh interpreter finds this very package."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([here, *filter(None, [environment.get("PYTHONPATH")])])


class Processes:
    """The load of one plan, sent by several processes.

    Args:
        say: Called, in threads of this object, with each record, each (done, total, tokens a second, errors) of the
            whole, and at last with the LoadRun or an error.
    """

    def __init__(
        self,
        base_url: str,
        plan: LoadPlan,
        workers: int,
        headers: Mapping[str, str],
        connect_timeout_s: float,
        say: Callable[[RequestRecord | tuple[int, int, float | None, int] | LoadRun | BaseException], None],
    ) -> None:
        self._say = say
        self._shares = [
            Share(base_url, dict(headers), connect_timeout_s, dataclasses.replace(plan, part=(k, workers)))
            for k in range(workers)
        ]
        self._workers: list[_Worker] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._begun = self._done = False
        self._records: list[RequestRecord] = []
        self._cpu = process_time()

    def start(self) -> None:
        """Start the processes; from here on `close` must be called."""
        for number, share in enumerate(self._shares, 1):
            self._workers.append(_Worker(share, number))
        for worker in self._workers:
            thread = threading.Thread(target=self._listen, args=(worker,), name="draftmark-worker", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, because: str) -> None:
        """Have all end soon and hand over what was measured."""
        for worker in self._workers:
            worker.tell(End(because))

    def close(self) -> None:
        """End every process, whatever it does, and wait until it is gone."""
        for worker in self._workers:
            worker.leave()
        deadline = monotonic() + _END_S
        for worker in self._workers:
            worker.end(deadline)
        for thread in self._threads:  # each reads to the end of what its process said, and how that ended
            thread.join()
        for worker in self._workers:
            worker.close()

    def _listen(self, worker: _Worker) -> None:
        stdout = worker.process.stdout
        if stdout is None:
            return
        try:
            worker.hand_over()
            for frame in _frames(stdout):
                self._take(worker, _decode_said(frame))
        except (OSError, ValueError):  # its input was closed before it had its share, or it sent no message
            pass
        with self._lock:
            self._over(worker)

    def _take(self, worker: _Worker, said: _FromWorker) -> None:
        with self._lock:
            if isinstance(said, Ended):
                self._records.append(said.record)
                worker.measured += not said.record.warmup
                self._say(said.record)
            elif isinstance(said, Progress):
                worker.progress = said
                self._say(self._progress())
            elif isinstance(said, Ready):
                worker.ready = True
                self._begin_if_ready()
            elif isinstance(said, Finished):
                worker.finished = said.run
            else:
                worker.broken = said

    def _begin_if_ready(self) -> None:
        if not self._begun and all(worker.ready or worker.over for worker in self._workers):
            self._begun = True
            at = monotonic() + _LEAD_S
            for worker in self._workers:
                worker.tell(Begin(at))

    def _over(self, worker: _Worker) -> None:
        """One has ended: the others end with it, unless it had simply sent everything."""
        worker.over = True
        if worker.finished is None and worker.broken is None:
            because = f"load process {worker.number} of {len(self._workers)} died ({worker.death()})"
            left = worker.plan.total - worker.measured
            unsent = {because: left} if left else {}
            worker.finished = LoadRun((), ClientHealth(), (), because, unsent, (because,))
        if worker.broken is not None or (worker.finished and worker.finished.stopped_because is not None):
            self.stop(worker.finished.stopped_because or "" if worker.finished else "another process failed")
        self._begin_if_ready()
        if all(other.over for other in self._workers) and not self._done:
            self._done = True
            broken = next((other.broken for other in self._workers if other.broken is not None), None)
            self._say(broken.error() if broken is not None else self._merged())

    def _progress(self) -> tuple[int, int, float | None, int]:
        told = [worker.progress for worker in self._workers if worker.progress is not None]
        rates = [now.tok_s for now in told if now.tok_s is not None]
        total = sum(worker.plan.total for worker in self._workers)
        return sum(now.done for now in told), total, sum(rates) if rates else None, sum(now.errors for now in told)

    def _merged(self) -> LoadRun:
        runs = [worker.finished for worker in self._workers if worker.finished is not None]
        unsent: dict[str, int] = {}
        for run in runs:
            for reason, count in run.unsent.items():
                unsent[reason] = unsent.get(reason, 0) + count
        # one that died is the reason for which the others were stopped
        stopped = next((run.stopped_because for run in runs if run.stopped_because is not None), None)
        return LoadRun(
            records=tuple(sorted(self._records, key=lambda record: record.end_at_s)),
            client=merged_health([run.client for run in runs], process_time() - self._cpu),
            assumptions=merged_words([run.assumptions for run in runs]),
            stopped_because=stopped,
            unsent=unsent,
            disturbed=tuple(dict.fromkeys(words for run in runs for words in run.disturbed)),
        )


def merged_health(parts: list[ClientHealth], own_cpu_s: float) -> ClientHealth:
    """The worst lag of any process, and the CPU seconds of all, this one included."""

    def worst(name: str) -> float | None:
        return max((value for part in parts if (value := getattr(part, name)) is not None), default=None)

    names = [field.name for field in dataclasses.fields(ClientHealth) if field.name != "cpu_s"]
    cpu_s = own_cpu_s + sum(part.cpu_s or 0.0 for part in parts)
    return ClientHealth(**{name: worst(name) for name in names}, cpu_s=cpu_s)


def merged_words(parts: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Each sentence once; of sentences that differ in their counts alone, one with the sums."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for sentence in (sentence for part in parts for sentence in part):
        words = re.split(r"(?<![\w.,])(\d+)(?![\w.,]*\d)", sentence)
        counts = [int(count) for count in words[1::2]]
        known = sums.get(tuple(words[::2]))
        sums[tuple(words[::2])] = counts if known is None else [a + b for a, b in zip(known, counts, strict=True)]
    return tuple(
        "".join(piece for pair in zip(texts, [*map(str, counts), ""], strict=True) for piece in pair)
        for texts, counts in sums.items()
    )


if __name__ == "__main__":
    raise SystemExit(main())
