"""A run's knobs, as their search is told of them from its records. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from draftmark.model import Arm, Refusal, TrialStatus
from draftmark.run.records import OTHERS, RunRecord
from draftmark.tune.forecast import Figure
from draftmark.tune.knobs.search import KnobProblem, KnobSearch, KnobStep
from draftmark.tune.knobs.space import Point, Space

if TYPE_CHECKING:
    from draftmark.tune.steering import Told

Vet = Callable[[Arm], Refusal | None]
"""Why an arm cannot be started; None where nothing speaks against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting in a study that several runs may share.

    Attributes:
        number: Of the trial, in its own run; None of one that was not started.
        depth: At which it was tried.
        levels: Value by knob; None for what the engine does by itself.
        ratios: To what runs there, latency's first; empty until measured.
        status: `running`, `measured`, `failed` or `left`.
        because: Why it failed or was left.
    """

    number: int | None
    depth: int
    levels: Mapping[str, str | None]
    ratios: tuple[float, ...] = ()
    status: str = "running"
    because: str | None = None


@dataclass(slots=True)
class KnobRun:
    """The search of one run, on top of the depth that was chosen.

    Attributes:
        left: Arms that were refused while asking, and why.
    """

    told: Told
    depth: int
    space: Space
    search: KnobSearch
    left: dict[Arm, Refusal] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Told, depth: int) -> KnobRun | None:
        """All that was measured of it; None where its depth has no figures.

        Args:
            told: The run.
            depth: That the search of depths chose; once a knob was tried, that at which it was.
        """
        info = told.info
        space = Space(info.knobs)
        axes = 1 if len(set(info.concurrency)) == 1 else 2
        problem = KnobProblem(space=space, axes=axes, margin=info.tie_margin, budget=info.budget)
        run = cls(told=told, depth=depth, space=space, search=KnobSearch(problem))
        base = [t for t in told.usable if t.arm == Arm(depth)]
        if not base:
            return None
        for trial in base:
            run.search.tell(space.base, run.figures(trial.number), restart=False)
        run._tell_tried()
        run._tell_left()
        run._tell_others()
        return run

    def figures(self, number: int) -> list[float]:
        """Tokens a second by axis."""
        own = self.told.figures(number)
        concurrency = self.told.info.concurrency
        return [own[c] for c in dict.fromkeys((min(concurrency), max(concurrency)))]

    @property
    def base(self) -> list[float]:
        """Tokens a second of the depth as it is, by axis."""
        own = [self.figures(t.number) for t in self.told.usable if t.arm == Arm(self.depth)]
        return [geometric_mean(column) for column in zip(*own, strict=True)]

    def _tell_tried(self) -> None:
        for trial in self.told.trials:
            point = self._point(trial.arm)
            if point is None or point == self.space.base:
                continue
            spoilt = self.told.spoilt(trial.arm)
            if trial in self.told.usable:
                self.search.tell(point, self.figures(trial.number), restart=trial.round == 1)
            elif trial.status is TrialStatus.DID_NOT_START:
                self.search.fail(point, trial.because or "it did not start")
            elif spoilt is not None:
                self.search.refuse(point, spoilt)

    def _tell_left(self) -> None:
        for arm in self.told.info.arms:
            point, refusal = self._point(arm), self.told.info.refused.get(arm.name)
            if point is not None and refusal is not None:
                self.search.refuse(point, refusal.because)

    def _tell_others(self) -> None:
        base = self.base
        for other in others_of(self.told.record):
            point = self._levels(other)
            if point is None or point == self.space.base or other.depth != self.depth:
                continue
            if len(other.ratios) == len(base):
                self.search.tell(point, [r * b for r, b in zip(other.ratios, base, strict=True)], restart=False)
            elif other.status == "running":
                self.search.busy(point)

    def _point(self, arm: Arm) -> Point | None:
        return self.space.point(arm) if arm.depth == self.depth else None

    def _levels(self, other: Setting) -> Point | None:
        """Where another run has tried the same knobs, in values that are among ours."""
        if set(other.levels) != {knob.name for knob in self.space.knobs}:
            return None
        found = []
        for knob in self.space.knobs:
            value = other.levels[knob.name]
            if value not in knob.levels:
                return None
            found.append(knob.levels.index(value))
        return tuple(found)

    # --- asked --------------------------------------------------------------------------------------------

    def ask(self, vet: Vet | None) -> KnobStep:
        """The next setting, what cannot be started left aside in `left`."""

        def admits(point: Point) -> str | None:
            arm = self.arm(point)
            refusal = None if vet is None else vet(arm)
            if refusal is not None:
                self.left[arm] = refusal
            return None if refusal is None else refusal.because

        return self.search.ask(admits)

    def predicted(self, step: KnobStep) -> dict[int, Figure]:
        """Tokens a second by concurrency."""
        concurrency = self.told.info.concurrency
        axes = dict.fromkeys((min(concurrency), max(concurrency)))
        return {
            c: Figure(ratio.mean * own, ratio.low * own, ratio.high * own)
            for c, ratio, own in zip(axes, step.predicted, self.base, strict=False)
        }

    def arm(self, point: Point) -> Arm:
        """What is started for it."""
        return self.space.arm(point, self.depth)

    def preferred(self) -> tuple[Arm, ...]:
        """The choice, then its ties: those that change least first."""
        choice = self.search.choice()
        return tuple(self.arm(point) for point in (choice.point, *choice.ties))

    # --- told ---------------------------------------------------------------------------------------------

    def document(self) -> list[dict[str, Any]]:
        """Of each knob: whether it matters and how much, and whether it was dropped."""
        names = ("latency", "throughput")
        found = []
        for knob, effect in zip(self.space.knobs, self.search.effects(), strict=True):
            figures = dict(zip(names, effect.ratios, strict=False))
            found.append(
                {
                    "knob": knob.name,
                    "flag": knob.flag,
                    "values": [value for value in knob.levels if value is not None],
                    "runs": knob.levels[knob.runs],
                    "at_depth": self.depth,
                    "chance": None if effect.matters is None else round(effect.matters, 3),
                    "dropped": effect.dropped,
                    "most": None if effect.level is None else knob.levels[effect.level],
                    **{name: _document(figures.get(name)) for name in names},
                }
            )
        return found


def _document(figure: Figure | None) -> dict[str, float] | None:
    if figure is None:
        return None
    return {"ratio": round(figure.mean, 4), "low": round(figure.low, 4), "high": round(figure.high, 4)}


def others_of(record: RunRecord) -> tuple[Setting, ...]:
    """What other runs of the study had measured when it was last looked at."""
    last = next((a for a in reversed(record.actions) if a.what == OTHERS), None)
    rows: Sequence[Mapping[str, Any]] = () if last is None else last.detail.get("settings", ())
    return tuple(
        Setting(
            number=None,
            depth=int(row["depth"]),
            levels=dict(row["levels"]),
            ratios=tuple(row.get("ratios", ())),
            status=str(row["status"]),
        )
        for row in rows
    )


def settings_of(run: KnobRun) -> list[Setting]:
    """What a study is to know of this run."""
    base = run.base
    found = [Setting(number=0, depth=run.depth, levels=run.space.levels(run.space.base), ratios=(1.0,) * len(base),
                     status="measured")]  # fmt: skip
    for trial in run.told.trials:
        point = run.space.point(trial.arm)
        if point is None or point == run.space.base or trial.arm.depth != run.depth:
            continue
        ratios: tuple[float, ...] = ()
        if trial in run.told.usable:
            ratios = tuple(own / b for own, b in zip(run.figures(trial.number), base, strict=True))
        found.append(
            Setting(
                number=trial.number, depth=run.depth, levels=run.space.levels(point), ratios=ratios,
                status="measured" if ratios else "failed", because=trial.because,
            )
        )  # fmt: skip
    for arm in run.told.info.arms:
        point, refusal = run.space.point(arm), run.told.info.refused.get(arm.name)
        if refusal is not None and point is not None and arm.depth == run.depth and arm.knobs:
            found.append(
                Setting(
                    number=None,
                    depth=run.depth,
                    levels=run.space.levels(point),
                    status="left",
                    because=refusal.because,
                )
            )
    return found
