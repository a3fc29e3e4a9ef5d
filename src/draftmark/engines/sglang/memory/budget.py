"""How many bytes SGLang has for its pools: from a card and weights, or from what a boot log tells. Pure.

Source: 14:…kv_cache_mixin.py:85-120. rest = free after loading - free before loading * (1 - fraction), per rank;
here the same as fraction * pre - resident, where `pre` is what was free before loading and `resident` what came to
stay since.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftmark.engines.sglang.memory import cards
from draftmark.engines.sglang.memory.anatomy import Anatomy, Draft
from draftmark.engines.sglang.memory.cards import GIB, MIB
from draftmark.engines.sglang.memory.loading import Loading, loading_of
from draftmark.engines.sglang.memory.pools import Pools
from draftmark.engines.sglang.memory.rules import Rules
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.engines.sglang.memory.weights import placed_bytes
from draftmark.model import Gpu

if TYPE_CHECKING:
    from draftmark.engines.sglang.log.nouns import BootLog

_PRINTED = 0.005 * GIB  # half of the last digit
_APART = 0.1 * GIB  # what two ways to `pre` may differ by
_MINIMUM = re.compile(r"minimum viable = 1 - available/pre = (0\.\d{3,6})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Memory of one rank, bytes.

    Attributes:
        pre: Free before loading.
        target: What came to stay before the pools are sized, the draft's weights not among it.
        draft: The draft's weights; 0 without one.
        spread: By which `target` may be off either way, when `fraction` is that of the boot it comes from.
        pre_spread: By which `pre` may be off; counts as far as a fraction differs from `fraction`.
        draft_spread: By which `draft` may be off.
        fraction: Of the boot log; None without one.
        with_draft: Whether that boot's figures have the draft's weights in them; None without a boot.
    """

    pre: float
    target: float
    draft: float
    spread: float
    pre_spread: float
    draft_spread: float
    fraction: float | None = None
    with_draft: bool | None = None

    def of(self, rules: Rules, settings: Settings, fraction: float) -> float:
        """The budget of one arm."""
        return fraction * self.pre - self.target - self.resident_draft(rules, settings)

    def uncertainty(self, rules: Rules, settings: Settings, fraction: float) -> float:
        """By how much that may be off either way."""
        away = fraction if self.fraction is None else abs(fraction - self.fraction)
        drafts = self.resident_draft(rules, settings) > 0
        told = drafts == self.with_draft if self.with_draft is not None else not drafts
        return self.spread + away * self.pre_spread + (0.0 if told else self.draft_spread)

    def resident_draft(self, rules: Rules, settings: Settings) -> float:
        """Of the draft's weights, what is there when the pools are sized. N-grams have none."""
        return self.draft if rules.draft_resident and has_draft_weights(settings) else 0.0


UNKNOWN = Budget(pre=0.0, target=0.0, draft=0.0, spread=0.0, pre_spread=0.0, draft_spread=0.0)
"""Before it is known."""


def has_draft_weights(settings: Settings) -> bool:
    """Whether this arm loads a draft model."""
    return settings.algorithm is not None and settings.algorithm != "NGRAM"


def from_card(gpu: Gpu, settings: Settings, model: Anatomy, draft: Draft | None) -> Budget:
    """From the card's size and the weights' alone."""
    group = settings.tp * settings.pp > 1
    before = cards.BEFORE_LOADING + (cards.GROUP if group else 0)
    known = gpu.total_mib == cards.MEASURED_MIB
    pre_spread = cards.MEASURED_SPREAD if known else cards.BEFORE_LOADING_SPREAD
    pre_spread += cards.GROUP_SPREAD if group else 0
    pre = gpu.total_mib * MIB - before
    if gpu.free_mib is not None and gpu.free_mib * MIB < pre + before - cards.BEFORE_LOADING_SPREAD:
        pre -= gpu.total_mib * MIB - gpu.free_mib * MIB  # others hold the rest
    share = 1 / settings.pp
    weights, spread = draft_bytes(draft)
    return Budget(
        pre=pre,
        target=model.weights.bytes * share + cards.UNPRINTED,
        draft=weights,
        spread=model.weights.bytes * share * model.weights.spread,
        pre_spread=pre_spread,
        draft_spread=spread,
    )


def draft_bytes(draft: Draft | None) -> tuple[float, float]:
    """What a draft's weights take once they are placed, and by how much that may be off."""
    if draft is None or draft.weights is None:
        return 0.0, 0.0
    if draft.weights.sizes:
        placed, spread = placed_bytes(draft.weights.sizes)
        return float(placed), float(spread)
    return float(draft.weights.bytes), draft.weights.bytes * draft.weights.spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A budget from a boot log.

    Attributes:
        exact: The pools that it allocated are in it, so that its own figures come out again.
        remarks: What did not fit together, in words.
    """

    budget: Budget
    exact: bool
    remarks: tuple[str, ...] = ()


def from_boot(
    boot: BootLog,
    rules: Rules,
    settings: Settings,
    fraction: float,
    draft: Draft | None,
    solve: Callable[[float], Pools],
    interval: Callable[[Pools], tuple[float, float]],
) -> Calibration | None:
    """From a boot log; None when not even the weights are in it.

    Settings and fraction are those of the boot itself; `solve` gives the pools of a budget under them, `interval`
    the budgets that give the pools that were allocated.
    """
    speculates = has_draft_weights(settings)
    resident = speculates and rules.draft_resident
    loading = loading_of(boot, resident=resident)
    if not 0 < fraction < 1 or not isinstance(loading, Loading):
        return None
    weights, draft_spread = _logged_draft(loading, draft, speculates)
    at_sizing, sizing_spread = loading.target, _PRINTED
    if resident:
        at_sizing = loading.draft if loading.draft is not None else at_sizing - weights
        sizing_spread += draft_spread if loading.draft is None else 0.0
    known = _before(boot, loading, at_sizing, sizing_spread)
    if known is None:
        return None
    pre, pre_spread = known
    at_sizing, sizing_spread, remarks = _by_message(boot, at_sizing, sizing_spread, pre)
    rough = at_sizing - (1 - fraction) * pre
    budget = Budget(
        pre=pre,
        target=0.0,
        draft=weights,
        spread=sizing_spread + (1 - fraction) * pre_spread,
        pre_spread=pre_spread,
        draft_spread=draft_spread,
        fraction=fraction,
        with_draft=speculates and rules.draft_resident,
    )
    pools = _allocated(boot, settings, solve(rough))
    if pools is None:
        return Calibration(
            budget=_fixed(budget, rules, settings, fraction, rough),
            exact=False,
            remarks=(*remarks, *_two_totals(boot, settings)),
        )
    low, high = interval(pools)
    exact = _exact(low, high, pools, solve)
    if exact is None or abs(exact - rough) > max(0.5 * GIB, 4 * budget.spread):
        told = f"{pools.tokens:,} tokens" + (f" and {pools.slots} state slots" if pools.slots is not None else "")
        return Calibration(
            budget=dataclasses.replace(
                _fixed(budget, rules, settings, fraction, rough),
                spread=budget.spread + abs((exact or low) - rough),
            ),
            exact=False,
            remarks=(
                *remarks,
                f"the log's {told} do not follow from its free memory by the accounting of SGLang {rules.version}: "
                "another version, or a flag that is not modelled",
            ),
        )
    refined = (at_sizing - exact) / (1 - fraction)
    if abs(refined - pre) <= max(3 * pre_spread, 0.2 * GIB):
        budget = dataclasses.replace(budget, pre=refined, pre_spread=_PRINTED / (1 - fraction))
    budget = dataclasses.replace(budget, spread=(high - low) / 2)
    return Calibration(budget=_fixed(budget, rules, settings, fraction, exact), exact=True)


def _fixed(budget: Budget, rules: Rules, settings: Settings, fraction: float, amount: float) -> Budget:
    """The same, so that this start's budget is `amount`."""
    return dataclasses.replace(
        budget, target=fraction * budget.pre - amount - budget.resident_draft(rules, settings)
    )


def _before(boot: BootLog, loading: Loading, at_sizing: float, off: float) -> tuple[float, float] | None:
    """`pre`, and by how much it may be off: as printed before loading, or by the message of a start that failed.

    That gives 1 - available/pre to four digits, and counts where it agrees with what is printed.
    """
    printed = None if loading.before is None else loading.before + cards.UNPRINTED
    for failure in boot.failures:
        found = _MINIMUM.search(failure.text)
        if found is None or (share := 1 - float(found[1])) <= 0:
            continue
        pre, spread = at_sizing / share, off / share + at_sizing * 0.00005 / share**2
        if printed is None or (abs(pre - printed) <= spread + _APART and spread < _APART):
            return pre, spread
    return None if printed is None else (printed, 2 * _PRINTED + cards.UNPRINTED / 4)


def _by_message(boot: BootLog, at_sizing: float, off: float, pre: float) -> tuple[float, float, tuple[str, ...]]:
    """What was free when the pools were sized, by the message of a start that failed where that says otherwise.

    Bounds cover what the loads left as well: what took the difference may be gone at another start.
    """
    for failure in boot.failures:
        found = _MINIMUM.search(failure.text)
        if found is None:
            continue
        told = (1 - float(found[1])) * pre
        if abs(told - at_sizing) > off + 0.00005 * pre + _APART:
            words = (
                f"{told / GIB:.2f} GiB were free when the pools were sized, by the log's last message, and "
                f"{at_sizing / GIB:.2f} once everything was loaded: something else took memory in between, and the "
                "bounds cover both"
            )
            return told, off + abs(told - at_sizing), (words,)
    return at_sizing, off, ()


def _two_totals(boot: BootLog, settings: Settings) -> tuple[str, ...]:
    """Two numbers of tokens in the log of a single rank."""
    own = [line for line in boot.kv if line.of == "target" and line.label is None]
    if not boot.summary or not own or boot.swa or settings.tp * settings.pp > 1:
        return ()
    pool, told = own[0].tokens, boot.summary.max_total_num_tokens
    if pool == told:
        return ()
    return (
        f"the log contradicts itself: its pool has {pool:,} tokens, and max_total_num_tokens is {told:,}: neither "
        "is taken, and the figures go by its free memory",
    )


def _logged_draft(loading: Loading, draft: Draft | None, speculates: bool) -> tuple[float, float]:
    """The draft's weights: as computed where the log agrees to its two digits, else as logged."""
    computed, spread = draft_bytes(draft)
    logged = loading.draft_weights
    if not speculates or logged is None:
        return computed, spread
    if abs(computed - logged) <= 1.5 * _PRINTED:
        return computed, 2 * _PRINTED
    return logged, 2 * _PRINTED


def _allocated(boot: BootLog, settings: Settings, guess: Pools) -> Pools | None:
    """What was allocated; None where it is not told, or was not decided by memory."""
    own = [line for line in boot.kv if line.of == "target" and line.label is None]
    tokens = boot.summary.max_total_num_tokens if boot.summary else own[0].tokens if own else None
    if boot.summary and own and not boot.swa and settings.pp == 1 and own[0].tokens != tokens:
        return None  # the least of all ranks, or a damaged line: what this one's memory gave is not told
    if not boot.summary and boot.swa:
        tokens = boot.swa[0].full_tokens
    slots = boot.mamba.max_mamba_cache_size if boot.mamba else None
    if tokens is None or (guess.slots is not None) != (slots is not None):
        return None
    if (
        settings.max_total_tokens is not None
        and tokens >= settings.max_total_tokens // settings.page_size * settings.page_size
    ):
        return None
    return dataclasses.replace(guess, tokens=tokens, slots=slots)


def _exact(low: float, high: float, pools: Pools, solve: Callable[[float], Pools]) -> float | None:
    """A budget from which the same tokens and slots come out; the middle of those that do."""
    tried = [low + (high - low) * step / 16 for step in range(1, 16)]
    good = [each for each in tried if (again := solve(each)).tokens == pools.tokens and again.slots == pools.slots]
    return good[len(good) // 2] if good else None
