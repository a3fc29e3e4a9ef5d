"""How many drafts are accepted at a depth that was not tried, from what was counted at one that was. Pure.

With a chain of drafts the first j are accepted or not whatever is drafted behind them. So rounds counted at
depth d, by the number of drafts accepted, tell P(accepted >= j) for every j up to d, and with it the accept
length of every shallower depth k without an assumption about how acceptance falls:

    accept length(k) = 1 + sum over j = 1..k of P(accepted >= j)

Deeper than d there is only a trend: the conditional acceptances a_j = P(>= j) / P(>= j - 1) are carried on, and the
interval widens with every step. docs/search.md says what holds for trees, for n-gram drafters and for servers that
tell less than a histogram.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from draftmark.model import Acceptance

_TREE_SPREAD = 0.10  # sd of the log accept length at another depth, where drafts branch
_LENGTH_SD = 0.015  # sd of the log of an accept length that came without counts
_RESIDUAL = 0.15  # sd of a position's logit around the trend of its neighbours
_TREND = (-0.06, 0.12)  # mean and sd of the logit's change from one position to the next
_TREND_FROM = 4  # positions at the deep end that the trend is read from
_PRIOR_ROUNDS = 1.5  # rounds' worth of belief that a position is like the one before it
_FLOOR, _CEILING = 1e-4, 1.0 - 1e-4
_TAIL = 0.025
_DRAWS = 800


class Basis(StrEnum):
    """What an accept length rests on, from firm to loose."""

    COUNTED = "counted"  # rounds were counted at this depth, or at a deeper one: the chain rule is exact
    TOLD = "told"  # the accept length of this depth was told, without counts
    SHAPED = "shaped"  # an accept length of another depth, and an assumed fall over the positions
    EXTRAPOLATED = "extrapolated"  # deeper than what was counted
    ASSUMED = "assumed"  # nothing was counted anywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceEvidence:
    """What one trial told of its drafts.

    Attributes:
        depth: Drafts proposed a round.
        reached: Rounds in which at least j drafts were accepted, j = 0 … depth; empty where nobody counted.
        accept_len: Tokens a round, the bonus token included.
        undrafted: Share of the tokens that came one by one, from passes without a draft: they are not in `reached`.
        tree: Drafts branch (topk above 1), so that the chain rule is no more than a guide.
        source: Where it comes from, in words.
    """

    depth: int
    reached: tuple[float, ...] = ()
    accept_len: float | None = None
    undrafted: float = 0.0
    tree: bool = False
    source: str = ""

    @property
    def length(self) -> float | None:
        """Tokens a round: as told, else by the counts."""
        if self.accept_len is not None:
            return self.accept_len
        return sum(self.reached) / self.reached[0] if self.reached else None

    @property
    def rounds(self) -> float:
        """Rounds counted."""
        return self.reached[0] if self.reached else 0.0


def from_histogram(depth: int, histogram: Sequence[float], *, tree: bool = False) -> AcceptanceEvidence:
    """From rounds by the number of drafts accepted in them, from none on, as SGLang tells with each answer.

    Drafts shorter than the depth, as n-gram drafters make them, change nothing: cut to k tokens such a draft has
    min(accepted, k) of them accepted. Rounds without a draft count as rounds with none accepted, if the engine
    counts them at all.

    Args:
        depth: Drafts proposed a round.
        histogram: Rounds with 0, 1, … accepted; missing ends are zeros, more than `depth` count as that.
        tree: Drafts branch.
    """
    counts = [0.0] * (depth + 1)
    for accepted, rounds in enumerate(histogram):
        counts[min(accepted, depth)] += max(float(rounds), 0.0)
    reached = [math.fsum(counts[j:]) for j in range(depth + 1)]
    if not reached[0]:
        return AcceptanceEvidence(depth=depth, tree=tree, source="no round was counted")
    return AcceptanceEvidence(depth=depth, reached=tuple(reached), tree=tree, source="rounds by drafts accepted")


def from_positions(
    depth: int, drafts: float, accepted: Sequence[float], *, undrafted: float = 0.0
) -> AcceptanceEvidence:
    """From accepted drafts by their position, as vLLM counts them (and recent llama-servers).

    Args:
        depth: Drafts proposed a round.
        drafts: Rounds that had a draft. Rounds without one are not in these counters.
        accepted: How often the first, second, … draft was accepted.
        undrafted: Share of the tokens that came from rounds without a draft.
    """
    reached = [float(drafts)]
    for count in [*accepted, *[0.0] * depth][:depth]:
        reached.append(min(max(float(count), 0.0), reached[-1]))
    if drafts <= 0:
        return AcceptanceEvidence(depth=depth, source="no draft was counted")
    return AcceptanceEvidence(
        depth=depth, reached=tuple(reached), undrafted=undrafted, source="accepted drafts by position"
    )


def from_totals(depth: int, drafted: float, accepted: float) -> AcceptanceEvidence:
    """From tokens drafted and accepted alone, as llama-server tells with each answer.

    Weaker in two ways: drafts are taken to be full length (a drafter that stops early is credited with fewer rounds
    than it had), and how acceptance falls over the positions has to be assumed.
    """
    if drafted <= 0 or depth <= 0:
        return AcceptanceEvidence(depth=depth, source="no draft was counted")
    share = min(max(accepted / drafted, 0.0), 1.0)
    return AcceptanceEvidence(depth=depth, accept_len=1.0 + depth * share, source="drafted and accepted tokens")


def from_length(depth: int, accept_len: float, *, tree: bool = False) -> AcceptanceEvidence:
    """From an accept length alone: how acceptance falls over the positions has to be assumed."""
    length = min(max(accept_len, 1.0), depth + 1.0)
    return AcceptanceEvidence(depth=depth, accept_len=length, tree=tree, source="accept length")


def from_measurement(depth: int, told: Acceptance, *, tree: bool = False) -> AcceptanceEvidence:
    """From what a load run saw: its histogram, else the drafts accepted by position, else its totals.

    Where rounds without a draft are common (n-gram drafters), tokens per pass of the target is what speed follows.
    Where positions are counted, such rounds are told apart: their tokens are the same at every depth. Elsewhere
    tokens per pass replaces the accept length.
    """
    counted = from_histogram(depth, told.histogram, tree=tree) if told.histogram else None
    passes = told.tokens_per_step
    if counted is not None and counted.reached:
        return counted
    if told.drafts and told.by_position and depth and not tree:
        alone = (told.output_tokens or 0) - (told.accepted_tokens or 0) - told.drafts
        share = max(alone, 0) / told.output_tokens if told.output_tokens else 0.0
        return from_positions(depth, told.drafts, told.by_position, undrafted=min(share, 1.0))
    if passes is not None and depth:
        return from_length(depth, passes, tree=tree)
    if told.accept_len is not None and depth:
        return from_length(depth, told.accept_len, tree=tree)
    return from_totals(depth, told.drafted_tokens or 0, told.accepted_tokens or 0)


@dataclass(frozen=True, slots=True)
class AcceptLength:
    """An accept length with a 95 % interval, and what it rests on."""

    mean: float
    low: float
    high: float
    basis: Basis


class AcceptanceModel:
    """Accept lengths of all depths, from the evidence of some. The same evidence gives the same figures.

    Args:
        evidence: Of the trials so far, in any order; depth 0 tells nothing.
        trees: Whether drafts branch at the depths asked for.
    """

    def __init__(self, evidence: Sequence[AcceptanceEvidence], *, trees: bool = False) -> None:
        useful = [e for e in evidence if e.depth > 0 and e.length is not None]
        self._evidence = useful
        self._counted = [e for e in useful if e.reached and not e.tree]
        self._told = sorted((e for e in useful if not e.reached or e.tree), key=lambda e: e.depth)
        self._trees = trees or any(e.tree for e in useful)
        self._counts = _pooled(self._counted)
        rounds = math.fsum(e.rounds for e in self._counted)
        self.undrafted = math.fsum(e.undrafted * e.rounds for e in self._counted) / rounds if rounds else 0.0
        self._spread = max(_TREE_SPREAD if self._trees else 0.0, self._disagreement())

    @property
    def known_to(self) -> int:
        """The deepest depth whose rounds were counted; 0 where none were."""
        return len(self._counts)

    @property
    def spread(self) -> float:
        """By how much, as an sd of logs, depths are believed to depart from the chain rule."""
        return self._spread

    def basis(self, depth: int) -> Basis:
        """What the accept length of a depth rests on."""
        if depth == 0 or (depth <= self.known_to and not self._trees):
            return Basis.COUNTED
        if any(e.depth == depth for e in self._evidence):
            return Basis.TOLD
        if self.known_to:
            return Basis.EXTRAPOLATED if depth > self.known_to else Basis.SHAPED
        return Basis.SHAPED if self._evidence else Basis.ASSUMED

    def length(self, depth: int) -> AcceptLength:
        """The accept length of a depth, with the interval that its evidence allows: of rounds with a draft."""
        rng = Random(17)  # noqa: S311 - draws of a simulation
        draws, weights = self._drafted((depth,), _DRAWS, rng)
        pairs = sorted(zip((draw[0] for draw in draws), weights, strict=True))
        mean = math.fsum(value * weight for value, weight in pairs)
        return AcceptLength(mean, _quantile(pairs, _TAIL), _quantile(pairs, 1.0 - _TAIL), self.basis(depth))

    def draws(self, depths: Sequence[int], count: int, rng: Random) -> tuple[list[tuple[float, ...]], list[float]]:
        """Tokens per pass that the evidence allows: so many draws for all depths together, and their weights.

        Returns:
            One tuple a draw, a value a depth; weights that add up to 1.
        """
        found, weights = self._drafted(depths, count, rng)
        return [tuple(self._per_pass(length) for length in draw) for draw in found], weights

    def per_pass(self, depth: int) -> float:
        """Tokens per pass of the target, rounds without a draft among them."""
        return self._per_pass(self.length(depth).mean) if depth else 1.0

    def _per_pass(self, length: float) -> float:
        """Tokens of rounds without a draft come one a pass at every depth."""
        return 1.0 / (self.undrafted + (1.0 - self.undrafted) / length)

    def _drafted(
        self, depths: Sequence[int], count: int, rng: Random
    ) -> tuple[list[tuple[float, ...]], list[float]]:
        """The same of rounds with a draft: accept lengths."""
        deepest = max([*depths, *(e.depth for e in self._evidence), 1])
        found, logs = [], []
        for _ in range(count):
            lengths = _lengths(self._chain(deepest, rng))
            logs.append(self._log_weight(lengths))
            found.append(tuple(self._one(depth, lengths, rng) for depth in depths))
        top = max(logs)
        weights = [math.exp(value - top) for value in logs]
        whole = math.fsum(weights)
        return found, [weight / whole for weight in weights]

    def _one(self, depth: int, lengths: Sequence[float], rng: Random) -> float:
        """The depth's own evidence goes before the chain rule wherever the two may differ."""
        if depth == 0:
            return 1.0
        own = next((e for e in self._evidence if e.depth == depth), None)
        if own is not None and own.length is not None and (self._spread or not own.reached):
            return min(max(own.length * math.exp(rng.gauss(0.0, _LENGTH_SD)), 1.0), depth + 1.0)
        if self._spread:
            return min(max(lengths[depth] * math.exp(rng.gauss(0.0, self._spread)), 1.0), depth + 1.0)
        return lengths[depth]

    def _log_weight(self, lengths: Sequence[float]) -> float:
        """How well a draw agrees with accept lengths that it was not made from."""
        sd = math.hypot(_LENGTH_SD, self._spread)
        anchor = None if self._counts else self._anchor
        return -0.5 * math.fsum(
            (math.log(self._per_pass(lengths[e.depth]) / e.length) / sd) ** 2
            for e in self._told
            if e is not anchor and e.length
        )

    # --- one draw of the conditional acceptances ---------------------------------------------------------

    def _chain(self, deepest: int, rng: Random) -> list[float]:
        """a_1 … a_deepest."""
        if self._counts:
            known: list[float] = []
            near = 0.6  # where a position was hardly reached, it is taken to be like the one before it
            for tried, passed in self._counts:
                near = rng.betavariate(passed + _PRIOR_ROUNDS * near, tried - passed + _PRIOR_ROUNDS * (1.0 - near))
                near = min(max(near, _FLOOR), _CEILING)
                known.append(near)
            return known[:deepest] + self._beyond(known, deepest, rng)
        fall = rng.gauss(*_TREND)
        anchor = self._anchor
        if anchor is not None and anchor.length is not None:
            length = anchor.length * math.exp(rng.gauss(0.0, _LENGTH_SD))
            return _matching(length, anchor.depth, fall, deepest)
        return _falling(_logit(rng.uniform(0.25, 0.98)), fall, deepest)

    @property
    def _anchor(self) -> AcceptanceEvidence | None:
        """The accept length that draws are made to match: the deepest, which says most."""
        return self._told[-1] if self._told else None

    def _beyond(self, known: Sequence[float], deepest: int, rng: Random) -> list[float]:
        """The trend of the last positions carried on; unsure of its level, its slope, and more with each step."""
        if deepest <= len(known):
            return []
        level, level_sd, slope, slope_sd = self._trend(known)
        at, step = level + rng.gauss(0.0, level_sd), slope + rng.gauss(0.0, slope_sd)
        found = []
        for _ in range(deepest - len(known)):
            at += step + rng.gauss(0.0, _RESIDUAL)
            found.append(_expit(at))
        return found

    def _trend(self, known: Sequence[float]) -> tuple[float, float, float, float]:
        """Level at the last position and change a position, each with its sd: least squares with a prior slope."""
        first = max(len(known) - _TREND_FROM, 0)
        points = []
        for j in range(first, len(known)):
            tried, passed = self._counts[j]
            share = (passed + 0.5) / (tried + 1.0)
            variance = _RESIDUAL**2 + 1.0 / max(tried * share * (1.0 - share), 0.5)
            points.append((j - len(known) + 1.0, _logit(known[j]), 1.0 / variance))
        mean, sd = _TREND
        w = math.fsum(p[2] for p in points)
        wx, wy = (math.fsum(p[2] * p[i] for p in points) for i in (0, 1))
        wxx = math.fsum(p[2] * p[0] ** 2 for p in points) + sd**-2
        wxy = math.fsum(p[2] * p[0] * p[1] for p in points) + mean * sd**-2
        det = w * wxx - wx * wx
        return (wxx * wy - wx * wxy) / det, math.sqrt(wxx / det), (w * wxy - wx * wy) / det, math.sqrt(w / det)

    def _disagreement(self) -> float:
        """By how much the trials' own accept lengths differ from the chain rule beyond what counting explains."""
        if len(self._evidence) < 2 or not self._counts:
            return 0.0
        base = max(self._counted, key=lambda e: e.depth)
        worst = 0.0
        for e in self._evidence:
            if e is base or e.depth > base.depth or e.length is None:
                continue
            chain = math.fsum(base.reached[: e.depth + 1]) / base.rounds
            rounds = 1.0 / (1.0 / base.rounds + (1.0 / e.rounds if e.rounds else 0.0))
            sd = math.hypot(_LENGTH_SD if not e.rounds else 0.005, e.depth / chain / 2.0 / math.sqrt(rounds))
            worst = max(worst, abs(math.log(e.length / chain)) - 2.5 * sd)
        return worst


def _pooled(counted: Sequence[AcceptanceEvidence]) -> list[tuple[float, float]]:
    """Per position: rounds that got so far, and those of them that passed it, over all trials."""
    deepest = max((e.depth for e in counted), default=0)
    return [
        (
            math.fsum(e.reached[j] for e in counted if e.depth > j),
            math.fsum(e.reached[j + 1] for e in counted if e.depth > j),
        )
        for j in range(deepest)
    ]


def _lengths(conditional: Sequence[float]) -> list[float]:
    """Accept lengths of depths 0, 1, … from the conditional acceptances."""
    found, reach = [1.0], 1.0
    for a in conditional:
        reach *= a
        found.append(found[-1] + reach)
    return found


def _falling(logit: float, fall: float, deepest: int) -> list[float]:
    return [_expit(logit + fall * j) for j in range(deepest)]


def _matching(length: float, depth: int, fall: float, deepest: int) -> list[float]:
    """The chain with the given fall whose accept length at that depth is the one wanted, by bisection."""
    low, high = -12.0, 12.0
    for _ in range(26):
        middle = 0.5 * (low + high)
        if _lengths(_falling(middle, fall, depth))[depth] < length:
            low = middle
        else:
            high = middle
    return _falling(0.5 * (low + high), fall, deepest)


def _logit(p: float) -> float:
    held = min(max(p, _FLOOR), _CEILING)
    return math.log(held / (1.0 - held))


def _expit(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(x, -30.0), 30.0)))


def _quantile(pairs: Sequence[tuple[float, float]], share: float) -> float:
    """Of values in order with their weights."""
    total = 0.0
    for value, weight in pairs:
        total += weight
        if total >= share:
            return value
    return pairs[-1][0]
