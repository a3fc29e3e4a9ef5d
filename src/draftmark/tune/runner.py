"""The loop over trials: what `steering` asks for is run, until it is enough. Joins the plan to the world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from draftmark.errors import BusyError, DraftmarkError, FailedError, RefusedError, StorageError
from draftmark.model import Arm, Foreign, Hand, Trial, TrialStatus
from draftmark.ports import Clock
from draftmark.run.directory import RunDirectory
from draftmark.run.records import (
    ALTERED,
    ENDED_BY_OTHERS,
    ENOUGH,
    FINISH,
    FITTED,
    LEFT,
    NEXT,
    Action,
    RunRecord,
    Slot,
)
from draftmark.tune.closing import Ends
from draftmark.tune.disturbance import FOREIGN
from draftmark.tune.knobs.run import Vet
from draftmark.tune.knobs.sharing import KnobStudy, announce, share
from draftmark.tune.meddling import altered
from draftmark.tune.predicted import asked_for
from draftmark.tune.startup import InterventionError
from draftmark.tune.steering import Next, Told, baseline_failed, disturbed, steer
from draftmark.tune.trial import TrialRunner

# So many trials in a row that were disturbed say that this host cannot measure now.
_HOPELESS = 3


def _nothing() -> Arm | None:
    return None


def _learn_nothing(_log: Path) -> dict[str, object] | None:
    return None


def _silent(_line: str) -> None:
    return None


class Journal:
    """Writes `actions.jsonl`: what was done to the world, clocked."""

    def __init__(self, directory: RunDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._began = clock.monotonic()

    def write(self, what: str, trial: int | None = None, detail: dict[str, object] | None = None) -> None:
        """Append one action."""
        self._directory.action(
            Action(
                at=self._clock.now_iso(),
                at_s=round(self._clock.monotonic() - self._began, 3),
                what=what,
                trial=trial,
                detail=detail or {},
            )
        )


@dataclass(slots=True)
class _Stay:
    """Of one pass: whether what served has been stopped."""

    vacant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One pass over what is left of a run.

    Attributes:
        trials: Runs a single trial.
        ends: What happens to the service before the first and after the last.
        after: Called with each finished trial, to derive and show what is known so far.
        keeps: Whether an arm may be kept at the end.
        to_keep: Asked then, when all is measured: the arm that is to serve from now on; None for the original.
        live: What runs already may be measured without a restart, before the first and after the last.
        learn: From the log of the baseline's own start to what fits, as the detail of an action; None for nothing.
        tell: Told why each trial that was asked for is worth its start.
        vet: Why a setting of knobs cannot be started; None where nothing speaks against it.
        study: Keeps what was tried of the knobs, for people and for other runs; None without knobs.
    """

    directory: RunDirectory
    trials: TrialRunner
    ends: Ends
    journal: Journal
    after: Callable[[Trial], None]
    keeps: bool = False
    to_keep: Callable[[], Arm | None] = _nothing
    live: bool = False
    learn: Callable[[Path], dict[str, object] | None] = _learn_nothing
    tell: Callable[[str], None] = _silent
    vet: Vet | None = None
    study: KnobStudy | None = None

    def run(self) -> None:
        """Run all that is left, and leave the service as it was, or with what is kept.

        Raises:
            FailedError: The baseline itself does not start: there is nothing to compare with.
            RefusedError: Others use the service, or have stopped or started it; or this run's service was changed.
            UnrestoredError: The service could not be put back.
        """
        record = self.directory.load()
        _must_be_one_service(record)
        step = self._steer()
        if step.slot is None and any(action.what == FINISH for action in record.actions):
            return  # nothing is done, so nothing is written
        past = [r.trial for r in record.trials if not baseline_failed(r.trial, record)]
        self.journal.write("resume" if past else "begin", detail={"finished": sorted(t.number for t in past)})
        stay = _Stay()
        hurry = True  # until it is known that nobody interrupted
        kept = None
        try:
            last = self._trials(step, stay, _slowest(past, record.info.baseline))
            kept = self._keep(stay)
            hurry = False
        except DraftmarkError as error:
            hurry = False
            with suppress(StorageError):  # what ended the run is told, on record or not
                self._note_others(error)
            raise
        finally:
            if kept is None:
                self._put_back(stay, hurry=hurry)
        if found := self.ends.supervisor.altered:
            raise FailedError(
                "somebody else has changed the service's configuration during the run: it gives no verdict",
                evidence=found,
                next_step="run it again; the service is put back, with that change",
            )
        if kept is None and last is not None:
            self._close(last)
        self.journal.write(FINISH, detail={"restored": kept is None, "kept": kept.name if kept else None})

    def _steer(self) -> Next:
        """What comes next; what was found not to start on the way is kept, and the study told of what was tried."""
        record = self.directory.load()
        if self.study is None or any(action.what == FINISH for action in record.actions):
            step = steer(record, self.vet)
        else:
            told = Told(record)
            if share(self.study, told, self.journal.write):
                told = Told(self.directory.load())
            step = told.next(self.vet)
        for arm, refusal in step.left.items():
            detail: dict[str, object] = {"arm": arm.name, "depth": arm.depth, "knobs": arm.knobs}
            self.journal.write(LEFT, detail={**detail, "code": refusal.code, "because": refusal.because})
        return step

    def _put_back(self, stay: _Stay, *, hurry: bool) -> None:
        began = self.ends.clock.monotonic()
        try:
            serves = self.ends.put_back(hurry=hurry, untouched=not stay.vacant)
        except DraftmarkError as error:
            with suppress(StorageError):  # that the service is not back outweighs that it is not on record
                self.journal.write("not-restored", detail={"because": error.what})
                self._note_altered()
            raise
        self._note_altered()
        seconds = round(self.ends.clock.monotonic() - began, 3)
        self.journal.write("restored", detail={"serves": serves, "seconds": seconds, "restarted": stay.vacant})

    def _note_others(self, error: DraftmarkError) -> None:
        """What others did, before anything is put back: on record whatever comes then."""
        if isinstance(error, InterventionError):
            done = error.intervention
            self.journal.write(ENDED_BY_OTHERS, detail={"hand": done.hand, "because": str(done)})
        self._note_altered()

    def _note_altered(self) -> None:
        if found := self.ends.supervisor.altered:
            self.journal.write(ALTERED, detail={"by_others": list(found)})

    def _vacate(self, stay: _Stay) -> None:
        """Stop what serves, before the first start; from then on the service is ours."""
        if stay.vacant:
            return
        stay.vacant = True  # also where that fails half-way
        try:
            report = self.ends.vacate()
        except (RefusedError, BusyError):
            stay.vacant = False
            raise
        if report is not None:
            detail: dict[str, object] = {"outcome": report.outcome, "seconds": round(report.seconds, 3)}
            self.journal.write("vacated", detail={**detail, "waited_s": report.waited_s, "because": report.because})
        self._must_be_ours()

    def _trials(self, step: Next, stay: _Stay, baseline_start_s: float | None) -> Next | None:
        """Run what is asked for; the last trial where that needs no start of ours, else None."""
        void_in_a_row = 0
        own = self.directory.info.baseline
        while (slot := step.slot) is not None:
            if step.closing and self.live and not self.keeps:
                return step
            in_place = self._in_place(slot)
            if in_place:
                self.ends.refuse_if_used()
            else:
                self._vacate(stay)
            trial = self._one(step, baseline_start_s, in_place=in_place)
            if trial.arm == own and trial.start_s is not None:
                baseline_start_s = max(trial.start_s, baseline_start_s or 0.0)
            self._learn(trial)
            self.after(trial)
            if trial.status is TrialStatus.DID_NOT_START:
                self._must_start(trial)
            self._must_be_alone(trial)
            self._must_be_ours()
            void_in_a_row = void_in_a_row + 1 if disturbed(trial) else 0
            if void_in_a_row >= _HOPELESS:
                self.journal.write(
                    "give-up", slot.number, {"because": f"{_HOPELESS} trials in a row were disturbed"}
                )
                return None
            step = self._steer()
        self._enough(step)
        return None

    def _in_place(self, slot: Slot) -> bool:
        """Once: where what runs is not as it was thought to be, or does not serve, the baseline is started."""
        first = slot.arm == self.directory.info.baseline and not self.directory.finished()
        return self.live and first and self.ends.supervisor.identity() is not None

    def _close(self, last: Next) -> None:
        """The service as it was found serves again: measured once more, as it runs."""
        trial = self._one(last, None, in_place=True)
        self.after(trial)
        self._enough(self._steer())

    def _enough(self, step: Next) -> None:
        if step.because:
            because = step.because if step.slot is None else "stop: the service is as it was, and serves"
            self.journal.write(ENOUGH, detail={"because": because})
            self.tell(because)

    def _learn(self, trial: Trial) -> None:
        """What fits, by the log of the first start of the baseline: once a run."""
        if trial.arm != self.directory.info.baseline or trial.start_s is None:
            return
        if any(action.what == FITTED for action in self.directory.load().actions):
            return
        detail = self.learn(self.directory.path / "trials" / trial.directory / "server.log")
        if detail is not None:
            self.journal.write(FITTED, trial.number, detail)

    def _keep(self, stay: _Stay) -> Arm | None:
        """Start what is to be kept, and keep it; None where the original is to come back."""
        arm = self.to_keep()
        if arm is None or arm == self.directory.info.baseline:
            return None
        self._vacate(stay)
        writer = self.directory.trial("kept")
        try:
            self.ends.keep(arm, writer.log)
        finally:
            writer.close()
            writer.scrub_log(self.trials.redactor)
        self.journal.write("kept", detail={"arm": arm.name})
        return arm

    def _must_be_ours(self) -> None:
        """Who stops a service wants it stopped; who starts it wants it to serve. A restart costs a trial only."""
        intervention = self.ends.supervisor.heed()
        if intervention is not None and intervention.hand is not Hand.RESTARTED:
            raise InterventionError(intervention)

    def _must_be_alone(self, trial: Trial) -> None:
        watch = self.trials.watch
        if watch is not None and watch.policy is Foreign.ABORT and (seen := trial.disturbed.get(FOREIGN)):
            raise RefusedError(
                "others use the service: the run is ended and the service put back",
                evidence=seen,
                next_step="come back when it is quiet, or --foreign wait, or --foreign ignore",
            )

    def _must_start(self, trial: Trial) -> None:
        if trial.arm == self.directory.info.baseline:
            raise FailedError(
                "the service does not start as it is now configured",
                evidence=(*self._cause(trial), *(tuple(e.text for e in trial.evidence) or (trial.because or "",))),
                next_step=f"see {self.directory.path / 'trials' / trial.directory / 'server.log'}",
            )

    def _cause(self, trial: Trial) -> tuple[str, ...]:
        """What the post-mortem says, where there is one that names a cause."""
        why = next((r.why for r in self.directory.load().trials if r.trial.number == trial.number), None)
        if why is None or why.confidence == "unsettled":
            return ()
        return (f"{why.cause} ({why.confidence}): {why.summary}",)

    def _one(self, step: Next, baseline_start_s: float | None, *, in_place: bool) -> Trial:
        slot = step.slot
        assert slot is not None  # noqa: S101 - asked for
        if step.asked:
            self.journal.write(NEXT, slot.number, asked_for(step))
            self.tell(step.because)
            if self.study is not None:
                announce(self.study, self.directory.info, slot)
        writer = self.directory.trial(f"{slot.number:02d}-{slot.arm.name}")
        return self.trials.run(slot, writer, baseline_start_s=baseline_start_s, in_place=in_place)


def _must_be_one_service(record: RunRecord) -> None:
    """A run is not gone on with, when what is left would be of another configuration than what is there."""
    if found := altered(record):
        raise RefusedError(
            "somebody else changed the service's configuration during this run: what is left of it would be of "
            "another service",
            evidence=found,
            next_step="begin a new run",
        )


def _slowest(trials: Sequence[Trial], baseline: Arm) -> float | None:
    """Seconds of the baseline's slowest start so far."""
    starts = (trial.start_s for trial in trials if trial.arm == baseline)
    return max((start_s for start_s in starts if start_s is not None), default=None)
