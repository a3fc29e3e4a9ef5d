"""`KnobStudy` on Optuna: its storage, its dashboard, and as many runs as share its URL.

Optuna keeps; it does not propose. A study is the same for runs that search the same knobs of the same service; its
values are ratios to each run's own baseline, so that hosts of different speed can share it. A setting that was
started and did not serve is FAIL, one that was never started PRUNED, with the reason as the user attribute
`because`. The package is not of the core: `pip install 'draftmark[search]'`.
"""

from __future__ import annotations

import importlib
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from draftmark.errors import BadInputError, UsageError
from draftmark.model import Knob
from draftmark.tune.knobs.run import Setting

_AS_IT_IS = "as it is"
_STALE = timedelta(hours=3)  # a trial that runs longer belongs to a run that died
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):([^/@]*)@")
HIDDEN = "***"


def optuna() -> Any:
    """The package.

    Raises:
        UsageError: It is not installed.
    """
    try:
        library: Any = importlib.import_module("optuna")
    except ImportError as error:
        raise UsageError(
            "--knob needs Optuna, which is not installed",
            evidence=(str(error),),
            next_step="pip install 'draftmark[search]'",
        ) from None
    library.logging.set_verbosity(library.logging.ERROR)
    return library


def without_password(url: str) -> str:
    """As it may be written down."""
    return _PASSWORD.sub(rf"\1:{HIDDEN}@", url)


def study_name(service: str, knobs: Sequence[Knob]) -> str:
    """The same for every run of the same knobs and values on the same service."""
    told = "|".join([service, *(f"{k.flag}={','.join(map(str, k.levels))}" for k in knobs)])
    return f"draftmark-{sha256(told.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


class OptunaStudy:
    """A study in a storage that Optuna can open: SQLite, PostgreSQL, MySQL."""

    def __init__(self, url: str, name: str, knobs: Sequence[Knob], axes: int, run: str) -> None:
        """Open it, or make it.

        Args:
            url: SQLAlchemy's: `sqlite:////path/study.db`, `postgresql://user@host/database`.
            name: Of the study.
            knobs: What is searched.
            axes: Ratios of a setting: latency, and throughput where there are two.
            run: Tells this run's trials from others'.

        Raises:
            UsageError: Optuna is not there.
            BadInputError: The storage cannot be opened.
        """
        self._optuna = optuna()
        self._run = run
        self._knobs = tuple(knobs)
        self._url = url
        with self._storing():
            self._study = self._optuna.create_study(
                study_name=name, storage=url, directions=["maximize"] * axes, load_if_exists=True
            )
            self._study.set_metric_names(["latency", "throughput"][:axes])
        if len(self._study.directions) != axes:
            raise BadInputError(
                f"the study {name} has {len(self._study.directions)} objectives, this run {axes}",
                evidence=(without_password(url),),
                next_step="name as many concurrencies as its other runs did, or another --study",
            )

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """The storage's own errors in our words; no password in them."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Exception as error:  # whichever the driver raises: of SQLAlchemy, of the database, of its absence
            told = without_password(" ".join(str(error).split()))[:300]
            raise BadInputError(
                f"the study at {without_password(self._url)} cannot be used",
                evidence=(f"{type(error).__name__}: {told}",),
                next_step="check --study: sqlite:////path/study.db, or postgresql://HOST/DATABASE with its driver: "
                "pip install psycopg2-binary; a broken study.db of a run can be removed, --resume does without it",
            ) from error

    # --- kept ---------------------------------------------------------------------------------------------

    def keep(self, own: Sequence[Setting]) -> None:
        """All of this run; trials that are there already are completed, not repeated."""
        with self._storing():
            there = {
                trial.user_attrs.get("key"): trial
                for trial in self._study.get_trials(deepcopy=False)
                if trial.user_attrs.get("run") == self._run
            }
            for setting in own:
                key = self._key(setting)
                trial = there.get(key)
                if trial is None:
                    self._study.add_trial(self._frozen(setting, key))
                elif not trial.state.is_finished() and setting.status != "running":
                    self._finish(trial.number, setting)

    def _key(self, setting: Setting) -> str:
        return str(setting.number) if setting.number is not None else f"left {sorted(setting.levels.items())}"

    def _frozen(self, setting: Setting, key: str) -> Any:
        states = self._optuna.trial.TrialState
        state = {"running": states.RUNNING, "measured": states.COMPLETE, "left": states.PRUNED}
        attributes = {"run": self._run, "key": key, "depth": setting.depth}
        if setting.because:
            attributes["because"] = setting.because
        spread = {knob.name: self._distribution(knob) for knob in self._knobs}
        return self._optuna.trial.create_trial(
            state=state.get(setting.status, states.FAIL),
            params={knob.name: self._value(knob, setting.levels[knob.name]) for knob in self._knobs},
            distributions=spread,
            values=list(setting.ratios) if setting.ratios else None,
            user_attrs=attributes,
        )

    def _finish(self, number: int, setting: Setting) -> None:
        if setting.ratios:
            self._study.tell(number, list(setting.ratios))
        else:
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)

    def _distribution(self, knob: Knob) -> Any:
        if not self._counted(knob):
            return self._optuna.distributions.CategoricalDistribution([v or _AS_IT_IS for v in knob.levels])
        values = [float(value or 0) for value in knob.levels]
        if all(value.is_integer() for value in values):
            return self._optuna.distributions.IntDistribution(int(min(values)), int(max(values)))
        return self._optuna.distributions.FloatDistribution(min(values), max(values))

    def _value(self, knob: Knob, level: str | None) -> Any:
        if not self._counted(knob):
            return level or _AS_IT_IS
        return float(level or 0) if "." in "".join(map(str, knob.levels)) else int(level or 0)

    @staticmethod
    def _counted(knob: Knob) -> bool:
        """All its levels are numbers."""
        return knob.ordered and None not in knob.levels

    # --- told ---------------------------------------------------------------------------------------------

    def others(self) -> tuple[Setting, ...]:
        """Of other runs: what was measured, and what is being measured just now."""
        states = self._optuna.trial.TrialState
        with self._storing():
            trials = self._study.get_trials(deepcopy=False, states=(states.COMPLETE, states.RUNNING))
        return tuple(
            Setting(
                number=None,
                depth=int(trial.user_attrs.get("depth", -1)),
                levels={knob.name: self._level(knob, trial.params.get(knob.name)) for knob in self._knobs},
                ratios=tuple(trial.values or ()),
                status="measured" if trial.values else "running",
            )
            for trial in trials
            if trial.user_attrs.get("run") not in (None, self._run) and (trial.values or not _stale(trial))
        )

    def _level(self, knob: Knob, value: Any) -> str | None:
        """The level that a parameter stands for; its text where there is none."""
        if value is None or value == _AS_IT_IS:
            return None
        if not self._counted(knob):
            return str(value)
        near = (each for each in knob.levels if each is not None and math.isclose(float(each), float(value)))
        return next(near, str(value))


def _stale(trial: Any) -> bool:
    return trial.datetime_start is not None and datetime.now() - trial.datetime_start > _STALE
