"""The loop over a schedule: which trials are still to run, and when to stop. Joins the plan to the world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftmark.errors import DraftmarkError, FailedError, RefusedError
from draftmark.model import Arm, Foreign, Trial, TrialStatus
from draftmark.ports import Clock
from draftmark.run.directory import RunDirectory
from draftmark.run.records import Action, Slot
from draftmark.tune.closing import Ends
from draftmark.tune.disturbance import FOREIGN
from draftmark.tune.trial import TrialRunner

# So many trials in a row that were disturbed say that this host cannot measure now.
_HOPELESS = 3


def _nothing() -> Arm | None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One pass over what is left of a run's schedule.

    Attributes:
        trials: Runs a single trial.
        ends: What happens to the service before the first and after the last.
        after: Called with each finished trial, to derive and show what is known so far.
        to_keep: Asked when all is measured: the arm that is to serve from now on; None for the original.
    """

    directory: RunDirectory
    trials: TrialRunner
    ends: Ends
    journal: Journal
    after: Callable[[Trial], None]
    to_keep: Callable[[], Arm | None] = _nothing

    def run(self) -> None:
        """Run every slot that has no finished trial yet, and leave the service as it was, or with what is kept.

        Raises:
            FailedError: The baseline itself does not start: there is nothing to compare with.
            RefusedError: Others use the service.
            UnrestoredError: The service could not be put back.
        """
        info = self.directory.info
        record = self.directory.load()
        # A service that did not start as it is may have been mended since: it is tried again.
        past = [r.trial for r in record.trials if not self._baseline_failed(r.trial)]
        finished = {trial.number for trial in past}
        gone = {trial.arm.name for trial in past if trial.status is TrialStatus.DID_NOT_START}
        left = [s for s in info.schedule if s.number not in finished and s.arm.name not in gone]
        if not left and any(action.what == "finish" for action in record.actions):
            return  # nothing is done, so nothing is written
        self.journal.write("resume" if past else "begin", detail={"finished": sorted(finished)})
        hurry = True  # until it is known that nobody interrupted
        kept = None
        try:
            if left:
                self._vacate()
                self._trials(left, gone, _slowest(past, info.baseline))
            kept = self._keep(vacant=bool(left))
            hurry = False
        except DraftmarkError:
            hurry = False
            raise
        finally:
            if kept is None:
                self._put_back(hurry=hurry)
        self.journal.write("finish", detail={"restored": kept is None, "kept": kept.name if kept else None})

    def _put_back(self, *, hurry: bool) -> None:
        began = self.ends.clock.monotonic()
        try:
            serves = self.ends.put_back(hurry=hurry)
        except DraftmarkError as error:
            self.journal.write("not-restored", detail={"because": error.what})
            raise
        seconds = round(self.ends.clock.monotonic() - began, 3)
        self.journal.write("restored", detail={"serves": serves, "seconds": seconds})

    def _vacate(self) -> None:
        report = self.ends.vacate()
        if report is not None:
            detail: dict[str, object] = {"outcome": report.outcome, "seconds": round(report.seconds, 3)}
            self.journal.write("vacated", detail={**detail, "waited_s": report.waited_s, "because": report.because})

    def _trials(self, left: Sequence[Slot], gone: set[str], baseline_start_s: float | None) -> None:
        void_in_a_row = 0
        own = self.directory.info.baseline
        for slot in left:
            # An arm that did not start is not retried: it would only cost another restart.
            if slot.arm.name in gone:
                continue
            trial = self._one(slot, baseline_start_s)
            if trial.arm == own and trial.start_s is not None:
                baseline_start_s = max(trial.start_s, baseline_start_s or 0.0)
            self.after(trial)
            if trial.status is TrialStatus.DID_NOT_START:
                self._must_start(trial)
                gone.add(slot.arm.name)
            self._must_be_alone(trial)
            void_in_a_row = void_in_a_row + 1 if _disturbed(trial) else 0
            if void_in_a_row >= _HOPELESS:
                self.journal.write(
                    "give-up", slot.number, {"because": f"{_HOPELESS} trials in a row were disturbed"}
                )
                break

    def _keep(self, *, vacant: bool) -> Arm | None:
        """Start what is to be kept, and keep it; None where the original is to come back."""
        arm = self.to_keep()
        if arm is None or arm == self.directory.info.baseline:
            return None
        if not vacant:
            self._vacate()
        writer = self.directory.trial("kept")
        try:
            self.ends.keep(arm, writer.log)
        finally:
            writer.close()
            writer.scrub_log(self.trials.redactor)
        self.journal.write("kept", detail={"arm": arm.name})
        return arm

    def _must_be_alone(self, trial: Trial) -> None:
        watch = self.trials.watch
        if watch is not None and watch.policy is Foreign.ABORT and (seen := trial.disturbed.get(FOREIGN)):
            raise RefusedError(
                "others use the service: the run is ended and the service put back",
                evidence=seen,
                next_step="come back when it is quiet, or --foreign wait, or --foreign ignore",
            )

    def _baseline_failed(self, trial: Trial) -> bool:
        return trial.arm == self.directory.info.baseline and trial.status is TrialStatus.DID_NOT_START

    def _must_start(self, trial: Trial) -> None:
        if self._baseline_failed(trial):
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

    def _one(self, slot: Slot, baseline_start_s: float | None) -> Trial:
        writer = self.directory.trial(f"{slot.number:02d}-{slot.arm.name}")
        return self.trials.run(slot, writer, baseline_start_s=baseline_start_s)


def _slowest(trials: Sequence[Trial], baseline: Arm) -> float | None:
    """Seconds of the baseline's slowest start so far."""
    starts = (trial.start_s for trial in trials if trial.arm == baseline)
    return max((start_s for start_s in starts if start_s is not None), default=None)


def _disturbed(trial: Trial) -> bool:
    return trial.status is TrialStatus.VOID and any(trial.disturbed.values())
