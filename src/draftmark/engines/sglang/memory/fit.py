"""The verdict on every arm: does it start, and with how many tokens, state slots and requests at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from draftmark.engines.sglang.memory import levers, words
from draftmark.engines.sglang.memory.anatomy import Anatomy, Draft
from draftmark.engines.sglang.memory.budget import Budget
from draftmark.engines.sglang.memory.cell import Cell, cell_of
from draftmark.engines.sglang.memory.pools import Pools, budget_for, solve
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.engines.sglang.memory.slack import Slack, slack_of
from draftmark.engines.sglang.memory.state import StateCost, cost_of
from draftmark.model import Arm, FitArm, FitFigures

MIB = float(1 << 20)
_BYTES = 4096.0  # far below what a token takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that one arm's verdict follows from.

    Attributes:
        others: Rules that could hold as well.
        otherwise: Settings that could be in force as well.
        fraction: `--mem-fraction-static` in force; `fraction_spread`: by which a default may be off.
        extra_spread: Bytes by which the budget may be off on top, for what is not modelled.
        wanted: Bytes that CUDA graphs will take, and whether a log says so.
    """

    rules: Rules
    others: tuple[Rules, ...]
    settings: Settings
    model: Anatomy
    draft: Draft | None
    budget: Budget
    fraction: float
    fraction_spread: float
    extra_spread: float
    wanted: tuple[float, bool]
    environment: dict[str, str]
    otherwise: tuple[Settings, ...] = ()

    def under(self, rules: Rules) -> Case:
        """The same service under another release's accounting."""
        return replace(self, rules=rules, others=(), otherwise=())

    def possible(self) -> Iterator[Case]:
        """What it is, and what else it may be."""
        yield self
        yield from (self.under(rules) for rules in self.others)
        yield from (replace(self, settings=each, others=(), otherwise=()) for each in self.otherwise)

    def parts(self) -> tuple[Cell, StateCost | None]:
        """What a token and a state cost."""
        cell = cell_of(self.rules, self.settings, self.model, self.draft)
        if self.model.state is None:
            return cell, None
        return cell, cost_of(self.rules, self.settings, self.model.state, self.model.architecture, self.environment)

    def reserved(self) -> float:
        """What a multimodal model's run time takes out of the budget."""
        if not self.model.multimodal or not self.rules.multimodal_reserve:
            return 0.0
        return self.rules.multimodal_reserve["cache"] * MIB

    def available(self) -> float:
        """The budget."""
        return self.budget.of(self.rules, self.settings, self.fraction) - self.reserved()

    def uncertainty(self) -> tuple[float, float]:
        """By how much the budget may be lower, and higher."""
        either = self.budget.uncertainty(self.rules, self.settings, self.fraction) + self.extra_spread
        either += self.fraction_spread * self.budget.pre
        lower = self.rules.multimodal_reserve.get("transport", 0) * MIB if self.model.multimodal else 0.0
        return either + lower, either

    def pools(self, budget: float) -> Pools:
        """What a budget gives."""
        cell, cost = self.parts()
        return solve(self.rules, self.settings, cell, cost, budget, self.model.context)

    def interval(self, pools: Pools) -> tuple[float, float]:
        """The budgets that give these pools."""
        cell, cost = self.parts()
        return budget_for(self.rules, self.settings, cell, cost, pools)

    def slack(self, pools: Pools) -> Slack:
        """What is left beside the pools."""
        cell, cost = self.parts()
        free = (1 - self.fraction) * self.budget.pre + self.reserved()
        if not self.rules.draft_resident:
            free -= self.budget.draft if self.settings.algorithm not in (None, "NGRAM") else 0
        return slack_of(self.settings, cell, cost, pools, free, self.wanted, self.model.context)


def judge(arm: Arm, case: Case) -> FitArm:
    """The verdict on one arm."""
    budget = case.available()
    pools = case.pools(budget)
    slack = case.slack(pools)
    lower, higher = case.uncertainty()
    possible = [
        (each, each.pools(amount))
        for each in case.possible()
        for amount in _amounts(each, each.available(), lower, higher)
    ]
    outcomes = [found for _, found in possible]
    fits = _fits(outcomes, [each.slack(found) for each, found in possible])
    figures = _figures(pools) if pools.starts and fits is not False else FitFigures()
    low, high = _bounds(outcomes) if fits is not False else (FitFigures(), FitFigures())
    return FitArm(
        arm=arm,
        fits=fits,
        figures=figures,
        low=low,
        high=high,
        binding=_binding(budget, pools, slack),
        because=tuple(words.arithmetic(case, budget, pools, slack)),
        to_get_more=tuple(levers.levers(case, pools, slack)),
    )


def _amounts(case: Case, budget: float, lower: float, higher: float) -> Iterator[float]:
    """Budgets by which the least and the most can be told.

    Tokens do not only grow with the budget: where it buys one state slot more, they fall by what that takes, and by
    what another request's verification takes where that can run then. So the first and the last budgets of either
    kind count as well, on both sides.
    """
    low, high = budget - lower, budget + higher
    yield from (low, budget, high)
    least, most, cost = case.pools(low).slots, case.pools(high).slots, case.parts()[1]
    if least is None or most is None or cost is None or least >= most:
        return
    each = cost.per_request
    for slots in {least + 1, -(-(least + 1) // each) * each, most, most // each * each}:
        if least < slots <= most:
            yield from _step(case, low, high, slots)


def _step(case: Case, low: float, high: float, slots: int) -> tuple[float, float]:
    """Budgets on both sides of the one that buys so many slots, a few bytes apart."""
    while high - low > _BYTES:
        middle = (low + high) / 2
        low, high = (low, middle) if (case.pools(middle).slots or 0) >= slots else (middle, high)
    return low, high


def _fits(outcomes: Sequence[Pools], slacks: Sequence[Slack]) -> bool | None:
    """What all that is possible agrees on; None where it does not."""
    verdicts = {slack.enough if pools.starts else False for pools, slack in zip(outcomes, slacks, strict=True)}
    return verdicts.pop() if len(verdicts) == 1 else None


def _figures(pools: Pools) -> FitFigures:
    return FitFigures(kv_tokens=pools.tokens, max_running_requests=pools.running, state_slots=pools.slots)


def _bounds(outcomes: Sequence[Pools]) -> tuple[FitFigures, FitFigures]:
    """Least and most of each figure; a start that fails has none of anything."""
    pairs: list[tuple[int, int] | None] = []
    for name in ("tokens", "running", "slots"):
        values = [getattr(each, name) for each in outcomes]
        pairs.append(None if None in values else (max(0, min(values)), max(0, max(values))))
    low, high = ([None if pair is None else pair[end] for pair in pairs] for end in (0, 1))
    return (
        FitFigures(kv_tokens=low[0], max_running_requests=low[1], state_slots=low[2]),
        FitFigures(kv_tokens=high[0], max_running_requests=high[1], state_slots=high[2]),
    )


def _binding(budget: float, pools: Pools, slack: Slack) -> str:
    if budget <= 0:
        return "weights"
    if pools.slots is not None and (pools.slots <= 0 or pools.left <= 0 or pools.running <= 0):
        return "state-slots"
    if not pools.starts:
        return "kv-tokens"
    if slack.enough is not True:
        return "graphs"
    return pools.limit
