"""`draftmark why` of a service of several units: each is examined, and the one that failed first is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftmark.errors import DraftmarkError
from draftmark.report.why_words import HEALTHY, SURE, is_unsettled
from draftmark.run.redact import text

if TYPE_CHECKING:
    from draftmark.cli.services import Member
    from draftmark.postmortem.model import Verdict

_FOLLOWERS = frozenset({"peer-rank-died", "nccl-timeout"})
"""Causes by which a rank says that another one went."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A member.

    Attributes:
        rank: From 0.
        verdict: None where nothing of it could be read.
        because: Why not.
    """

    rank: int
    member: Member
    verdict: Verdict | None
    because: str = ""

    def document(self, shown: Examined) -> dict[str, Any]:
        """For scripts."""
        verdict = self.verdict
        return {
            "rank": self.rank,
            "unit": self.member.unit,
            "host": self.member.host,
            "cause": verdict.cause if verdict else None,
            "confidence": str(verdict.confidence) if verdict else None,
            "because": self.because or None,
            "shown": self is shown,
        }

    def line(self, shown: Examined) -> str:
        """For people."""
        verdict = self.verdict
        said = f"{verdict.cause}, {SURE[verdict.confidence]}" if verdict else f"not read: {self.because}"
        return f"rank {self.rank}  {self.member}  {said}" + ("  (this one)" if self is shown else "")


def examine_members(members: Sequence[Member], examine: Callable[[Member], Verdict]) -> list[Examined]:
    """Each, in rank order; one that cannot be read hides none of the others.

    Raises:
        DraftmarkError: None of them can be read; the first one's.
    """
    found: list[Examined] = []
    failed: list[DraftmarkError] = []
    for rank, member in enumerate(members):
        try:
            found.append(Examined(rank, member, examine(member)))
        except DraftmarkError as error:
            failed.append(error)
            found.append(Examined(rank, member, None, text(error.what)))
    if len(failed) == len(found):
        raise failed[0]
    return found


def first_to_fail(found: Sequence[Examined]) -> Examined:
    """The member that failed by itself, the earliest where several did; the first where all are well."""
    return min(found, key=lambda each: (*_order(each.verdict), each.rank))


def _order(verdict: Verdict | None) -> tuple[int, float]:
    if verdict is None:
        return 5, math.inf
    if verdict.cause in HEALTHY:
        return 4, math.inf
    times = [moment.at for moment in verdict.timeline if moment.role in ("cause", "exit") and moment.at is not None]
    when = min(times, default=math.inf)
    if verdict.root_elsewhere or verdict.cause in _FOLLOWERS:
        return 2, when
    if is_unsettled(verdict):
        return (1 if verdict.died else 3), when
    return 0, when
