"""From figures to a decision: which arm, how sure, and in which words. Pure.

Every rule here is explained in docs/statistics.md, with how often it errs in simulated sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from draftmark.tune.statistics import (
    PRIOR_DF,
    PRIOR_SD,
    ArmFit,
    Point,
    find_shift,
    fit_arms,
    sweep,
    t_quantile,
)
from draftmark.tune.verdicts import AxisDecision, Conclusion, Interval, Verdict, conclude, label, level_with, load

__all__ = ["Conclusion", "Observation", "astray", "conclude", "decide", "joint_levels"]

ERROR_RATE = 0.05  # of a whole sweep: one interval or more misses its true ratio
PRACTICAL_GAIN = 0.10  # "keep what you have" is said only if no arm can plausibly gain this much
SHIFT_GAIN = 8.5  # log likelihood a level shift must add over drift alone
SHIFT_SIZE = 0.15  # ... and how large it must be to void a ranking
PAIR_RISK = 0.005  # chance that a quiet machine's two baseline trials look this far apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One trial's figures on one axis.

    Attributes:
        trial: Slot number.
        round: Round of the schedule, from 1.
        position_s: Middle of the measurement, seconds since the run's start.
        arm: Name of the arm.
        depth: Its depth; orders the ties.
        axis: `copy@1`.
        workload: `copy`.
        concurrency: Slots of the closed loop.
        values: (prompt id, tok/s) pairs, paired over trials by id; a single pair where only the total is known.
        block: Node of a cluster; empty where there is one machine. Levels of two are never compared.
    """

    trial: int
    round: int
    position_s: float
    arm: str
    depth: int
    axis: str
    workload: str
    concurrency: int
    values: tuple[tuple[str, float], ...]
    block: str = ""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis, ready to be fitted: `points` by block in order of time, `trials` beside them."""

    axis: str
    workload: str
    concurrency: int
    trials: tuple[int, ...]
    points: tuple[Point, ...]

    def of(self, arm: str) -> list[Point]:
        return [p for p in self.points if p.arm == arm]

    @property
    def blocks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.block for p in self.points))

    def within(self, block: str) -> _Axis:
        kept = [(t, p) for t, p in zip(self.trials, self.points, strict=True) if p.block == block]
        return replace(self, trials=tuple(t for t, _ in kept), points=tuple(p for _, p in kept))


@dataclass(frozen=True, slots=True)
class _Rules:
    """What every axis of a decision shares.

    Attributes:
        baseline: Name of the arm that runs today.
        order: All arm names, shallowest first.
        margin: Ratios closer to 1 than this are ties.
        comparisons: Intervals that must hold together.
        void: Why no ranking of this run stands; None when it does.
        ceilings: The most that an arm can gain on an axis, by what its drafts brought in; absent where unknown.
        labels: What people call the arms.
    """

    baseline: str
    order: tuple[str, ...]
    margin: float
    comparisons: int
    void: str | None
    ceilings: Mapping[tuple[str, str], float]
    labels: Mapping[str, str]

    def label(self, arm: str) -> str:
        """As people call it; by its name where nobody says."""
        return self.labels.get(arm) or label(arm)

    def ceiling(self, axis: str, arm: str) -> float | None:
        """None where nothing limits the arm but the figures."""
        return self.ceilings.get((axis, arm))

    def cannot_gain(self, axis: str, arm: str) -> bool:
        """Whether the most that it can gain would still be a tie."""
        most = self.ceiling(axis, arm)
        return most is not None and most < 1.0 + self.margin


def decide(
    observations: Sequence[Observation],
    *,
    baseline: str,
    tie_margin: float = 0.02,
    ceilings: Mapping[tuple[str, str], float] | None = None,
    labels: Mapping[str, str] | None = None,
    first: Sequence[str] = (),
) -> tuple[AxisDecision, ...]:
    """Decide every axis, then `all@c` for each concurrency with more than one workload.

    Args:
        observations: In any order. A figure that is not above 0 is left out.
        baseline: Name of the arm that runs today, of any depth.
        tie_margin: Relative difference that does not count as one.
        ceilings: (axis, arm) → the most that the arm can be faster than the baseline on that single workload, where
            that is known: with speculation off as baseline, output tokens per target pass. A pass that verifies
            drafts is not cheaper than one that does not, so a figure above it is the machine's drift and no gain.
        labels: What people call the arms, by name.
        first: Arms that go before all others where they are ties: the choice of a search of knobs.
    """
    ranks = {arm: rank for rank, arm in enumerate(first, start=-len(first))}
    depths = {o.arm: o.depth for o in observations}
    axes = _axes(observations)
    bad = _astray(axes, baseline)
    sound = [o for o in observations if o.block not in bad]
    void = None
    if sound and bad:
        axes = _axes(sound)
    elif bad:
        void = next(iter(bad.values()))
    rules = _Rules(
        baseline=baseline,
        order=tuple(sorted(depths, key=lambda arm: (ranks.get(arm, 0), depths[arm], arm))),
        margin=tie_margin,
        comparisons=sum(len({p.arm for p in a.points} - {baseline}) for a in axes),
        void=void,
        ceilings=_all_ceilings(axes, ceilings or {}),
        labels=labels or {},
    )
    return tuple(_judge(axis, rules) for axis in axes)


def astray(observations: Sequence[Observation], *, baseline: str) -> dict[str, str]:
    """Machines whose figures count nowhere, and why: what they showed of the baseline cannot be held against.

    Args:
        observations: Of the whole run.
        baseline: Name of the arm that runs today.
    """
    return _astray(_axes(observations), baseline)


def joint_levels(observations: Sequence[Observation]) -> dict[int, dict[int, float]]:
    """Per concurrency the one figure of each trial, over all workloads: what is decided by, in tok/s."""
    joint = {a.concurrency: a for a in _axes(observations)}  # `all@c` comes last and wins
    return {
        concurrency: {trial: math.exp(point.value) for trial, point in zip(axis.trials, axis.points, strict=True)}
        for concurrency, axis in joint.items()
    }


def _all_ceilings(axes: Sequence[_Axis], single: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Those of single workloads, and for `all@c` their geometric mean where every one is known."""
    found = dict(single)
    for joint in axes:
        if joint.workload != "all":
            continue
        members = [a.axis for a in axes if a.concurrency == joint.concurrency and a is not joint]
        for arm in {p.arm for p in joint.points}:
            known = [single[axis, arm] for axis in members if (axis, arm) in single]
            if len(known) == len(members):
                found[joint.axis, arm] = math.exp(math.fsum(map(math.log, known)) / len(known))
    return found


# --- from observations to axes ----------------------------------------------------------------------------


def _axes(observations: Sequence[Observation]) -> list[_Axis]:
    by_axis: dict[str, list[Observation]] = {}
    for o in observations:
        by_axis.setdefault(o.axis, []).append(o)
    singles = [_single(group) for group in by_axis.values()]
    levels = dict.fromkeys(a.concurrency for a in singles)
    grouped = [[a for a in singles if a.concurrency == c] for c in levels]
    return singles + [_together(group) for group in grouped if len(group) > 1]


def _single(group: Sequence[Observation]) -> _Axis:
    cells = {
        (o.trial, prompt): math.log(value) for o in group for prompt, value in o.values if 0.0 < value < math.inf
    }
    levels = trial_levels(cells)
    order = list(dict.fromkeys(o.block for o in group))
    kept = sorted((o for o in group if o.trial in levels), key=lambda o: (order.index(o.block), o.position_s))
    return _Axis(
        axis=group[0].axis,
        workload=group[0].workload,
        concurrency=group[0].concurrency,
        trials=tuple(o.trial for o in kept),
        points=tuple(Point(o.position_s, o.arm, levels[o.trial], o.block) for o in kept),
    )


def trial_levels(cells: Mapping[tuple[int, str], float]) -> dict[int, float]:
    """One level a trial from log figures per prompt, fair to trials in which a prompt is missing.

    Fits log y[trial, prompt] = trial + prompt + e by least squares and returns each trial's effect plus the mean
    of the prompt effects: what the trial would have shown on average over all prompts. In a full table that is the
    plain mean of the row. Trials that share no prompt, directly or through others, with the most connected group
    cannot be placed beside it and are left out.

    Args:
        cells: (trial, prompt id) → natural log of the figure.
    """
    rows: dict[int, dict[str, float]] = {}
    columns: dict[str, list[int]] = {}
    for (trial, prompt), value in cells.items():
        rows.setdefault(trial, {})[prompt] = value
        columns.setdefault(prompt, []).append(trial)
    if all(len(row) == len(columns) for row in rows.values()):
        return {trial: math.fsum(row.values()) / len(row) for trial, row in rows.items()}
    return _unbalanced_levels(*_largest_group(rows, columns))


def _largest_group(
    rows: dict[int, dict[str, float]], columns: dict[str, list[int]]
) -> tuple[dict[int, dict[str, float]], dict[str, list[int]]]:
    """The part of the table that hangs together and has the most trials (the earliest among equals)."""
    left = set(rows)
    best: set[int] = set()
    while left:
        group: set[int] = set()
        reach = {min(left)}
        while reach:
            group |= reach
            reach = {t for row in reach for prompt in rows[row] for t in columns[prompt]} - group
        left -= group
        best = group if len(group) > len(best) else best
    kept = {trial: row for trial, row in rows.items() if trial in best}
    return kept, {p: trials for p, trials in columns.items() if trials[0] in best}


def _unbalanced_levels(rows: dict[int, dict[str, float]], columns: dict[str, list[int]]) -> dict[int, float]:
    """Normal equations with the prompts eliminated; the first trial's effect is 0 and the rest are solved for."""
    order = list(rows)
    place = {trial: i for i, trial in enumerate(order)}
    size = len(order)
    table = [[0.0] * (size + 1) for _ in range(size + 1)]
    for i, trial in enumerate(order):
        table[i][i] = float(len(rows[trial]))
        table[i][size] = math.fsum(rows[trial].values())
    for prompt, trials in columns.items():
        mean = math.fsum(rows[t][prompt] for t in trials) / len(trials)
        for t in trials:
            table[place[t]][size] -= mean
            for other in trials:
                table[place[t]][place[other]] -= 1.0 / len(trials)
    for i in range(1, size):
        sweep(table, i)
    effects = {trial: table[i][size] if i else 0.0 for i, trial in enumerate(order)}
    prompts = [math.fsum(rows[t][p] - effects[t] for t in trials) / len(trials) for p, trials in columns.items()]
    level = math.fsum(prompts) / len(prompts)
    return {trial: effect + level for trial, effect in effects.items()}


def _together(group: Sequence[_Axis]) -> _Axis:
    """Equal weight per workload, built per trial; trials that miss a workload are left out."""
    tables = [dict(zip(a.trials, a.points, strict=True)) for a in group]
    trials = [t for t in tables[0] if all(t in table for table in tables)]
    points = [_mean_point([table[t] for table in tables]) for t in trials]
    order = list(dict.fromkeys(p.block for p in points))
    in_time = sorted(zip(trials, points, strict=True), key=lambda pair: (order.index(pair[1].block), pair[1].at_s))
    return _Axis(
        axis=f"all@{group[0].concurrency}",
        workload="all",
        concurrency=group[0].concurrency,
        trials=tuple(t for t, _ in in_time),
        points=tuple(p for _, p in in_time),
    )


def _mean_point(points: Sequence[Point]) -> Point:
    n = len(points)
    at_s, value = math.fsum(p.at_s for p in points) / n, math.fsum(p.value for p in points) / n
    return Point(at_s, points[0].arm, value, points[0].block)


def _astray(axes: Sequence[_Axis], baseline: str) -> dict[str, str]:
    """By machine: why nothing measured there can be ranked. Of several, one without a baseline is out as well."""
    blocks = dict.fromkeys(block for axis in axes for block in axis.blocks)
    found = {}
    for block in blocks:
        within = [part for axis in axes if (part := axis.within(block)).points]
        reason = _void(within, baseline)
        if reason is None and len(blocks) > 1 and not all(part.of(baseline) for part in within):
            reason = "its baseline was not measured"
        if reason is not None:
            found[block] = reason
    return found


def _void(axes: Sequence[_Axis], baseline: str) -> str | None:
    """Whether the machine itself changed in mid-run, seen on all workloads of a concurrency together."""
    joint = {a.concurrency: a for a in axes}  # `all@c` comes last and wins
    for axis in joint.values():
        shift = find_shift(axis.points)
        if shift is not None:
            if shift.gain > SHIFT_GAIN and abs(math.log(shift.ratio)) > math.log1p(SHIFT_SIZE):
                where = f"between trials {axis.trials[shift.after]} and {axis.trials[shift.after + 1]}"
                return f"everything became {_faster(shift.ratio)} {where}: drift beyond noise voids the ranking"
            continue
        pair = axis.of(baseline)
        if len(pair) > 1:
            moved = pair[-1].value - pair[0].value
            if abs(moved) > t_quantile(1.0 - PAIR_RISK / 2.0, PRIOR_DF) * PRIOR_SD * math.sqrt(2.0):
                change = f"the baseline ended {_faster(math.exp(moved))} {load(axis.concurrency)}"
                return f"{change}: drift beyond noise voids the ranking"
    return None


def _faster(ratio: float) -> str:
    return f"{abs(ratio - 1.0):.0%} {'faster' if ratio > 1.0 else 'slower'}"


# --- one axis ---------------------------------------------------------------------------------------------


def _judge(axis: _Axis, rules: _Rules) -> AxisDecision:
    measured = [arm for arm in rules.order if axis.of(arm)]
    fit = fit_arms(axis.points) if axis.points else None
    values = _values(axis, measured, fit, rules.baseline)
    ratios: dict[str, Interval] = {}
    best: str | None = None
    ties: tuple[str, ...] = ()
    if fit is not None:
        best, ties = _best(axis.axis, fit, measured, rules)
        if rules.baseline in values:
            ratios = _ratios(axis.axis, fit, measured, rules)
    verdict, choice, because = _verdict(axis, fit, ratios, best, ties, rules)
    return AxisDecision(
        axis=axis.axis,
        workload=axis.workload,
        concurrency=axis.concurrency,
        unit="tok/s",
        baseline=values.get(rules.baseline),
        values=values,
        ratios=ratios,
        best=best,
        choice=choice,
        ties=ties,
        verdict=verdict,
        because=because,
        noise=fit.noise if fit else None,
        drift=_drift(axis.of(rules.baseline), fit),
        void=rules.void,
        margin=rules.margin,
    )


def _values(axis: _Axis, measured: Sequence[str], fit: ArmFit | None, baseline: str) -> dict[str, float]:
    """Geometric means; over several machines the baseline's, and each arm's by its ratio within them."""
    means = {arm: math.fsum(p.value for p in axis.of(arm)) / len(axis.of(arm)) for arm in measured}
    if fit is not None and len(axis.blocks) > 1 and baseline in means:
        own = means[baseline]
        means = {arm: own + fit.contrast(arm, baseline).estimate for arm in measured}
    return {arm: math.exp(min(mean, 700.0)) for arm, mean in means.items()}


def _best(axis: str, fit: ArmFit, measured: Sequence[str], rules: _Rules) -> tuple[str, tuple[str, ...]]:
    """The highest arm, and all that could be it: Hsu's multiple comparisons with the best, by Bonferroni.

    An arm that cannot gain is not the best, whatever its figure; then it is a tie of the baseline at most.
    """
    able = [arm for arm in measured if not rules.cannot_gain(axis, arm)] or list(measured)
    best = max(able, key=lambda arm: fit.contrast(arm, measured[0]).estimate)
    tail = ERROR_RATE / 2.0 / max(len(measured) - 1, 1)
    within = math.log1p(rules.margin)
    ties = []
    for arm in measured:
        short = fit.contrast(best, arm)
        if short.estimate < within or short.bounds(tail)[0] <= 0.0:
            ties.append(arm)
    return best, tuple(ties)


def _ratios(axis: str, fit: ArmFit, measured: Sequence[str], rules: _Rules) -> dict[str, Interval]:
    """Against the baseline.

    An interval that lies above what the arm can gain is widened down to it: the noise was underestimated.
    """
    tail = ERROR_RATE / 2.0 / max(rules.comparisons, 1)
    found = {}
    for arm in measured:
        if arm != rules.baseline:
            contrast = fit.contrast(arm, rules.baseline)
            low, high = contrast.bounds(tail)
            most = rules.ceiling(axis, arm)
            if most is not None:
                low = min(low, 0.0 if rules.cannot_gain(axis, arm) else math.log(most))
            found[arm] = _interval(contrast.estimate, low, high)
    return found


def _interval(ratio: float, low: float, high: float) -> Interval:
    """From logs, held within the range of floats."""
    return Interval(**{k: math.exp(min(v, 700.0)) for k, v in (("ratio", ratio), ("low", low), ("high", high))})


def _drift(baseline: Sequence[Point], fit: ArmFit | None) -> Interval | None:
    """Of the baseline; of several machines that which moved most."""
    ends: dict[str, list[Point]] = {}
    for point in baseline:
        ends.setdefault(point.block, []).append(point)
    moves = [own[-1].value - own[0].value for own in ends.values() if len(own) > 1]
    if fit is None or not moves:
        return None
    moved = max(moves, key=abs)
    reach = t_quantile(0.975, fit.df) * fit.noise * math.sqrt(2.0)
    return _interval(moved, moved - reach, moved + reach)


def _verdict(
    axis: _Axis,
    fit: ArmFit | None,
    ratios: dict[str, Interval],
    best: str | None,
    ties: Sequence[str],
    rules: _Rules,
) -> tuple[Verdict, str | None, str]:
    where = load(axis.concurrency) + ("" if axis.workload == "all" else f" on {axis.workload}")
    unsettled = f"nothing is settled {where}: "
    starts = len(axis.of(rules.baseline))
    if fit is None or best is None or starts < 2:
        often = ("never", "only once")[starts]
        return Verdict.INCONCLUSIVE, None, f"{unsettled}the baseline was {often} measured"
    if not ratios:
        return Verdict.INCONCLUSIVE, None, f"{unsettled}nothing but the baseline was measured"
    if rules.void is not None:
        return Verdict.INCONCLUSIVE, None, unsettled + rules.void
    better = [arm for arm, ratio in ratios.items() if ratio.better(rules.margin)]
    if better:
        choice = next((arm for arm in ties if arm in better), better[0])
        level = [rules.label(arm) for arm in ties if arm != choice]
        also = f"; {level_with(level)}" if level else ""
        return Verdict.BETTER, choice, f"{rules.label(choice)} is {ratios[choice]} the baseline {where}{also}"
    if all(rules.cannot_gain(axis.axis, arm) for arm in ratios):
        most = max(rules.ceilings[axis.axis, arm] for arm in ratios)
        few = f"its drafts are accepted too rarely, {most:.2f} tokens a pass at most"
        return Verdict.KEEP, rules.baseline, f"nothing is better than {rules.label(rules.baseline)} {where}: {few}"
    top = max(ratios, key=lambda arm: ratios[arm].ratio)
    figure = f"the best other, {rules.label(top)}, is {ratios[top]}"
    if all(fit.contrast(arm, rules.baseline).bounds(ERROR_RATE)[1] < math.log1p(PRACTICAL_GAIN) for arm in ratios):
        unlikely = f"a gain of {PRACTICAL_GAIN:.0%} is unlikely for any"
        kept = f"nothing is better than {rules.label(rules.baseline)} {where}: {figure}; {unlikely}"
        return Verdict.KEEP, rules.baseline, kept
    return Verdict.INCONCLUSIVE, None, f"{unsettled}{figure}, too wide to call; more rounds narrow it"
