"""`--knob`: what is searched beside the depth, what of it can be started, and where its study is kept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from draftmark.cli.fitting import scene_of
from draftmark.cli.target import Target
from draftmark.errors import DraftmarkError, UsageError
from draftmark.model import Arm, Fit, Refusal
from draftmark.run.directory import RunDirectory
from draftmark.run.records import FITTED, RunInfo
from draftmark.tune.fitting import refusal_of
from draftmark.tune.knobs.search import BUDGET
from draftmark.tune.knobs.sharing import KnobStudy
from draftmark.tune.knobs.space import Space, parse_knobs

_STUDY_FILE = "study.db"


def space_of(args: argparse.Namespace, target: Target) -> Space:
    """The knobs that were asked for; none where none were.

    Raises:
        UsageError: One that the engine has not, a bad range, an option that is for knobs alone.
    """
    if not args.knob:
        lonely = next((name for name in ("knob_restarts", "study") if getattr(args, name)), None)
        if lonely is not None:
            raise UsageError(
                f"--{lonely.replace('_', '-')} is for a search of knobs",
                next_step="name one with --knob NAME=RANGE",
            )
        return Space(())
    known = {spec.name: spec for spec in target.engine.knobs(target.command)}
    return parse_knobs(args.knob, known, target.engine.name)


def budget(args: argparse.Namespace) -> int:
    """Restarts that may be spent on knobs."""
    return int(args.knob_restarts or BUDGET)


def shown_study(args: argparse.Namespace) -> str | None:
    """Its URL as it may be written down; None for the run directory's own."""
    if args.study is None:
        return None
    from draftmark.tune.knobs.optuna_study import without_password

    return without_password(args.study)


def needs_optuna(info: RunInfo) -> None:
    """Before anything is created or started.

    Raises:
        UsageError: There are knobs, and no Optuna.
    """
    if info.knobs:
        from draftmark.tune.knobs.optuna_study import optuna

        optuna()


def study_of(args: argparse.Namespace, info: RunInfo, path: Path) -> KnobStudy | None:
    """The study of a run's knobs; None without any.

    Raises:
        UsageError: Optuna is not installed, or a password is missing that was not written down.
        BadInputError: Its storage cannot be opened.
    """
    if not info.knobs:
        return None
    from draftmark.tune.knobs.optuna_study import HIDDEN, OptunaStudy, study_name

    url = args.study or info.study or f"sqlite:///{(path / _STUDY_FILE).resolve()}"
    if HIDDEN in url:
        raise UsageError(
            "the study's password was not written down", evidence=(url,), next_step="give --study URL again"
        )
    return OptunaStudy(
        url,
        study_name(f"{info.engine} {' '.join(info.command)}", info.knobs),
        info.knobs,
        axes=1 if len(set(info.concurrency)) == 1 else 2,
        run=f"{info.started_at} {path.resolve().name}",
    )


class Vetting:
    """Why a setting cannot be started: the engine would refuse it, or the memory is not there."""

    def __init__(self, target: Target, baseline: Arm, directory: RunDirectory | None = None) -> None:
        """Nothing is looked at yet: the log that tells most comes with the baseline's start, in the directory."""
        self._target = target
        self._baseline = baseline
        self._directory = directory

    def refusal(self, arm: Arm) -> Refusal | None:
        """None where nothing speaks against a start, or nobody can tell."""
        target = self._target
        try:
            found = target.engine.refuse(target.command, arm)
            if found is None:
                target.engine.check(target.engine.with_arm(target.command, arm))
        except UsageError as error:
            return Refusal("bad-flag", error.what)
        if found is not None:
            return found
        fit = self._fit((self._baseline, arm))
        verdict = fit.of(arm) if fit is not None else None
        own = fit.of(self._baseline) if fit is not None else None
        if verdict is None or (own is not None and own.fits is False):  # it would not let run what runs
            return None
        return refusal_of(verdict)

    def _fit(self, arms: Sequence[Arm]) -> Fit | None:
        log = self._log()
        if log is not None:
            from draftmark.cli.fitting import predicted_from

            found = predicted_from(self._target, tuple(arms), log)
            if found is not None and found.calibrated_from is not None:
                return found
        try:
            return self._target.engine.fit(self._target.command, arms, scene_of(self._target))
        except DraftmarkError:
            return None

    def _log(self) -> Path | None:
        """Of the baseline's own start, where it told its memory."""
        if self._directory is None:
            return None
        record = self._directory.load()
        told = next((a.trial for a in record.actions if a.what == FITTED), None)
        trial = next((r.trial for r in record.trials if r.trial.number == told), None)
        return None if trial is None else self._directory.path / "trials" / trial.directory / "server.log"
