"""Ways to search five knobs, all told the same: what fits, what runs for nothing, one noisy trial a restart."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.search.knob_surfaces import MARGIN, KnobSurface

from draftmark.tune.knobs.search import KnobProblem, KnobSearch
from draftmark.tune.knobs.space import Point
from draftmark.tune.search import worth

BUDGET = 15
_ASKED = 20  # times the budget: a sampler that asks for nothing new is left


@dataclass
class KnobTrials:
    """The trials of one method on one surface: counts restarts, keeps what was seen."""

    surface: KnobSurface
    restarts: int = 0
    misfits: int = 0
    seen: dict[Point, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        base = self.surface.space.base
        self.seen[base] = self.surface.shown(base)

    def start(self, point: Point) -> tuple[float, float]:
        """One restart."""
        self.restarts += 1
        if not self.surface.fits(point):
            self.misfits += 1
            raise ValueError(f"{point} does not fit")
        self.seen[point] = self.surface.shown(point)
        return self.seen[point]

    def values(self) -> dict[Point, float]:
        """What was seen, against what runs: latency, unless throughput is lost by it."""
        base = self.seen[self.surface.space.base]
        ratios = [[figures[axis] / base[axis] for figures in self.seen.values()] for axis in (0, 1)]
        return dict(zip(self.seen, worth(ratios[0], ratios[1], MARGIN), strict=True))

    def best(self) -> Point:
        """The highest figure of those seen."""
        values = self.values()
        return max(values, key=lambda point: values[point])


def draftmark(trials: KnobTrials) -> Point:
    """Each knob at its ends, then what promises most: the search of `draftmark tune --knob`."""
    surface = trials.surface
    search = KnobSearch(KnobProblem(space=surface.space, budget=BUDGET))
    search.tell(surface.space.base, trials.seen[surface.space.base])

    def admits(point: Point) -> str | None:
        return None if surface.fits(point) else "does not fit"

    while (step := search.ask(admits)).point is not None:
        search.tell(step.point, trials.start(step.point))
    return search.choice().point


def optuna(sampler: str, *, screened: bool = False) -> Callable[[KnobTrials], Point]:
    """Optuna's sampler over all knobs that fit, what runs told beforehand, until the restarts are spent.

    Its objective is what Draftmark decides by. A setting that does not fit, or that was seen, costs no restart.

    Args:
        sampler: `random`, `tpe` or `gp`.
        screened: With Draftmark's screening before it, over the knobs that are left.
    """

    def search(trials: KnobTrials) -> Point:
        library: Any = importlib.import_module("optuna")
        library.logging.set_verbosity(library.logging.ERROR)
        space = trials.surface.space
        vary = _screen(trials) if screened else tuple(range(len(space.knobs)))
        spread = {
            space.knobs[i].name: library.distributions.IntDistribution(0, len(space.knobs[i].levels) - 1)
            if space.knobs[i].ordered
            else library.distributions.CategoricalDistribution(list(range(len(space.knobs[i].levels))))
            for i in vary
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = library.create_study(direction="maximize", sampler=_sampler(library, sampler, trials))
            told: set[Point] = set()
            for _ in range(_ASKED * BUDGET):
                if trials.restarts >= BUDGET or not spread:
                    break
                for point, value in trials.values().items():
                    # Only what differs in the knobs that are searched can be told.
                    if point not in told and all(point[i] == space.base[i] for i in set(range(5)) - set(vary)):
                        told.add(point)
                        params = {space.knobs[i].name: point[i] for i in vary}
                        study.add_trial(
                            library.trial.create_trial(params=params, distributions=spread, value=value)
                        )
                asked = study.ask(spread)
                point = tuple(asked.params.get(knob.name, knob.runs) for knob in space.knobs)
                if trials.surface.fits(point):
                    if point not in trials.seen:
                        trials.start(point)
                        told.add(point)
                    study.tell(asked, trials.values()[point])
                else:
                    study.tell(asked, state=library.trial.TrialState.FAIL)
        return trials.best()

    return search


def _sampler(library: Any, name: str, trials: KnobTrials) -> Any:
    seed = trials.surface.seed
    if name == "random":
        return library.samplers.RandomSampler(seed=seed)
    if name == "tpe":
        return library.samplers.TPESampler(seed=seed, n_startup_trials=5, multivariate=True)
    return library.samplers.GPSampler(seed=seed, n_startup_trials=5, deterministic_objective=False)


def _screen(trials: KnobTrials) -> tuple[int, ...]:
    surface = trials.surface
    search = KnobSearch(KnobProblem(space=surface.space, budget=BUDGET))
    search.tell(surface.space.base, trials.seen[surface.space.base])
    while (step := search.ask()).point is not None and step.screening:
        if surface.fits(step.point):
            search.tell(step.point, trials.start(step.point))
        else:
            search.refuse(step.point, "does not fit")
    return search.kept


KNOB_METHODS: dict[str, Callable[[KnobTrials], Point]] = {"Draftmark": draftmark}
KNOB_OPTUNA: dict[str, Callable[[KnobTrials], Point]] = {
    "Optuna at random": optuna("random"),
    "Optuna TPE": optuna("tpe"),
    "screening, then Optuna TPE": optuna("tpe", screened=True),
}
KNOB_OPTUNA_GP: dict[str, Callable[[KnobTrials], Point]] = {
    "Optuna GP": optuna("gp"),
    "screening, then Optuna GP": optuna("gp", screened=True),
}
