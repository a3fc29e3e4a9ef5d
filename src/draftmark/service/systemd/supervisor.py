"""ports.Supervisor of a live systemd unit: each arm is one drop-in, and in the end there is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from draftmark.errors import (
    BusyError,
    DraftmarkError,
    FailedError,
    HostError,
    RefusedError,
    RightsError,
    StartError,
    UnrestoredError,
)
from draftmark.model import Hand, Identity, Intervention, StopOutcome, StopReport
from draftmark.ports import Clock, CpuSample, Host
from draftmark.service.gpu_memory import GpuMemory
from draftmark.service.interlock import Interlock
from draftmark.service.systemd.discover import FoundUnit
from draftmark.service.systemd.dropin import render
from draftmark.service.systemd.invocation import State, cpu
from draftmark.service.systemd.lease import LEASE_S, Lease, Stopped
from draftmark.service.systemd.processes import command_lines
from draftmark.service.systemd.restore import RestoreReport
from draftmark.service.systemd.stop_job import stop_job
from draftmark.service.systemd.unit_log import FileLogs, JournalLog, UnitLog

_APPEARS_S = 20.0
_LOOK_S = 0.05
_STOP_MARGIN_S = 30.0
_REACH_S = 1.0
_RETURN_MARGIN_S = 15.0  # once more after the host has helped itself: a link that is back then says so
_SERVES = ("active", "activating")
_EXEC_FAILED = range(200, 246)  # systemd.exec(5), "Process Exit Codes": it did not come to the program


def _silent(_what: str, _limit_s: float | None) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a unit is to be treated.

    Attributes:
        settings: Of the [Service] section, for as long as the run lasts: what makes its stops safe.
        stop_timeout_s: What systemd then allows a stop.
        lease_s: Without a sign of life for so long, the host puts the unit back by itself.
        port: Where it listens on its own host; None when that is not known.
        header: Lines that say, in the drop-in, what wrote it and why.
        keep_header: The same for the drop-in that stays, which is made of a command line.
        undo: The command that puts the unit back from anywhere.
        what: What holds the unit, for whoever comes second.
    """

    settings: dict[str, str]
    stop_timeout_s: float
    port: int | None
    header: tuple[str, ...]
    keep_header: Callable[[Sequence[str]], tuple[str, ...]]
    undo: str
    lease_s: int = LEASE_S
    what: str = "draftmark tune"


@dataclass(slots=True)
class SystemdSupervisor:
    """Starts and stops a unit with other command lines. A context: it is held inside, and as it was afterwards.

    Attributes:
        host: Commands run with the rights to change the unit.
        same_host: It is the computer that we run on, so that our own CPU time is part of its.
        kept: The drop-in that lasts, once one was kept.
    """

    host: Host
    unit: FoundUnit
    terms: Terms
    clock: Clock
    same_host: bool
    on_wait: Callable[[str, float | None], None] = _silent
    restored: RestoreReport | None = None
    kept: str = ""
    _lease: Lease | None = field(default=None, repr=False)
    _logs: tuple[UnitLog, ...] = field(default=(), repr=False)
    _altered: tuple[str, ...] = field(default=(), repr=False)
    _runs: str = field(default="", repr=False)
    _stopped: Intervention | None = field(default=None, repr=False)
    _interlock: Interlock = field(default_factory=Interlock, repr=False)
    _gpu: GpuMemory = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._gpu = GpuMemory(self.host, self.clock)

    @property
    def original(self) -> tuple[str, ...]:
        """The server's command line, as found."""
        return self.unit.command.argv

    @property
    def altered(self) -> tuple[str, ...]:
        """Files of the unit that somebody else has changed; known before each start, and once it was put back."""
        return self._altered

    @property
    def lease(self) -> Lease:
        """The hold on the unit."""
        if self._lease is None:
            raise AssertionError("not inside the context")
        return self._lease

    def __enter__(self) -> SystemdSupervisor:
        """Hold the unit and make its stops safe. The service itself goes on.

        Raises:
            RefusedError: Another Draftmark holds it, or its files are not as they were read.
            FailedError: It could not be held; nothing was changed.
        """
        self._lease = Lease.open(
            self.host,
            self.unit.name,
            user_scope=self.unit.manager.user,
            files=self.unit.decisive,
            lease_s=self.terms.lease_s,
            what=self.terms.what,
            progress=lambda what: self.on_wait(what, None),
        )
        self._runs = self._lease.invocation if self._lease.active in _SERVES else ""
        try:
            if self.terms.settings:
                self._edit(None)
                self._must_be_read()
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever happened, the unit is as it was, or its host sees to that when the lease has run out."""
        self._interlock.check("leaving")
        if self._lease is None or self.restored is not None:
            return
        if isinstance(error, UnrestoredError) and self._lease.left_s < 0:
            self._lease.abandon()  # it was waited for until it had helped itself
        else:
            self._let_go()

    def _let_go(self) -> None:
        """On the way out of an error, which says more than that the host has helped itself already."""
        lease = self.lease
        try:
            self._give_back()
        except HostError as error:
            raise self._out_of_reach(lease, error) from error
        except FailedError:
            if lease.lost is None:
                raise
        finally:
            lease.abandon()

    def _give_back(self) -> None:
        lease = self.lease
        try:
            self.restored = lease.restore(progress=lambda what: self.on_wait(what, None))
        finally:
            self._altered = lease.altered or self._altered
        self._lease = None

    def await_host(self, error: HostError) -> None:
        """Wait until the host, which could not be reached, can be again; in the end it puts the unit back itself.

        Raises:
            FailedError: It is there again and has put the unit back.
            UnrestoredError: It is not there again; what it does by itself, and when, is in it.
        """
        if (lease := self._lease) is None:
            if self.restored is None:
                raise error
            raise HostError(
                f"{self.host.name} was lost after {self.unit.name} was put back; whether it serves is not known",
                evidence=(error.what,),
                next_step=self.unit.manager.for_people("status"),
            ) from error
        while True:
            try:
                lease.beat()
            except RightsError as still:  # nobody gives them back meanwhile
                raise self._out_of_reach(lease, still) from error
            except HostError as still:
                left = lease.left_s + _RETURN_MARGIN_S
                if left <= 0:
                    raise self._out_of_reach(lease, still) from error
                self.on_wait(
                    f"waiting for {self.host.name}, which cannot be reached, {left:.0f} s more; it puts "
                    f"{self.unit.name} back by itself, {self._by_itself(lease)}",
                    left,
                )
                self.clock.sleep(_REACH_S)
            except FailedError as gone:
                raise FailedError(
                    gone.what, evidence=(error.what, *error.evidence), next_step=gone.next_step
                ) from error
            else:
                return

    def _out_of_reach(self, lease: Lease, error: DraftmarkError) -> UnrestoredError:
        what, if_down, undo = "cannot be reached", "; if it is down, its next boot does", self.terms.undo
        if isinstance(error, RightsError):
            what, if_down, undo = "does not let us any more", "", f"at once, as root: {undo}"
        return UnrestoredError(
            f"{self.host.name} {what}, so {self.unit.name} could not be put back from here",
            evidence=(error.what, *error.evidence),
            next_step=f"{self.host.name} puts it back by itself, {self._by_itself(lease)}{if_down}\n{undo}",
        )

    @property
    def if_left(self) -> str:
        """What becomes of the unit when we are gone this moment; empty when it is not held, or not any more."""
        if (lease := self._lease) is None:
            return ""
        name, host, when = self.unit.name, self.host.name, self._by_itself(lease)
        return f"{name} is not put back: {host} begins with it by itself, {when}\nat once: {self.terms.undo}"

    @staticmethod
    def _by_itself(lease: Lease) -> str:
        left = max(0, round(lease.left_s))
        return f"{left} s from now at the latest" if left else "by now"

    # --- starting -------------------------------------------------------------------------------------------

    def start(self, command: Sequence[str], log: Path) -> Identity:
        """Put `command` into the drop-in and start the unit; what it writes goes to `log` too.

        Raises:
            StartError: systemd could not run it.
            RefusedError: A measurement runs.
            FailedError: The drop-in could not be written; the hold is lost; somebody else has changed the unit.
        """
        self._interlock.check("a start")
        self._edit(command)
        self._must_be_unaltered()
        before = State.of(self.unit.manager).properties.get("InvocationID", "")
        files = FileLogs(self.host, self.unit.output_files, log)
        if files.files:
            files.mark()
        self._logs = ()
        self.lease.start()
        state = self._appearing(before)
        journal = JournalLog(self.host, state.properties.get("InvocationID", ""), log)
        self._logs = (journal, files) if files.files else (journal,)
        self._runs = journal.invocation
        identity = state.identity
        if identity is None or (state.exit_code or 0) in _EXEC_FAILED:
            self.gather_log()
            code = state.exit_code
            raise StartError(
                "systemd could not run the server" if code in _EXEC_FAILED else "the server ended at once",
                evidence=(f"exit status {code}, Result={state.properties.get('Result', '')}",),
                next_step=self.unit.manager.journal_for_people,
            )
        return identity

    def _must_be_read(self) -> None:
        """After the first edit, which has made systemd read all; nothing was stopped yet."""
        found = self.lease.compare()
        if found:
            raise RefusedError(
                f"the files of {self.unit.name} are not those that were in force a moment ago",
                evidence=found,
                next_step=f"see {self.unit.manager.for_people('cat')}; restart it, if that is how it should run, "
                "then run this again",
            )

    def _must_be_unaltered(self) -> None:
        """After an edit, by which systemd has read what somebody else may have written."""
        self._altered = self.lease.compare()
        if self._altered:
            raise FailedError(
                f"somebody else has changed the configuration of {self.unit.name} meanwhile",
                evidence=self._altered,
                next_step=f"see {self.unit.manager.for_people('cat')}, then run it again",
            )

    def _appearing(self, before: str) -> State:
        """The unit when its new invocation runs, or has ended already."""
        deadline = self.clock.monotonic() + _APPEARS_S
        while True:
            state = State.of(self.unit.manager)
            fresh = state.properties.get("InvocationID", "") != before
            if (fresh and (state.running or state.over)) or self.clock.monotonic() > deadline:
                return state
            self.clock.sleep(_LOOK_S)

    def _edit(self, command: Sequence[str] | None) -> None:
        """Write the drop-in of a command line; without one, the settings alone."""
        line = None
        if command is not None and tuple(command) != self.original:
            line = self.unit.command.rewritten(command)
        self.lease.edit(render(exec_start=line, settings=self.terms.settings, header=self.terms.header))

    # --- looking --------------------------------------------------------------------------------------------

    def identity(self) -> Identity | None:
        """Who runs now; None when nothing is, also between a death and systemd's restart of it."""
        return State.of(self.unit.manager).identity

    def heed(self) -> Intervention | None:
        """Whether somebody else has stopped or started the unit: by its InvocationID, and systemd's line of a stop.

        What died, or was killed, is none of that: nobody has asked systemd to stop it.
        """
        if self._lease is None:
            return self._stopped
        state = self._steady()
        now = state.properties.get("InvocationID", "") if state.running else ""
        if now == self._runs:
            return self._stopped
        self._stopped = None
        self.lease.beat()  # it may be the host's own doing, which has put the unit back
        name, was, self._runs = self.unit.name, self._runs, now
        if not was:
            return Intervention(Hand.STARTED, f"somebody else has started {name}", f"InvocationID={now}")
        job = stop_job(self.host, self.unit.manager, was, self.clock.sleep)
        if job is None:
            return None
        if now or job.restart:
            return Intervention(Hand.RESTARTED, f"somebody else has restarted {name}", job.line)
        self.lease.leave()
        self._stopped = Intervention(Hand.STOPPED, f"somebody else has stopped {name}", job.line)
        return self._stopped

    def _steady(self) -> State:
        """The unit when it has been stopped, should it just be: what for is known only then."""
        deadline = self.clock.monotonic() + self.terms.stop_timeout_s + _STOP_MARGIN_S
        while (state := State.of(self.unit.manager)).changing and self.clock.monotonic() < deadline:
            self.on_wait(f"waiting for {self.unit.name}, which somebody else is stopping", None)
            self.clock.sleep(_LOOK_S)
        return state

    def exit_code(self) -> int | None:
        """Exit status of the last main process, negative for a signal; None while it runs or if unknown."""
        return State.of(self.unit.manager).exit_code

    def gather_log(self) -> None:
        """Copy what the present invocation has written since the last time."""
        for each in self._logs:
            each.gather()

    def commands(self) -> list[tuple[str, ...]]:
        """Of every process in the unit's cgroup."""
        return command_lines(self.host, self.unit.manager.show("ControlGroup").get("ControlGroup", ""))

    def cpu(self) -> CpuSample | None:
        """Of the host and of the unit's cgroup; None where systemd does not account it."""
        times = os.times()
        own_s = times.user + times.system + times.children_user + times.children_system
        return cpu(self.host, self.unit.manager, own_s if self.same_host else 0.0)

    # --- stopping -------------------------------------------------------------------------------------------

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """While inside, whatever would stop, change or restart the unit raises MeasuringError, in any process.

        In this process alone once the unit is put back: it is not held any more.
        """
        with self._interlock.measuring(), nullcontext() if self.restored is not None else self.lease.measuring():
            yield

    def check(self) -> None:
        """What the last sign of life met with."""
        if self._lease is not None and (trouble := self._lease.trouble) is not None:
            raise trouble

    def look(self) -> None:
        """Note the connections to the server."""
        if self.terms.port is not None:
            self.lease.look(self.terms.port)

    def stop(self, *, hurry: bool = False, force: bool = False) -> StopReport:  # noqa: ARG002 - systemd sets the pace
        """`systemctl stop`, frozen first to see that no request came in since the last `look`.

        Raises:
            BusyError: One did; it goes on serving.
            MeasuringError: A measurement runs.
            FailedError: It does not stop, or the hold is lost.
        """
        self._interlock.check("a stop")
        state = State.of(self.unit.manager)
        if state.changing:
            self.heed()  # whose doing that is cannot be told any more after a stop of ours
            state = State.of(self.unit.manager)
        if state.over:
            return StopReport(outcome=StopOutcome.ALREADY_DEAD, signals=(), seconds=0.0, exit_code=state.exit_code)
        port = None if force else self.terms.port
        stopped = self.lease.stop(port, timeout_s=self.terms.stop_timeout_s + _STOP_MARGIN_S)
        if stopped.busy is not None:
            raise BusyError(
                "a request came in: nothing was stopped",
                evidence=(stopped.busy,),
                next_step="try again when it is done",
            )
        self._runs = ""
        return self._report(stopped, self._gpu.settle(self.on_wait))

    def _report(self, stopped: Stopped, taken: str | None) -> StopReport:
        killed = stopped.killed_by_timeout
        slow = stopped.seconds > self.terms.stop_timeout_s / 2
        outcome = StopOutcome.KILLED if killed else StopOutcome.SLOW if slow else StopOutcome.CLEAN
        code = stopped.status if stopped.code in (None, 1) or stopped.status is None else -stopped.status
        because = list(stopped.kills) if killed else []
        if slow and not killed:
            because.append(f"it took {stopped.seconds:.0f} s of the {self.terms.stop_timeout_s:.0f} s allowed")
        if taken is not None:
            because.append(taken)
        return StopReport(
            outcome=outcome,
            signals=("SIGTERM", "SIGKILL") if killed else ("SIGTERM",),
            seconds=stopped.seconds,
            exit_code=code,
            because="; ".join(because) or None,
        )

    def restore(self, *, force: bool = False) -> bool:
        """Stop what runs instead of the original, and let the host put everything back; whether it serves again.

        Raises:
            BusyError: A request came in since the last `look`; nothing was changed.
            MeasuringError: A measurement runs.
            UnrestoredError: The files are as they were, and the service does not run; the commands are in it.
        """
        self._interlock.check("a restoration")
        if self._lease is None:
            return self.restored is not None and self.restored.active in _SERVES
        self.heed()  # what somebody else has stopped is not started again
        state = State.of(self.unit.manager)
        changed = state.properties.get("InvocationID", "") != self.lease.invocation
        if changed and state.running and not force:
            self.stop()
        self._give_back()
        return self.restored is not None and self.restored.active in _SERVES

    def keep(self, command: Sequence[str]) -> None:
        """Make the command line that runs now the unit's own, in one drop-in that stays; the hold ends.

        Raises:
            FailedError: It could not be written; the trial's drop-in is in force still.
        """
        self._interlock.check("keeping it")
        line = self.unit.command.rewritten(command)
        text = render(exec_start=line, settings={}, header=self.terms.keep_header(command))
        path = self.lease.kept
        try:
            self.lease.keep(text)
        except HostError as error:
            self._await_keep(text, error)
        self._lease, self.kept = None, path

    def _await_keep(self, text: str, error: HostError) -> None:
        """The link was lost while it was asked to keep it: it may have done so."""
        try:
            self.await_host(error)
        except FailedError:
            if self._is_kept(text):
                return
            raise
        raise error

    def _is_kept(self, text: str) -> bool:
        try:
            return self.host.read(self.lease.kept) == text.encode()
        except OSError:
            return False
