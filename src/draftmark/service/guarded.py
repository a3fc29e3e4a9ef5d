"""The controller's end of one guard: spawn it, follow what it reports, bury it.

Every step leaves a state from which `abandon` works, since a signal handler may raise between any two lines of it:
the ends of the pipes are kept here before the guard exists, and a guard whose pipe closes kills everything.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import json
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmark.model import Identity
from draftmark.service.proc import ProcessStat, kill_exactly, of_instance, read_stat, still_runs, tree_cpu_s

MARKER = "DRAFTMARK_INSTANCE"
"""Environment variable that every process of an instance carries, the guard included."""

_GUARD = Path(__file__).with_name("guard.py")
_HANDSHAKE_S = 30.0  # a cold interpreter on a network disk
_SWEEP_S = 5.0
_REPORT_S = 0.2
# Blocked in the guard until it ignores them: a Ctrl-C meant for us may arrive before it has its own session.
_BLOCKED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP}


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """Why there is no engine.

    Attributes:
        stage: `log`, `fork`, `prepare`, `chdir`, `exec`, or `guard` when the guard itself failed.
        number: errno; 0 when there is none.
        detail: What is known beyond the errno.
    """

    stage: str
    number: int
    detail: str = ""


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    """A pipe, closed on exec. Files rather than numbers: an interrupt can neither lose one nor close it twice."""
    read, write = os.pipe()
    if min(read, write) < 3:  # a standard descriptor, which was closed: any stray print would land in the pipe
        numbers = read, write
        read, write = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in numbers)
        for number in numbers:
            os.close(number)
    return io.FileIO(read, "rb"), io.FileIO(write, "wb")


class GuardedProcess:
    """One engine under one guard, from its launch until every process of it is gone."""

    def __init__(self) -> None:
        self.instance = secrets.token_hex(8)
        self.pid: int | None = None
        self.started_ticks = 0
        self.exit_code: int | None = None
        self.main_alive = False
        self.lost_guard = False  # it was killed, and with it, by the kernel or by us, all that it guarded
        self.survivors: tuple[ProcessStat, ...] = ()  # what even SIGKILL did not end
        self.cpu_s = 0.0  # of the guard and all that it reaped; known once it is buried
        self._all_reaped = False
        self._failure: LaunchFailure | None = None
        self._pipes: dict[str, io.FileIO] = {}
        self._guards: list[int] = []
        self._pending = b""
        self._buried = False

    def __del__(self) -> None:
        if getattr(self, "_pipes", None):  # forgotten while it ran, or interrupted in __init__
            self._close()

    @property
    def gone(self) -> bool:
        """Whether no process of it is left, as far as the reports taken in say."""
        return not self._guards or self._all_reaped or (self._buried and not self.survivors)

    @property
    def guard_pid(self) -> int | None:
        """The guard; None before the launch and after the burial."""
        return self._guards[0] if self._guards and not self._buried else None

    # --- launch ---------------------------------------------------------------------------------------------

    def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, log: Path
    ) -> LaunchFailure | None:
        """Spawn the guard and have it start `argv`.

        Args:
            argv: Program, looked up in `env`'s PATH, and its arguments.
            env: Whole environment; the marker is added.
            cwd: Working directory; ours when None.
            log: Where stdout and stderr are appended.

        Returns:
            None when the engine runs, else why it does not; nothing is left then.
        """
        variables = (f"{name}={value}" for name, value in {**env, MARKER: self.instance}.items())
        directory = "" if cwd is None else cwd
        payload = b"".join(os.fsencode(word) + b"\0" for word in (log, directory, *argv, *variables))
        try:
            self._spawn()
            self._send(b"%d %d\n%b" % (len(payload), len(argv), payload))
        except OSError as error:
            self.abandon()
            return self._failure or LaunchFailure("guard", error.errno or 0, str(error))
        deadline = time.monotonic() + _HANDSHAKE_S
        while self.pid is None and not self.gone and time.monotonic() < deadline:
            self.pump(deadline - time.monotonic())
        if self.pid is not None:
            return None
        hung = not self.gone
        self.abandon()
        detail = f"no answer within {_HANDSHAKE_S:.0f} s" if hung else "it ended before it started anything"
        return self._failure or LaunchFailure("guard", 0, detail)

    def _spawn(self) -> None:
        self._pipes["control_read"], self._pipes["control"] = _pipe()
        self._pipes["events"], self._pipes["events_write"] = _pipe()
        os.set_blocking(self._pipes["events"].fileno(), False)
        command = [sys.executable, "-I", "-S", os.fspath(_GUARD), str(os.getpid())]
        spawn = functools.partial(
            os.posix_spawn,
            sys.executable,
            command,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, self._pipes["control_read"].fileno(), 0),
                (os.POSIX_SPAWN_DUP2, self._pipes["events_write"].fileno(), 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setsigmask=_BLOCKED,
        )
        # extend(map(...)) runs without a bytecode in between, so no signal handler can raise between the spawn and
        # the moment its pid is kept.
        self._guards.extend(map(spawn, [{**os.environ, MARKER: self.instance}]))
        self._close("control_read", "events_write")

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._pipes["control"].fileno(), view) :]

    # --- life -----------------------------------------------------------------------------------------------

    def pump(self, timeout_s: float = 0.0) -> None:
        """Take in what the guard has reported, waiting for a report at most so long."""
        events = self._pipes.get("events")
        if events is None or not self._guards:
            if self._guards and not self._buried:
                self._bury()
            self.survivors = tuple(stat for stat in self.survivors if still_runs(stat))
            return
        if timeout_s > 0:
            poller = select.poll()
            poller.register(events, select.POLLIN)
            poller.poll(timeout_s * 1000)
        ended = False
        with contextlib.suppress(BlockingIOError):
            while not ended:
                data = os.read(events.fileno(), 4096)
                self._pending += data
                ended = not data
        while b"\n" in self._pending:
            line, _, rest = self._pending.partition(b"\n")
            self._take(json.loads(line))  # idempotent, so that an interrupt here loses nothing
            self._pending = rest
        if ended or self._all_reaped:
            self._bury()

    def _take(self, event: dict[str, object]) -> None:
        number = {key: value for key, value in event.items() if isinstance(value, int)}
        match event["event"]:
            case "started":
                self.started_ticks = number["started_ticks"]
                self.main_alive = True
                self.pid = number["pid"]
            case "exec-failed":
                self._failure = LaunchFailure(str(event["stage"]), number["errno"])
            case "exited":
                self.exit_code = number["code"]
                self.main_alive = False
            case "gone":
                self.main_alive = False
                self._all_reaped = True

    def identity(self) -> Identity:
        """Who was started.

        Raises:
            ValueError: Nothing was.
        """
        if self.pid is None:
            raise ValueError("not launched")
        return Identity(pid=self.pid, started_ticks=self.started_ticks, invocation=self.instance)

    def refresh(self) -> None:
        """Take in reports; if the engine is dead and nobody said so, wait a moment for the one on its way."""
        self.pump()
        if self.main_alive and self.pid is not None:
            stat = read_stat(self.pid)
            if stat is None or not stat.alive or stat.started_ticks != self.started_ticks:
                self.pump(_REPORT_S)

    def signal(self, name: str, *, main_only: bool = False) -> None:
        """Have the guard send TERM, INT or KILL to the process group, or to the main process alone."""
        if "control" in self._pipes:
            with contextlib.suppress(BrokenPipeError):  # the guard is dead: the next pump sees it
                self._send(f"{'main' if main_only else 'signal'} {name}\n".encode())

    def tree_cpu_s(self) -> float | None:
        """CPU seconds of the engine and everything below it, so far."""
        if self._buried or not self._guards:
            return self.cpu_s
        return tree_cpu_s(self._guards[0])

    # --- the end --------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Kill everything now and see it gone: closing the pipe is all that it takes."""
        if self._guards:
            self._close("control", "control_read", "events_write")
        else:
            self._close()
        deadline = time.monotonic() + _SWEEP_S
        while self._guards and not self._buried and time.monotonic() < deadline:
            self.pump(deadline - time.monotonic())
        if self._guards and not self._buried:
            self.force()

    def force(self) -> None:
        """Kill a guard that does not answer, then everything that it guarded."""
        if self._guards and not self._buried:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._guards[0], signal.SIGKILL)
            self._bury()

    def _bury(self) -> None:
        """Reap the guard. If it did not see the last process go, it was killed: sweep up first.

        In that order: an unreaped guard keeps its pid, which is the id of its session, so that the session cannot
        meanwhile be a stranger's.
        """
        guard = self._guards[0]
        if not self._all_reaped and self._failure is None:
            self.lost_guard = self.pid is not None
            self._sweep(guard)
        self._close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(guard, signal.SIGKILL)  # it has nothing left to do: no need to wait for its interpreter to end
        with contextlib.suppress(ChildProcessError):  # SIGCHLD is ignored, or someone waited for any child
            usage = os.wait4(guard, 0)[2]
            self.cpu_s = usage.ru_utime + usage.ru_stime
        self.main_alive = False
        self._buried = True

    def _sweep(self, guard: int) -> None:
        deadline = time.monotonic() + _SWEEP_S
        marker = f"{MARKER}={self.instance}"
        while left := of_instance(guard, marker):
            self.survivors = tuple(left)
            if time.monotonic() > deadline:
                return
            for stat in left:
                kill_exactly(stat)
            time.sleep(0.005)
        self.survivors = ()

    def _close(self, *names: str) -> None:
        for name in names or tuple(self._pipes):
            if name in self._pipes:
                self._pipes[name].close()  # before it is forgotten; a second time does nothing
                del self._pipes[name]
