"""What a result tells of what somebody else did to the service during the run, from the records alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from draftmark.model import Hand, TrialStatus
from draftmark.run.records import (
    ALTERED,
    ENDED_BY_OTHERS,
    ENOUGH,
    FINISH,
    INTERVENTION,
    NEXT,
    RunRecord,
    TrialRecord,
)

WHY_NO_VERDICT = "somebody else changed the service's configuration during the run"


def altered(record: RunRecord) -> tuple[str, ...]:
    """What somebody else changed of the service's configuration, in words; empty when nobody did."""
    said = [what for action in record.actions if action.what == ALTERED for what in action.detail["by_others"]]
    return tuple(dict.fromkeys(map(str, said)))


def no_verdict(found: tuple[str, ...]) -> str:
    """What a report says in a verdict's place."""
    return f"No verdict: {WHY_NO_VERDICT} ({'; '.join(found)}). Its trials are not of one service; run it again."


def without_figures(record: RunRecord) -> RunRecord:
    """A run whose service was changed under it: no trial counts, for nobody can say which are of one service.

    Nor does what was expected by those before.
    """
    actions = tuple(action for action in record.actions if action.what not in (NEXT, ENOUGH))
    return replace(record, actions=actions, trials=tuple(map(_void, record.trials)))


def _void(record: TrialRecord) -> TrialRecord:
    if record.trial.status is not TrialStatus.MEASURED:
        return record
    return replace(record, trial=replace(record.trial, status=TrialStatus.VOID, because=WHY_NO_VERDICT))


def told(record: RunRecord) -> Iterator[str]:
    """In words, what others did."""
    whole = any(action.what == FINISH for action in record.actions)
    for action in record.actions:
        because = action.detail.get("because")
        if action.what == ENDED_BY_OTHERS and not whole:
            yield f"the run ended early: {because}"
        elif action.what == INTERVENTION and action.detail.get("hand") == Hand.RESTARTED:
            yield f"trial {action.trial} is void, and the run went on: {because}"
