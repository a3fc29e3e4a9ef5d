"""A run over the nodes of a cluster: hands out what `lanes` says, gathers what comes back in one run directory.

One process writes the records, as on one host. Nodes run whole trials and hand them over when they are done, so
that one that is lost takes nothing with it but the trial that it ran, which the next free node starts again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from draftmark.errors import FailedError, HostError
from draftmark.model import NodeEvent, Trial, TrialStatus
from draftmark.run.directory import RunDirectory, storing
from draftmark.run.records import FINISH, FITTED, LOST, NEXT, RunRecord, Slot, decode
from draftmark.tune.job import Failed, Job, Word
from draftmark.tune.lanes import Lanes
from draftmark.tune.observing import Measured
from draftmark.tune.runner import Journal

_LOOK_S = 0.5
_TRIAL = "trial.json"


class Nodes(Protocol):
    """Computers that run trials, each one at a time."""

    @property
    def names(self) -> Sequence[str]:
        """Of those that can be used."""
        ...

    def begin(self, node: str, job: Job, into: Path) -> None:
        """Let a node run a trial; its files are in `into` before it is said to be over."""
        ...

    def events(self, timeout_s: float) -> Sequence[NodeEvent]:
        """What has come, waiting so long for the first.

        Raises:
            HostError: The cluster itself is gone.
        """
        ...

    def release(self, node: str) -> None:
        """Give a node back to the cluster."""
        ...


class Crowd(Protocol):
    """Who watches a run over several nodes."""

    def phase(self, node: str, slot: Slot, what: str, limit_s: float | None) -> None:
        """What a node waits for now, and for how long at most."""
        ...

    def progress(self, node: str, done: int, total: int, tok_s: float | None, errors: int) -> None:
        """How far its present measurement is."""
        ...

    def trial_ends(self, trial: Trial) -> None:
        """A trial is over."""
        ...

    def free(self, node: str, note: str) -> None:
        """A node has nothing to do, for now or for good."""
        ...


@dataclass(slots=True)
class _Lane:
    """A node's present trial."""

    slot: Slot
    into: Path
    failed: Failed | None = None


@dataclass(slots=True)
class _State:
    """Of one pass: who runs what, who is out, and the next number."""

    number: int
    busy: dict[str, _Lane] = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)  # lost, or unfit: not by what was measured
    left: dict[str, str] = field(default_factory=dict)  # by what was measured
    evidence: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def slots(self) -> dict[str, Slot]:
        return {node: lane.slot for node, lane in self.busy.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelSweep:
    """One pass over what is left of a run.

    Attributes:
        job: What a node is told, by its name, the slot, and the slowest start of the baseline so far.
        after: Called with each finished trial, to derive and show what is known so far.
        learn: From the log of a baseline's start to what fits, as the detail of an action; None for nothing.
        tell: Told what a user should know.
    """

    directory: RunDirectory
    nodes: Nodes
    job: Callable[[str, Slot, float | None], Job]
    journal: Journal
    observer: Crowd
    after: Callable[[Trial], None]
    learn: Callable[[Path], dict[str, object] | None]
    tell: Callable[[str], None]

    def run(self) -> None:
        """Run all that is left.

        Raises:
            FailedError: The baseline starts on no node: there is nothing to compare with.
            HostError: No node is left, or the cluster is gone. What was measured is kept.
        """
        record = self.directory.load()
        if any(action.what == FINISH for action in record.actions):
            return
        past = sorted(r.trial.number for r in record.trials)
        self.journal.write(
            "resume" if past else "begin", detail={"finished": past, "nodes": list(self.nodes.names)}
        )
        self._forget(record)
        state = _State(number=max((a.trial or 0 for a in record.actions), default=0))
        known: dict[int, Measured] = {}
        while True:
            lanes = Lanes(self.directory.load(), known)
            self._hand_out(lanes, state)
            if not state.busy:
                break
            while not self._heard(state):
                pass
        self._end(lanes, state)

    def _forget(self, record: RunRecord) -> None:
        """What was running when an earlier pass ended is lost."""
        finished = {r.trial.number for r in record.trials}
        for slot in record.info.schedule:
            if slot.number not in finished:
                self.journal.write(LOST, slot.number, {"because": "the run was interrupted"})
        for path in (self.directory.path / "trials").glob(".*"):
            shutil.rmtree(path, ignore_errors=True)

    def _hand_out(self, lanes: Lanes, state: _State) -> None:
        starts = (t.start_s for t in lanes.trials if t.arm == lanes.info.baseline)
        slowest = max((s for s in starts if s is not None), default=None)
        for node in self.nodes.names:
            if node in state.busy or node in state.out or node in state.left:
                continue
            turn = lanes.turn(node, state.slots, state.number + 1)
            if turn.left is not None:
                self._leave(state, node, turn.left)
            elif turn.slot is not None:
                state.number += 1
                self._begin(state, node, turn.slot, slowest)
            else:
                self.observer.free(node, "nothing to do just now")

    def _begin(self, state: _State, node: str, slot: Slot, slowest: float | None) -> None:
        detail = {"arm": slot.arm.name, "round": slot.round, "node": node}
        self.journal.write(NEXT, slot.number, detail)
        into = self.directory.path / "trials" / f".{slot.number:02d}"
        with storing(self.directory.path):
            into.mkdir(parents=True)
        state.busy[node] = _Lane(slot, into)
        self.observer.phase(node, slot, "handed to the node", None)
        self.nodes.begin(node, self.job(node, slot, slowest), into)

    def _leave(self, state: _State, node: str, why: str) -> None:
        state.left[node] = why
        self.journal.write("left", detail={"node": node, "because": why})
        self.tell(f"{node} gets nothing more: {why}")
        self.observer.free(node, "left")
        self.nodes.release(node)

    # --- what comes back ------------------------------------------------------------------------------------

    def _heard(self, state: _State) -> bool:
        """Whether something came by which what is to be done changes."""
        changed = False
        for event in self.nodes.events(_LOOK_S):
            lane = state.busy.get(event.node)
            if event.lost is not None:
                self._lost(state, event.node, event.lost, event.evidence)
                changed = True
            elif lane is not None and event.said is not None:
                self._said(event.node, lane, event.said)
            elif lane is not None and event.over:
                self._over(state, event.node, lane)
                changed = True
        return changed

    def _said(self, node: str, lane: _Lane, line: bytes) -> None:
        try:
            word = decode(line, Word)
        except msgspec.DecodeError:
            return  # a stray print of something there
        if word.phase is not None:
            self.observer.phase(node, lane.slot, *word.phase)
        elif word.progress is not None:
            self.observer.progress(node, *word.progress)
        elif word.act is not None:
            what, detail = word.act
            self.journal.write(what, lane.slot.number, {**detail, "node": node})
        elif word.failed is not None:
            lane.failed = word.failed

    def _over(self, state: _State, node: str, lane: _Lane) -> None:
        if not (lane.into / _TRIAL).is_file():
            failed = lane.failed
            why = failed.what if failed else "draftmark ended there without a trial"
            self._lost(state, node, why, failed.evidence if failed else _last_lines(lane.into))
            return
        del state.busy[node]
        trial = self._take(lane)
        self._learn(trial)
        self.after(trial)
        self.observer.trial_ends(trial)

    def _take(self, lane: _Lane) -> Trial:
        """A trial's files into the run; it counts once `trial.json` is there."""
        trial = decode((lane.into / _TRIAL).read_bytes(), Trial)
        writer = self.directory.trial(f"{lane.slot.number:02d}-{lane.slot.arm.name}")
        with storing(self.directory.path):
            for path in sorted(lane.into.iterdir(), key=lambda path: path.name == _TRIAL):
                path.replace(writer.path / path.name)
            lane.into.rmdir()
        return trial

    def _lost(self, state: _State, node: str, why: str, evidence: tuple[str, ...]) -> None:
        state.out[node], state.evidence[node] = why, evidence
        lane = state.busy.pop(node, None)
        detail: dict[str, object] = {"node": node, "because": why, "evidence": evidence}
        self.journal.write(LOST, lane.slot.number if lane else None, detail)
        again = f"; {lane.slot.arm.label} is started elsewhere" if lane else ""
        self.tell(f"{node} is lost: {why}{again}")
        self.observer.free(node, "lost")
        if lane is not None:
            with suppress(OSError):
                shutil.rmtree(lane.into)
        self.nodes.release(node)

    def _learn(self, trial: Trial) -> None:
        """What fits, by the log of the first start of the baseline: once a run."""
        if trial.arm != self.directory.info.baseline or trial.start_s is None:
            return
        if any(action.what == FITTED for action in self.directory.load().actions):
            return
        detail = self.learn(self.directory.path / "trials" / trial.directory / "server.log")
        if detail is not None:
            self.journal.write(FITTED, trial.number, detail)

    # --- the end --------------------------------------------------------------------------------------------

    def _end(self, lanes: Lanes, state: _State) -> None:
        gone = {**state.left, **state.out}
        if lanes.pending({}):
            told = tuple(f"{node}: {why}" for node, why in gone.items())
            lines = tuple(line for node in state.out for line in state.evidence.get(node, ()))
            self._must_start(lanes, told)
            if state.out:
                raise HostError(
                    "no node of the cluster is left to go on with",
                    evidence=(*told, *lines),
                    next_step="what was measured is kept",
                )
            self.journal.write("give-up", detail={"because": "; ".join(told) or "no node takes what is left"})
        self.journal.write(FINISH, detail={"restored": True, "kept": None})

    def _must_start(self, lanes: Lanes, told: tuple[str, ...]) -> None:
        base = [t for t in lanes.trials if t.arm == lanes.info.baseline]
        if base and all(t.status is TrialStatus.DID_NOT_START for t in base):
            last = base[-1]
            raise FailedError(
                "the service does not start as it is now configured, on no node",
                evidence=told or (last.because or "",),
                next_step=f"see {self.directory.path / 'trials' / last.directory / 'server.log'}",
            )


def _last_lines(into: Path) -> tuple[str, ...]:
    """Of what a Draftmark that ended without a trial had to say."""
    try:
        lines = (into / "draftmark.log").read_bytes()[-4000:].decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    return tuple(line for line in lines if line.strip())[-3:]
