"""One trial, in its order: start, ready, verify, measure, stop. Given an engine and a supervisor; picks neither."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from typing import Protocol

from draftmark.errors import BusyError, StartError
from draftmark.load.client import LoadRun
from draftmark.model import (
    Arm,
    Foreign,
    Health,
    Identity,
    Intervention,
    RequestRecord,
    StopReport,
    Trial,
    TrialStatus,
    Workload,
)
from draftmark.ports import Clock, CpuSample, Engine, EngineClient, Failure, HostLoad, PostMortem, Supervisor
from draftmark.run.directory import TrialWriter
from draftmark.run.records import INTERVENTION, Slot
from draftmark.run.redact import Redactor
from draftmark.tune.autopsy import Autopsy
from draftmark.tune.disturbance import (
    FOREIGN,
    OTHERS,
    changed_identity,
    counters_astray,
    foreign_cores,
    load_faults,
)
from draftmark.tune.drain import Drain
from draftmark.tune.foreign import Watch, requests_of_others
from draftmark.tune.measuring import Axis, Limits, counters_between
from draftmark.tune.notes import Notes, Over
from draftmark.tune.startup import InterventionError, NotReadyError, Ready, Starter, as_it_stands, log_lines

_QUIET_LOOK_S = 0.4
_LAST_LOOKS, _LAST_LOOK_S = 5, 0.05
_NO_SECRETS = Redactor(values=())


class Load(Protocol):
    """The load generator, as a trial needs it. `draftmark.load.client.run_closed_loop` is one."""

    def __call__(
        self,
        base_url: str,
        workload: Workload,
        *,
        concurrency: int,
        repeat: int,
        warmup: int,
        extra: dict[str, object],
        request_timeout_s: float,
        headers: dict[str, str],
        first_tag: int,
        on_record: Callable[[RequestRecord], None],
        on_progress: Callable[[int, int, float | None, int], None],
    ) -> LoadRun:
        """Run one axis to its end."""
        ...


class Observer(Protocol):
    """Who watches a run: the terminal's progress, or nobody."""

    def trial_begins(self, slot: Slot) -> None:
        """A trial is about to start."""
        ...

    def phase(self, slot: Slot, what: str, limit_s: float | None) -> None:
        """What is being waited for now, and for how long at most."""
        ...

    def progress(self, done: int, total: int, tok_s: float | None, errors: int) -> None:
        """How far the present measurement is."""
        ...

    def trial_ends(self, trial: Trial) -> None:
        """A trial is over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRunner:
    """Runs trials of one service.

    Attributes:
        drain: How the server is stopped.
        act: Writes one action to the run's record: (what, slot number, detail).
        watch: Looks for others' requests; None for a server that nobody else can know of.
        reach: From the URL on the server's host to the one by which it is reached from here.
        post_mortem: Says why a server did not start or died; None to leave that open.
        node: Of a cluster; written on the trial.
    """

    engine: Engine
    supervisor: Supervisor
    drain: Drain
    load: Load
    clock: Clock
    limits: Limits
    axes: Sequence[Axis]
    observer: Observer
    act: Callable[[str, int, dict[str, object]], None]
    port_holder: Callable[[str], str | None]
    host: HostLoad | None = None
    watch: Watch | None = None
    reach: Callable[[str], str] = as_it_stands
    redactor: Redactor = _NO_SECRETS
    post_mortem: PostMortem | None = None
    node: str | None = None

    def run(
        self,
        slot: Slot,
        writer: TrialWriter,
        *,
        baseline_start_s: float | None = None,
        in_place: bool = False,
    ) -> Trial:
        """One trial, to its end; the server is stopped however it ends.

        Args:
            slot: What is tried.
            writer: Of its record.
            baseline_start_s: The slowest start of the baseline so far.
            in_place: What runs already is measured: nothing is started, and it goes on serving.

        Raises:
            RefusedError: Something else listens where the server should.
            InterventionError: Somebody else has stopped or started the service before we could start it.
            BusyError: Others keep using the server, so that it could not be stopped.
            StorageError: The record could not be written; the server is stopped before.
            Interrupted: The user or the system asked to stop; the server is stopped before.
        """
        began = self.clock.monotonic()
        started_at = self.clock.now_iso()
        notes = Notes()
        command = self.engine.with_arm(self.supervisor.original, slot.arm)
        self.observer.trial_begins(slot)
        hurry, ready, ours = True, None, True  # until it is known that nobody interrupted
        try:
            try:
                if in_place:
                    ready = self._as_it_runs(slot)
                else:
                    self._await_quiet(slot, notes)
                    ready = self._start(slot, command, writer, notes, self.limits.start_s(baseline_start_s))
                self._verify(slot.arm, ready.client, writer, notes)
                self._measure(slot, ready, writer, notes)
            except Over as over:
                notes.status, notes.because, notes.evidence = over.status, over.because, over.evidence
                self._examine(slot, over.failure, writer)
            except InterventionError:
                ours = False  # whoever started it is not cut off: it is stopped when it is idle, by putting it back
                raise
            else:
                self._judge(slot.arm, notes)
            hurry = False
        finally:
            stopping = self.clock.monotonic()
            try:
                if not in_place and ours:
                    self.observer.phase(slot, "stopping the server", None)
                    self.act("stop", slot.number, {})
                    notes.stop = self._stop(ready, hurry=hurry)
                ended = self.clock.monotonic()
                if not in_place:
                    self.supervisor.gather_log()
            finally:
                writer.close()
                writer.scrub_log(self.redactor)
        trial = Trial(
            number=slot.number,
            round=slot.round,
            arm=slot.arm,
            status=notes.status,
            because=None if notes.because is None else self.redactor.text(notes.because),
            evidence=tuple(dataclasses.replace(e, text=self.redactor.text(e.text)) for e in notes.evidence),
            started_at=started_at,
            start_s=_rounded(notes.start_s),
            downtime_s=None
            if notes.began_s is None
            else round((notes.start_s or (stopping - notes.began_s)) + (ended - stopping), 3),
            total_s=round(ended - began, 3),
            command=self.redactor.command(command),
            speculation=notes.speculation,
            figures=notes.figures,
            limits=notes.limits,
            stop=notes.stop,
            requests=writer.written,
            counters=notes.counters,
            client=notes.client,
            disturbed=notes.disturbed,
            node=self.node,
        )
        writer.finish(trial)
        ended_as = "measured" if in_place else "stopped"
        self.act(ended_as, slot.number, {"outcome": notes.stop and notes.stop.outcome, "status": trial.status})
        self.observer.trial_ends(trial)
        return trial

    def _stop(self, ready: Ready | None, *, hurry: bool) -> StopReport | None:
        try:
            return self.drain.stop(ready.client if ready else None, hurry=hurry)
        except BusyError:
            # What we have just cancelled is still inside. Whoever puts the service back waits for it, or not.
            if hurry:
                return None
            raise

    def _await_quiet(self, slot: Slot, notes: Notes) -> None:
        """A start costs downtime, and beside other work its figures would be void anyway."""
        limit = self.limits.max_foreign_cores
        if limit is None or self.host is None:
            return
        began = self.clock.monotonic()
        while (load := self.host.foreign(_QUIET_LOOK_S)) is not None and load.cores > limit:
            waited = self.clock.monotonic() - began
            if waited >= self.limits.quiet_timeout_s:
                busy = f"other work used {load.cores:.2f} CPU cores for {waited:.0f} s (limit {limit:.2f})"
                reason = busy if load.busiest is None else f"{busy}: {load.busiest}"
                notes.disturbed["host"] = (reason,)
                raise Over(TrialStatus.VOID, reason)
            self.observer.phase(slot, f"waiting for a quiet host ({load.busiest})", self.limits.quiet_timeout_s)

    def _as_it_runs(self, slot: Slot) -> Ready:
        self._autopsy.watch()
        self.act("in-place", slot.number, {})
        original = self.supervisor.original
        identity = self.supervisor.identity()
        client = self.engine.client(self.reach(self.engine.base_url(original)), self.engine.headers(original))
        runs = [c for c in self.supervisor.commands() if self.engine.recognises(c)]
        if runs and _flags(runs[-1]) != _flags(original):
            raise Over(TrialStatus.VOID, "what runs was started with other flags than the service has now")
        if identity is None or client.health() is not Health.READY:
            raise Over(TrialStatus.VOID, "the service does not serve as it is")
        try:
            client.generate_one()
        except StartError as error:
            raise Over(TrialStatus.VOID, f"the service does not serve as it is: {error}") from None
        return Ready(client=client, identity=identity, start_s=0.0)

    def _start(
        self, slot: Slot, command: tuple[str, ...], writer: TrialWriter, notes: Notes, limit_s: float
    ) -> Ready:
        self._autopsy.watch()
        self.act("start", slot.number, {"command": self.redactor.command(command)})
        notes.began_s = self.clock.monotonic()
        self.observer.phase(slot, f"starting {slot.arm.label}", limit_s)
        starter = Starter(
            engine=self.engine,
            supervisor=self.supervisor,
            clock=self.clock,
            port_holder=self.port_holder,
            timeout_s=limit_s,
            reach=self.reach,
        )
        try:
            ready = starter.start(command, writer.log)
        except InterventionError as error:
            if not error.started:
                raise
            raise self._interrupted(slot, notes, error.intervention, "while it was started") from None
        except NotReadyError as error:
            lines = (error.line,) if error.line else ()
            failure = self._failure(writer, error.seen)
            raise Over(TrialStatus.DID_NOT_START, error.because, lines, failure) from None
        except StartError as error:
            said = " ".join((error.what, *(f"({line})" for line in error.evidence[:1])))
            failure = dataclasses.replace(self._failure(writer, error.what), refusal=said)
            raise Over(TrialStatus.DID_NOT_START, str(error), failure=failure) from None
        notes.start_s = ready.start_s
        self.act("ready", slot.number, {"start_s": round(ready.start_s, 3), "pid": ready.identity.pid})
        return ready

    def _verify(self, arm: Arm, client: EngineClient, writer: TrialWriter, notes: Notes) -> None:
        """Speculation can be lost silently: the server's own word has to agree with the arm."""
        lines = log_lines(writer.log)
        notes.figures = self.engine.fit_figures(lines)
        notes.speculation = state = client.speculation()
        notes.limits = client.limits()
        runs = [c for c in self.supervisor.commands() if self.engine.recognises(c)]
        wanted = self.engine.arm(self.engine.with_arm(self.supervisor.original, arm))
        if runs and (ran := self.engine.arm(runs[-1])) != wanted:
            raise Over(
                TrialStatus.VOID,
                f"its process has {ran.label}, not {wanted.label}: a wrapper does not pass the flags on",
            )
        lost = self.engine.speculation_lost(lines, writer.log.name)
        if arm.depth and (state.on is False or lost is not None):
            raise Over(
                TrialStatus.VOID,
                f"the server runs without the speculation it was asked for ({state.source})",
                (lost,) if lost else (),
            )
        if not arm.depth and state.on:
            raise Over(TrialStatus.VOID, f"speculation is on though it was switched off ({state.source})")
        if state.depth is not None and state.depth != arm.depth:
            raise Over(TrialStatus.VOID, f"depth {state.depth} is in force, not {arm.depth} ({state.source})")

    def _measure(self, slot: Slot, ready: Ready, writer: TrialWriter, notes: Notes) -> None:
        client, identity = ready.client, ready.identity
        before_all = client.counters()
        if before_all.raw:
            writer.text("metrics.before.prom", before_all.raw)
        for axis in self.axes:
            self._alone(slot, client, notes)
            self.observer.phase(slot, f"{axis.workload.name}, {axis.concurrency} at once", None)
            self.act("measure", slot.number, {"axis": axis.key})
            client.fresh()
            before, cpu = client.counters(), self.supervisor.cpu()
            began = self.clock.monotonic()
            with self.supervisor.measuring():
                run = self.load(
                    client.base_url,
                    axis.workload,
                    concurrency=axis.concurrency,
                    repeat=axis.repeat,
                    warmup=axis.warmup,
                    extra=self.engine.request_extra(),
                    request_timeout_s=self.limits.request_timeout_s,
                    headers=self.engine.headers(self.supervisor.original),
                    first_tag=writer.written + 1,
                    on_record=partial(self._keep, writer, notes),
                    on_progress=self.observer.progress,
                )
            wall = self.clock.monotonic() - began
            self._must_be_the_same(slot, notes, identity, run, axis, writer)
            staying = None if self._others_ignored else requests_of_others(client, run.records, self.clock)
            after = client.counters()
            astray = counters_astray(before, after, run.records, others_ignored=self._others_ignored)
            if others := staying or (astray if astray and astray.startswith("others") else None):
                notes.disturbed[FOREIGN] = (others,)
            if reason := staying or astray:
                raise Over(TrialStatus.VOID, f"{reason} during {axis.key}")
            notes.counters[axis.key] = counted = counters_between(before, after)
            notes.count(counted.drafted_tokens)
            notes.client[axis.key] = run.client
            reasons = load_faults(run, self.limits.max_error_rate, self.limits.max_loop_lag_ms)
            neighbour = self._neighbour(cpu, wall)
            notes.disturbed[axis.key] = (*reasons, *((neighbour,) if neighbour else ()))
            if neighbour and axis is self.axes[0]:
                # Busy from the beginning: measuring on would take many times as long, for nothing.
                raise Over(TrialStatus.VOID, f"{axis.key}: {neighbour}")
        after_all = client.counters()
        if after_all.raw:
            writer.text("metrics.after.prom", after_all.raw)

    def _must_be_the_same(
        self, slot: Slot, notes: Notes, identity: Identity, run: LoadRun, axis: Axis, writer: TrialWriter
    ) -> None:
        """What ended the measurement is what began it."""
        changed = changed_identity(identity, self.supervisor.identity(), self.supervisor.exit_code())
        # A server that somebody stops is there, and refuses requests, for as long as it drains.
        suspect = changed or any(record.error is not None for record in run.records)
        if suspect and (intervention := self.supervisor.heed()) is not None:
            raise self._interrupted(slot, notes, intervention, f"during {axis.key}")
        if changed:
            self.supervisor.gather_log()
            found = self.engine.decisive(log_lines(writer.log), writer.log.name)
            because = f"{changed} during {axis.key}"
            # One that runs now is another: what was measured is gone.
            failure = dataclasses.replace(self._failure(writer, because), alive=False)
            raise Over(TrialStatus.VOID, because, (found,) if found else (), failure)

    def _interrupted(self, slot: Slot, notes: Notes, intervention: Intervention, when: str) -> Over:
        """Nothing died, so there is nothing to look into."""
        self.act(INTERVENTION, slot.number, {"hand": intervention.hand, "because": str(intervention)})
        reason = f"{intervention.what} {when} ({intervention.evidence})"
        notes.disturbed[OTHERS] = (reason,)
        return Over(TrialStatus.VOID, reason)

    def _keep(self, writer: TrialWriter, notes: Notes, record: RequestRecord) -> None:
        if record.error_detail is not None:
            # A server may send back what it was sent, the key included.
            record = dataclasses.replace(record, error_detail=self.redactor.text(record.error_detail))
        writer.request(record)
        notes.count(record.drafted_tokens)
        if record.error is not None:  # a host that is gone fails them all, each after its time
            self.supervisor.check()

    @property
    def _others_ignored(self) -> bool:
        return self.watch is not None and self.watch.policy is Foreign.IGNORE

    def _alone(self, slot: Slot, client: EngineClient, notes: Notes) -> None:
        """Others' requests would be in our figures, and ours in their way."""
        if self.watch is None:
            return
        self.observer.phase(slot, "looking for others' requests", self.watch.look_s)
        if (reason := self.watch.settled(client)) is not None:
            notes.disturbed[FOREIGN] = (reason,)
            raise Over(TrialStatus.VOID, f"others use the service: {reason}")

    @property
    def _autopsy(self) -> Autopsy:
        return Autopsy(post_mortem=self.post_mortem, redactor=self.redactor, act=self.act)

    def _failure(self, writer: TrialWriter, because: str) -> Failure:
        """What is known of the server now. A process that crashes closes its connections before it is gone."""
        for _ in range(_LAST_LOOKS):
            if self.supervisor.identity() is None:
                break
            self.clock.sleep(_LAST_LOOK_S)
        alive = self.supervisor.identity() is not None
        return Failure(log=writer.log, exit_code=self.supervisor.exit_code(), alive=alive, because=because)

    def _examine(self, slot: Slot, failure: Failure | None, writer: TrialWriter) -> None:
        """Before the server is stopped: what the log says after our own SIGTERM is no part of its death."""
        if failure is not None and self.post_mortem is not None:
            self.observer.phase(slot, "looking for the cause", None)
            self._autopsy.hold(slot.number, failure, writer)

    def _neighbour(self, before: CpuSample | None, wall_s: float) -> str | None:
        if self.limits.max_foreign_cores is None or before is None:
            return None
        after = self.supervisor.cpu()
        cores = foreign_cores(before, after, wall_s) if after else None
        if cores is None or cores <= self.limits.max_foreign_cores:
            return None
        return f"other work used {cores:.2f} CPU cores (limit {self.limits.max_foreign_cores:.2f})"

    def _judge(self, arm: Arm, notes: Notes) -> None:
        disturbed = {key: reasons for key, reasons in notes.disturbed.items() if reasons}
        if disturbed and len(disturbed) == len(notes.disturbed):
            key, reasons = next(iter(disturbed.items()))
            notes.status, notes.because = TrialStatus.VOID, f"{key}: {reasons[0]}"
        elif arm.depth and not arm.knobs and notes.drafted == 0:  # by a knob it may be the engine's own choice
            notes.status = TrialStatus.VOID
            notes.because = f"depth {arm.depth} drafted no token at all: a dead depth, not a tie with off"
        else:
            notes.status = TrialStatus.MEASURED


def _flags(command: Sequence[str]) -> list[str]:
    """A command line behind its program, which may be called by another path."""
    return list(dropwhile(lambda word: not word.startswith("-"), command[1:]))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
