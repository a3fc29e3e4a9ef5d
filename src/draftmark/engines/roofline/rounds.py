"""One decode round: k draft passes and a verification; its floor, what bounds it, and what drafting can gain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from draftmark.engines.cards import Card
from draftmark.engines.roofline.passes import Work, one_pass
from draftmark.engines.roofline.served import Served
from draftmark.engines.roofline.stack import Stack, draft_stack, target_stack

_MOST_CONCURRENCY = 1 << 20
DRAFT = "draft passes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part of a round.

    Attributes:
        floor_s: Seconds that it takes at least.
        bound: What it waits for at its floor.
    """

    name: str
    bytes: float
    ops: float
    floor_s: float
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round at one concurrency and depth, on one card of the group.

    Attributes:
        verify: Parts of the pass that verifies, or that decodes where nothing is drafted.
        draft: Parts of the `depth` draft passes together.
    """

    concurrency: float
    depth: int
    context: float
    card: Card
    verify: tuple[Work, ...]
    draft: tuple[Work, ...]

    @property
    def bytes(self) -> float:
        """Moved in all."""
        return sum(each.bytes for each in (*self.verify, *self.draft))

    @property
    def ops(self) -> float:
        """Computed in all."""
        return sum(each.ops for each in (*self.verify, *self.draft))

    @property
    def floor_s(self) -> float:
        """Seconds that the round takes at least: its parts come one after the other."""
        return sum(each.floor_s(self.card) for each in (*self.verify, *self.draft))

    def shares(self) -> tuple[Share, ...]:
        """By part, all draft passes as one, the largest first."""
        named = [(each.name, each) for each in self.verify] + [(DRAFT, each) for each in self.draft]
        names = dict.fromkeys(name for name, _ in named)
        found = [_share(name, [work for own, work in named if own == name], self.card) for name in names]
        return tuple(sorted(found, key=lambda each: -each.floor_s))


def _share(name: str, works: Iterable[Work], card: Card) -> Share:
    works = tuple(works)
    return Share(
        name=name,
        bytes=sum(each.bytes for each in works),
        ops=sum(each.ops for each in works),
        floor_s=sum(each.floor_s(card) for each in works),
        bound="compute" if _computes(works, card) else "memory",
    )


def _computes(works: Iterable[Work], card: Card) -> bool:
    return sum(each.compute_s(card) - each.memory_s(card) for each in works) >= 0


class Roofline:
    """The work of a served model's rounds, at any concurrency, depth and context."""

    def __init__(self, served: Served) -> None:
        """Adds up its weights once.

        Raises:
            BadInputError: The bytes of its weights, or of its draft's, cannot be told.
        """
        self.served = served
        self.card = served.card
        self._target = target_stack(served)
        self._draft: Stack | None = draft_stack(served)

    @property
    def drafts_known(self) -> bool:
        """Whether the floor of a round with drafts has the draft passes in it."""
        return self._draft is not None or self.served.draft == "none"

    def round(self, concurrency: float, depth: int, context: float) -> Round:
        """One round.

        Args:
            concurrency: Requests that decode together.
            depth: Drafts of each, verified with one more token.
            context: Tokens behind each request.
        """
        drafts: tuple[Work, ...] = ()
        if depth and self._draft is not None:
            one = one_pass(self._draft, concurrency, concurrency, context)
            drafts = tuple(each.times(depth) for each in one)
        return Round(
            concurrency=concurrency,
            depth=depth,
            context=context,
            card=self.card,
            verify=tuple(one_pass(self._target, concurrency * (depth + 1), concurrency, context)),
            draft=drafts,
        )

    def compute_bound_from(self, part: str, depth: int, context: float) -> int | None:
        """The least concurrency at which a part of the verification waits for arithmetic; None for none at all."""

        def bound(concurrency: int) -> bool:
            works = [each for each in self.round(concurrency, depth, context).verify if each.name == part]
            return bool(works) and _computes(works, self.card)

        if not bound(_MOST_CONCURRENCY):
            return None
        low, high = 0, _MOST_CONCURRENCY  # bound at high, not at low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if bound(middle) else (middle, high)
        return high

    def gain_at_floor(
        self, concurrency: float, depth: int, context: float, accept_len: float | None = None
    ) -> float:
        """Tokens a second with drafts over those without, if both rounds ran at their floors.

        Where launches and waiting are a large part of a round, as with one request, drafting spreads them over
        several tokens, too, and gains more than this: `gain_ceiling` bounds that.

        Args:
            concurrency: Requests that decode together.
            depth: Of the drafts.
            context: Tokens behind each request.
            accept_len: Tokens gained a round; None for all of them, depth + 1.
        """
        without = self.round(concurrency, 0, context).floor_s
        return self.gain_ceiling(concurrency, depth, context, without, accept_len)

    def gain_ceiling(
        self, concurrency: float, depth: int, context: float, without_s: float, accept_len: float | None = None
    ) -> float:
        """The most that drafts can gain over a round without them, as measured.

        The round with drafts is shorter neither than its floor nor than the one without them:
        gain <= accept length · min(1, measured(0) / floor(k)).

        Args:
            concurrency: Requests that decode together.
            depth: Of the drafts.
            context: Tokens behind each request.
            without_s: Seconds of the round without drafts.
            accept_len: Tokens gained a round; None for all of them, depth + 1.
        """
        accepted = depth + 1 if accept_len is None else accept_len
        return accepted * min(1.0, without_s / self.round(concurrency, depth, context).floor_s)
