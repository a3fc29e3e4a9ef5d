"""Runs a judge on a case and on its changes, and says what became of the verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from draftmark.postmortem.model import Confidence, Verdict

from .change import Change, NotApplicableError
from .corpus import UNSETTLED, Case, Examine, cited_line, judged
from .metamorphic import CHANGES, without

SAME, LESS, OTHER, SKIPPED = "same", "unsettled", "other cause", "not applicable"
RANK = {Confidence.CERTAIN: 2, Confidence.LIKELY: 1, Confidence.UNSETTLED: 0}


@dataclass(frozen=True)
class Outcome:
    """What one change did to one case.

    Attributes:
        kind: SAME, LESS (it became unsettled), OTHER, or SKIPPED (the change makes no sense here: `detail`).
        weaker: The cause is the same, the confidence is not.
        detail: Cause and confidence before and after.
    """

    case: str
    change: str
    kind: str
    detail: str = ""
    weaker: bool = False
    seconds: float = 0.0


def generator(case: Case, change: str, seed: int = 0) -> random.Random:
    """The same one for the same case, change and seed."""
    return random.Random(f"{seed} {change} {case.name}")


def said(verdict: Verdict) -> str:
    """Cause and confidence."""
    return f"{verdict.cause} ({verdict.confidence})"


def changed(
    examine: Examine, case: Case, before: Verdict, name: str, change: Change | None = None, seed: int = 0
) -> Outcome:
    """The verdict after a change against the one before it."""
    try:
        after = (change or CHANGES[name])(case.files, generator(case, name, seed))
    except NotApplicableError as why:
        return Outcome(case.name, name, SKIPPED, str(why))
    started = time.perf_counter()
    try:
        verdict = judged(examine, after.files, after.order)
    except Exception as error:
        return Outcome(case.name, name, OTHER, f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - started
    detail = f"{said(before)} → {said(verdict)}"
    if verdict.cause == before.cause:
        weaker = verdict.confidence != before.confidence
        return Outcome(case.name, name, SAME, detail if weaker else "", weaker, seconds)
    return Outcome(case.name, name, LESS if verdict.cause == UNSETTLED else OTHER, detail, seconds=seconds)


def matrix(
    examine: Examine,
    cases: Iterable[Case],
    changes: Callable[[int], Iterable[str]] = lambda _n: CHANGES,
    seed: int = 0,
) -> Iterator[Outcome]:
    """Each case with each change, or with those that `changes` picks for the n-th case."""
    for number, case in enumerate(cases):
        before = first(examine, case)
        for name in changes(number):
            yield changed(examine, case, before, name, seed=seed)


def first(examine: Examine, case: Case) -> Verdict:
    """The verdict on the case as it is. A judge that fails has named no cause of the taxonomy."""
    try:
        return judged(examine, case.files)
    except Exception as error:
        return Verdict(cause=f"{type(error).__name__}", confidence=Confidence.UNSETTLED, summary="", phase=None)


def _keys(case: Case, _before: Verdict) -> dict[str, bytes]:
    return without(case.files, lambda _file, _number, text: any(key in text for key in case.keys))


def _cited(case: Case, before: Verdict) -> dict[str, bytes]:
    there = (cited_line(evidence, case.files) for evidence in before.evidence)
    gone = {line for line in there if line}
    return without(case.files, lambda file, _number, text: (file, text) in gone)


def _all(case: Case, before: Verdict) -> dict[str, bytes]:
    left = _cited(case, before)
    return without(left, lambda _file, _number, text: any(key in text for key in case.keys))


REMOVALS: Mapping[str, Callable[[Case, Verdict], dict[str, bytes]]] = {
    "the label's key lines": _keys,
    "the cited lines": _cited,
    "both": _all,
}


@dataclass(frozen=True)
class Removal:
    """What was said once the decisive lines were gone.

    Attributes:
        allowed: It is unsettled, or the same cause and no surer, or another cause that is not called certain.
    """

    case: str
    removal: str
    allowed: bool
    cause: str
    confidence: str
    before: str

    @property
    def kind(self) -> str:
        """For a table."""
        if self.cause == UNSETTLED:
            return LESS
        return SAME if self.cause == self.before.partition(" (")[0] else OTHER


def removed(examine: Examine, case: Case, before: Verdict, name: str) -> Removal:
    """The verdict on what is left of a case."""
    files = REMOVALS[name](case, before)
    try:
        after = judged(examine, files)
    except Exception as error:
        return Removal(case.name, name, False, f"{type(error).__name__}: {error}", "", said(before))
    same = after.cause == before.cause or after.cause in case.accepted
    if same and before.cause in case.accepted:
        allowed = RANK[after.confidence] <= RANK[before.confidence]
    else:
        allowed = after.cause == UNSETTLED or after.confidence != Confidence.CERTAIN
    return Removal(case.name, name, allowed, after.cause, str(after.confidence), said(before))


def removals(examine: Examine, cases: Iterable[Case]) -> Iterator[Removal]:
    """Each case with each removal."""
    for case in cases:
        before = first(examine, case)
        for name in REMOVALS:
            yield removed(examine, case, before, name)
