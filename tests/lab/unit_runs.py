"""Runs of Draftmark that come to a point fast: a new one, one with its last trial left, one that will keep."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .llm_unit import Controller, LlmLab
from .unit_tune import KEPT

_QUICK = (
    *("--depth", "off,4", "--rounds", "1", "--concurrency", "1"),
    *("--requests", "1", "--max-tokens", "6", "--max-foreign-cpu", "1000"),
)
_FIRST_S = 0.5
_TOKEN_S = {True: 0.1, False: 0.04}  # of the baseline, of what drafts
_TRIES = 5
_CATCHES = 12  # on a quiet machine the last phases are short


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a script, between two entries of its record of actions.

    Attributes:
        script: Of which.
        action: The entry that it begins with; `prepare` for the time before the first.
        nth: Which of the entries with that name.
        lasts: Seconds, about.
    """

    script: str
    action: str
    nth: int
    lasts: float

    @property
    def name(self) -> str:
        """For a table."""
        return f"{self.script}: {self.action}" + (f" #{self.nth}" if self.nth > 1 else "")


PHASES = (
    Phase("fresh", "prepare", 1, 4.0),
    Phase("fresh", "begin", 1, 1.5),
    Phase("fresh", "vacated", 1, 0.3),
    Phase("fresh", "start", 1, 2.0),
    Phase("fresh", "ready", 1, 1.5),
    Phase("fresh", "measure", 1, 3.0),
    Phase("fresh", "stop", 1, 0.6),
    Phase("fresh", "start", 2, 2.0),
    Phase("fresh", "measure", 2, 3.0),
    Phase("fresh", "stop", 2, 0.6),
    Phase("late", "stop", 1, 0.6),
    Phase("late", "stopped", 1, 2.5),
    Phase("late", "restored", 1, 0.3),
    Phase("keep", "resume", 1, 1.5),
    Phase("keep", "vacated", 1, 2.0),
    Phase("keep", "vacated", 1, 5.0),
    Phase("keep", "kept", 1, 0.3),
)
"""Of the first trial, which has the baseline, and of the second, whose drop-in has a command line of its own; of
the end, where the service is put back; of the keeping, with the start before it."""


class Scripts:
    """Begins runs over one kind of host.

    Args:
        lab: Where the unit is.
        host: SSH destination; None for a run on the unit's own host.
        prefix: A command that runs those outside.
        options: Of `draftmark tune`.
        near: The same host as it is reached without the prefix.
    """

    def __init__(
        self,
        lab: LlmLab,
        host: str | None,
        prefix: Sequence[str] = (),
        options: Sequence[str] = (),
        near: str | None = None,
    ) -> None:
        self.lab = lab
        self.host = host
        self._near = near or host
        self._prefix = prefix
        self._options = options
        self._model: Path | None = None

    def prepare(self) -> None:
        """Make what all but new runs need."""
        self._model = self._model or self._winner()

    def begin(self, script: str, options: Sequence[str] = ()) -> Controller:
        """Start one."""
        words = (*self._options, *options)
        if script == "fresh":
            return self.lab.controller(*words, host=self.host, prefix=self._prefix, sweep=self._sweep())
        keep = ("--keep",) if script == "keep" else ()
        run = self._cut_short(last_trial=script == "keep")
        return self.lab.controller(*words, *keep, host=self.host, prefix=self._prefix, resume=run)

    def catch(
        self, phase: Phase, chance: random.Random, options: Sequence[str] = (), *, late: str = ""
    ) -> tuple[Controller, float] | None:
        """A run at a random moment of a phase, and how far into it; None when all were over before.

        Args:
            phase: Where.
            chance: Draws the moment.
            options: Of `draftmark tune`.
            late: A run that has come to this entry of its record is over, too.
        """
        for _ in range(_CATCHES):
            controller = self.begin(phase.script, options)
            into = chance.uniform(0.0, phase.lasts)
            reached = phase.action == "prepare" or controller.await_phase(phase.action, phase.nth)
            time.sleep(into if reached else 0)
            if reached and controller.process.poll() is None and controller.phase != late:
                return controller, into
            controller.wait()
            keep_undone(self.lab, self._near)
        return None

    def _sweep(self) -> tuple[str, ...]:
        path = Path("/var/lab-prompts.jsonl") if self.host is None else self.lab.folder / "prompts.jsonl"
        if not (seen := self.lab.seen(path, self.host)).exists():
            seen.write_text('{"prompt": "One, two, three,"}\n')
        return (*_QUICK, "--prompts", str(path))

    def _cut_short(self, *, last_trial: bool) -> Path:
        """A copy of the model run as it was before its end, or before its last trial."""
        self.prepare()
        assert self._model is not None
        copy = self.lab.new_run(self.host)
        seen = self.lab.seen(copy, self.host)
        shutil.copytree(self.lab.seen(self._model, self.host), seen)
        (seen / "actions.jsonl").write_text("")
        if not last_trial:
            shutil.rmtree(max((seen / "trials").iterdir()))
        return copy

    def _winner(self) -> Path:
        """A finished run that names one, however busy this machine was: its figures are made up."""
        for _ in range(_TRIES):
            run = self.lab.new_run(self.host)
            ended = self.lab.draftmark("tune", *self._options, *self._sweep(), "--run", str(run), host=self.host)
            trials = sorted((self.lab.seen(run, self.host) / "trials").iterdir())
            if ended.status in (0, 10, 40) and all(_whole(trial) for trial in trials):
                for trial in trials:
                    _make_up(trial)
                return run
        raise AssertionError(f"no whole run in {_TRIES}; the last: {ended.status} {ended.out}{ended.err}")


def keep_undone(lab: LlmLab, host: str | None) -> tuple[str, ...]:
    """Takes back what a run has kept; what went wrong with that."""
    if not lab.root(KEPT).exists():
        return ()
    undone = lab.draftmark("restore", host=host)
    return () if undone.status == 0 else (f"restore: exit status {undone.status}: {undone.err}",)


def _whole(trial: Path) -> bool:
    """Whether all of its requests were answered, be it in a time that makes it void."""
    if not (trial / "trial.json").exists():
        return False
    records = [json.loads(line) for line in (trial / "requests.jsonl").read_text().splitlines()]
    return len(records) > 1 and all(record["error"] is None for record in records)


def _make_up(trial: Path) -> None:
    """Every token of a trial took the same time, and drafting pays."""
    baseline = trial.name.endswith("-off")
    token_s = _TOKEN_S[baseline]
    file, at, lines = trial / "requests.jsonl", 0.0, []
    for record in map(json.loads, file.read_text().splitlines()):
        record["chunks"] = [[_FIRST_S + token_s * tokens, tokens] for _, tokens in record["chunks"]]
        first, last = record["chunks"][0][0], record["chunks"][-1][0]
        record["sent_at_s"], record["end_at_s"] = at, at + last
        record["first_byte_at_s"] = record["first_token_at_s"] = at + first
        record["last_token_at_s"] = at + last
        if not baseline:
            record["drafted_tokens"], record["accepted_tokens"] = 4, 3
        at += last + 0.1
        lines.append(json.dumps(record))
    file.write_text("\n".join(lines) + "\n")
    told = json.loads((trial / "trial.json").read_text())
    (trial / "trial.json").write_text(json.dumps({**told, "status": "measured", "because": None, "disturbed": {}}))
