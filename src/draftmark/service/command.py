"""Runs a command line as a service: the supervisor behind `cmd:` and, with our own server, `embedded:`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from draftmark.errors import HostError, RefusedError, StartError, UnrestoredError
from draftmark.model import Identity, Intervention, StopOutcome, StopReport
from draftmark.ports import Clock, CpuSample
from draftmark.service.explain import launch_error
from draftmark.service.guarded import GuardedProcess
from draftmark.service.host import SystemClock
from draftmark.service.interlock import Interlock
from draftmark.service.proc import command_line, descendants, machine_cpu_s

_LOOK_S = 0.01  # how often a stop looks whether everything is gone
_LINGER_S = 1.0  # what may remain after the main process ended, before it is asked once more
_REPORT_S = 0.1
_HURRY_S = 1.5  # each of the two graces when the user wants to leave
_KILL_WAIT_S = 10.0  # SIGKILL takes effect at once, except in a process stuck inside the kernel


@dataclass(slots=True)
class _Ending:
    """A stop on its way. Kept between calls, for a stop may be interrupted."""

    was_dead: bool
    signals: list[str] = field(default_factory=list)
    begun_at: float | None = None

    def outcome(self, *, lost_guard: bool) -> StopOutcome:
        if self.was_dead or not self.signals:
            return StopOutcome.ALREADY_DEAD
        if lost_guard or "KILL" in self.signals:
            return StopOutcome.KILLED
        return StopOutcome.CLEAN if len(self.signals) == 1 else StopOutcome.SLOW


class CommandSupervisor:
    """Starts, watches and stops one command. No process of it outlives this one, whatever kills this one.

    A guard process of about 11 MB stands in between (`draftmark.service.guard`). There are no threads and no atexit
    hook: reports are read whenever a method is called. Not for use from two threads at once.

    Args:
        command: The service's own command line.
        env: Variables set on top of ours.
        cwd: Working directory; ours when None.
        grace_s: How long the first SIGTERM is given.
        second_grace_s: How long the second one is given: llama-server, busy, ends only at its second signal.
        main_only: The first SIGTERM is for the main process alone: its children would die of one of their own, and
            take the drain with them.
        clock: Measures the graces.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        grace_s: float = 10.0,
        second_grace_s: float = 5.0,
        main_only: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._original = tuple(command)
        self._env = dict(env or {})
        self._cwd = cwd
        self._grace_s = grace_s
        self._second_grace_s = second_grace_s
        self._main_only = main_only
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._process: GuardedProcess | None = None
        self._ending: _Ending | None = None
        self._past_cpu_s = 0.0
        self._interlock = Interlock()

    @property
    def original(self) -> tuple[str, ...]:
        """The command line that this supervisor was made for."""
        return self._original

    @property
    def altered(self) -> tuple[str, ...]:
        """Nothing: there is no configuration beside the command line."""
        return ()

    @property
    def if_left(self) -> str:
        """What becomes of the server when we are gone this moment; empty when none was started."""
        if self._process is None:
            return ""
        return "the server is not asked to end: its guard process kills what runs of it, now"

    def heed(self) -> Intervention | None:
        """Nobody: it is our own process, and one that was killed by hand looks like one that died."""
        return None

    def __enter__(self) -> CommandSupervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(hurry=kind is not None)

    def start(self, command: Sequence[str], log: Path) -> Identity:
        """Start `command`, its stdout and stderr appended to `log`.

        What an earlier instance left behind is ended first.

        Raises:
            StartError: The program cannot be executed; nothing is left.
            StorageError: The log cannot be written, its disk being full for one.
            RefusedError: An instance is running already, or a measurement runs.
        """
        self._interlock.check("a start")
        argv = tuple(command)
        if (running := self.identity()) is not None:
            raise RefusedError(
                "the service is running already",
                evidence=(f"pid {running.pid}",),
                next_step="stop it first",
            )
        env = {**os.environ, **self._env}
        if not argv or not argv[0] or any("\0" in word for word in (*argv, *self._env, *self._env.values())):
            raise StartError("the command is empty or holds a NUL byte", evidence=(shlex.join(argv),))
        self._clear()
        process = self._process = GuardedProcess()
        try:
            failure = process.launch(argv, env, self._cwd, log)
        except BaseException:  # an interrupt, from any line of it
            process.abandon()
            raise
        if failure is not None:
            raise launch_error(failure, argv, env, self._cwd, log)
        return process.identity()

    def _clear(self) -> None:
        """Before a start: nothing of the last instance may be left."""
        process = self._process
        if process is None:
            return
        self.stop()  # also of a dead main process: it may have left others
        self._ending = None
        self._past_cpu_s += process.cpu_s
        process.cpu_s = 0.0

    def identity(self) -> Identity | None:
        """Who is running now; None when nothing is. `invocation` is the value of the marker in its environment."""
        process = self._process
        if process is None:
            return None
        process.refresh()
        return process.identity() if process.main_alive else None

    def exit_code(self) -> int | None:
        """Exit status of the last main process, negative for a signal; None while it runs or if unknown."""
        if self._process is None:
            return None
        self._process.refresh()
        return self._process.exit_code

    def gather_log(self) -> None:
        """The server writes into it itself."""

    def measuring(self) -> AbstractContextManager[None]:
        """While inside, `start`, `stop` and `restore` raise MeasuringError."""
        return self._interlock.measuring()

    def look(self) -> None:
        """The server is our own: nobody else is expected to be connected."""

    def keep(self, command: Sequence[str]) -> None:
        """A command line is kept by whoever typed it.

        Raises:
            RefusedError: Always.
        """
        raise RefusedError(
            "a command line is not written down anywhere, so that it cannot be kept",
            evidence=(shlex.join(command),),
            next_step="run that command line in place of the old one",
        )

    def restore(self, *, force: bool = False) -> bool:
        """Nothing ran before us, so nothing runs after."""
        self.stop(force=force)
        return False

    def stop(self, *, hurry: bool = False, force: bool = False) -> StopReport:  # noqa: ARG002 - never busy
        """SIGTERM to the process group (or its leader), wait, SIGTERM, wait, SIGKILL to all; until all are gone.

        Interrupted, it can be called again, and goes on with the next signal.

        Raises:
            MeasuringError: A measurement runs.
            UnrestoredError: A process does not end even at SIGKILL, which only the kernel can cause.
        """
        self._interlock.check("a stop")
        process = self._process
        if process is None:
            return StopReport(outcome=StopOutcome.ALREADY_DEAD, signals=(), seconds=0.0, exit_code=None)
        process.refresh()
        if not (process.main_alive or process.gone):
            process.pump(_REPORT_S)  # as a rule it was alone, and `gone` is on its way
        if self._ending is None:
            self._ending = _Ending(was_dead=not process.main_alive)
        ending = self._ending
        if not process.gone:
            self._end(process, ending, hurry=hurry)
        self._ending = None
        seconds = self._clock.monotonic() - ending.begun_at if ending.begun_at is not None else 0.0
        return StopReport(
            outcome=ending.outcome(lost_guard=process.lost_guard),
            signals=tuple(f"SIG{name}" for name in ending.signals),
            seconds=seconds,
            exit_code=process.exit_code,
        )

    def _end(self, process: GuardedProcess, ending: _Ending, *, hurry: bool) -> None:
        first_s, second_s = self._grace_s, self._second_grace_s
        if hurry:
            first_s, second_s = min(first_s, _HURRY_S), min(second_s, _HURRY_S)
        steps = [("TERM", first_s), ("TERM", second_s), ("KILL", _KILL_WAIT_S)]
        # Leftovers of a dead main process get the short grace; a stop that was interrupted goes on where it was.
        for name, wait_s in steps[min(max(len(ending.signals), int(ending.was_dead)), 2) :]:
            if ending.begun_at is None:
                ending.begun_at = self._clock.monotonic()
            process.signal(name, main_only=self._main_only and name == "TERM" and not ending.signals)
            ending.signals.append(name)
            if self._wait_gone(process, wait_s, linger=len(ending.signals) > 1):
                return
        process.force()
        process.pump()
        if not process.gone:
            raise UnrestoredError(
                "a process does not end, not even at SIGKILL",
                evidence=tuple(f"pid {stat.pid}: state {stat.state}" for stat in process.survivors),
                next_step="state D is a call into a driver that does not return: `cat /proc/PID/stack` as root; "
                "if it stays, only a reboot ends it",
            )

    def _wait_gone(self, process: GuardedProcess, seconds: float, *, linger: bool) -> bool:
        """Wait for everything to be gone; unless `linger`, not much longer than for the main process."""
        deadline = self._clock.monotonic() + seconds
        main_seen_dead = False
        while True:
            process.pump()
            if process.gone:
                return True
            now = self._clock.monotonic()
            if not (process.main_alive or linger or main_seen_dead):
                main_seen_dead = True
                deadline = min(deadline, now + _LINGER_S)
            if now >= deadline:
                return False
            self._clock.sleep(min(_LOOK_S, deadline - now))

    def check(self) -> None:
        """It is a child of ours."""

    def await_host(self, error: HostError) -> None:
        """Nothing to wait for: it is this computer."""
        raise error

    def commands(self) -> list[tuple[str, ...]]:
        """Of its main process and all below."""
        identity = self.identity()
        if identity is None:
            return []
        found = (command_line(pid) for pid in (identity.pid, *descendants(identity.pid)))
        return [line for line in found if line]

    def cpu(self) -> CpuSample | None:
        """CPU accounting from /proc; None where that cannot be read.

        `group_s` is cumulative over all instances of this supervisor and never falls. `own_s` leaves out what a
        reaped guard had waited for, which the kernel books on us as well.
        """
        machine = machine_cpu_s()
        if machine is None:
            return None
        now_s, buried_s = 0.0, 0.0
        if self._process is not None:
            self._process.refresh()
            tree_s = self._process.tree_cpu_s()
            if tree_s is None:
                return None
            now_s, buried_s = tree_s, self._process.cpu_s
        times = os.times()
        own_s = times.user + times.system + times.children_user + times.children_system
        return CpuSample(
            busy_s=machine[0],
            group_s=self._past_cpu_s + now_s,
            own_s=own_s - self._past_cpu_s - buried_s,
            cpus=machine[1],
        )
