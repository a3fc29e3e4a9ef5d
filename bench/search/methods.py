"""Ways to search a surface, all told the same: what fits, the baseline's figures, one noisy trial a restart."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.search.surfaces import Surface

from draftmark.tune.acceptance_model import AcceptanceEvidence, from_histogram, from_length
from draftmark.tune.forecast import Seen
from draftmark.tune.search import Candidate, Problem, Search, worth

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass
class Trials:
    """The trials of one method on one surface: counts restarts, keeps what was seen."""

    surface: Surface
    restarts: int = 0
    misfits: int = 0
    seen: dict[int, list[dict[int, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seen[self.surface.baseline] = [self.surface.shown(self.surface.baseline).tok_s]

    def start(self, depth: int) -> None:
        """One restart, anew even where the depth was seen before."""
        self.restarts += 1
        if depth not in self.surface.fits:
            self.misfits += 1
            return
        again = len(self.seen.get(depth, ()))
        self.seen.setdefault(depth, []).append(self.surface.shown(depth, again).tok_s)

    def value(self, depth: int) -> float:
        """Against the baseline, as seen; a restart where it was not seen before."""
        if depth not in self.seen:
            self.start(depth)
        return self.values()[depth]

    def values(self) -> dict[int, float]:
        """All that was seen, against the baseline."""
        depths = sorted(self.seen)
        means = {k: {c: _mean([s[c] for s in self.seen[k]]) for c in self.surface.concurrencies} for k in depths}
        base = means[self.surface.baseline]
        ratios = [[means[k][c] / base[c] for k in depths] for c in self.surface.concurrencies]
        found = ratios[0] if len(ratios) == 1 else worth(ratios[0], ratios[1], 0.02)
        return dict(zip(depths, found, strict=True))

    def best(self) -> int:
        """The depth with the highest figure of those seen."""
        values = self.values()
        return max(values, key=lambda k: values[k])


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def draftmark(trials: Trials) -> int:
    """Predict, then measure what is worth a restart: the search of `draftmark tune`."""
    s = trials.surface
    search = Search(
        Problem(
            candidates=tuple(
                Candidate(depth=k, refused=None if k in s.fits else "does not fit", running=s.running.get(k))
                for k in s.depths
            ),
            baseline=s.baseline,
            latency=s.concurrencies[0],
            throughput=s.concurrencies[1] if len(s.concurrencies) > 1 else None,
            noise=s.noise,
        )
    )
    search.tell(_told(s, s.baseline))
    while (step := search.ask()).depth is not None:
        trials.start(step.depth)
        search.tell(_told(s, step.depth))
    return search.choice().depth


def _told(surface: Surface, depth: int) -> Seen:
    shown = surface.shown(depth)
    evidence: AcceptanceEvidence | None = None
    if shown.histogram is not None:
        evidence = from_histogram(depth, shown.histogram)
    elif shown.accept_len is not None:
        evidence = from_length(depth, shown.accept_len)
    return Seen(depth=depth, tok_s=shown.tok_s, acceptance=evidence)


def grid(trials: Trials) -> int:
    """Every depth that fits, once."""
    for depth in trials.surface.fits:
        trials.value(depth)
    return trials.best()


def golden_section(trials: Trials) -> int:
    """Golden-section search over the depths that fit, taking the curve to have one hump."""
    fits = trials.surface.fits
    low, high = 0, len(fits) - 1
    while high - low > 2:
        left = round(high - _GOLDEN * (high - low))
        right = max(round(low + _GOLDEN * (high - low)), left + 1)
        if trials.value(fits[left]) >= trials.value(fits[right]):
            high = right
        else:
            low = left
    for place in range(low, high + 1):
        trials.value(fits[place])
    return trials.best()


def successive_halving(trials: Trials) -> int:
    """Every depth once, the better half once more, until one is left; figures are averaged."""
    alive = list(trials.surface.fits)
    for depth in alive:
        trials.value(depth)
    while len(alive) > 1:
        values = trials.values()
        alive = sorted(alive, key=lambda k: -values[k])[: (len(alive) + 1) // 2]
        if len(alive) > 1:
            for depth in alive:
                trials.start(depth)
    return alive[0]


def optuna(sampler: str, budget: int) -> Callable[[Trials], int]:
    """Optuna over the depths that fit, the baseline told beforehand, until so many restarts are spent.

    A depth that it asks for again costs no restart.
    """

    def search(trials: Trials) -> int:
        library: Any = importlib.import_module("optuna")
        library.logging.set_verbosity(library.logging.ERROR)
        fits = trials.surface.fits
        make = {"tpe": library.samplers.TPESampler, "gp": library.samplers.GPSampler}[sampler]
        start = (
            {"n_startup_trials": 2}
            if sampler == "tpe"
            else {"n_startup_trials": 2, "deterministic_objective": False}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = library.create_study(direction="maximize", sampler=make(seed=trials.surface.seed, **start))
            spread = library.distributions.IntDistribution(0, len(fits) - 1)
            study.add_trial(
                library.trial.create_trial(
                    params={"place": fits.index(trials.surface.baseline)},
                    distributions={"place": spread},
                    value=1.0,
                )
            )
            for _ in range(4 * budget):
                if trials.restarts >= min(budget, len(fits) - 1):
                    break
                asked = study.ask({"place": spread})
                study.tell(asked, trials.value(fits[asked.params["place"]]))
        return trials.best()

    return search


METHODS: dict[str, Callable[[Trials], int]] = {
    "Draftmark": draftmark,
    "full grid": grid,
    "golden section": golden_section,
    "successive halving": successive_halving,
}
OPTUNA: dict[str, Callable[[Trials], int]] = {
    f"Optuna {sampler.upper()}, 4 restarts": optuna(sampler, 4) for sampler in ("tpe", "gp")
}
