"""What a result tells of servers that did not start or died, from the records alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from draftmark.model import Arm, TrialStatus
from draftmark.run.directory import WHY
from draftmark.run.records import RunRecord, TrialRecord

_FAILED = (TrialStatus.DID_NOT_START, TrialStatus.VOID)


def told(record: TrialRecord) -> dict[str, Any] | None:
    """Cause and proof of one trial's death; None without a post-mortem."""
    why = record.why
    if why is None or record.trial.status not in _FAILED:
        return None
    first = why.evidence[0] if why.evidence else None
    return {
        "path": _path(record),
        "cause": why.cause,
        "confidence": why.confidence,
        "summary": why.summary,
        "evidence": None
        if first is None
        else {"file": first.file, "line": first.line, "time": first.time, "text": first.text},
    }


def latest(records: Sequence[TrialRecord], arm: Arm) -> str | None:
    """Path, in the run directory, of an arm's latest post-mortem."""
    own = [r for r in records if r.trial.arm == arm and told(r) is not None]
    return _path(max(own, key=lambda r: r.trial.number)) if own else None


def untold(record: RunRecord) -> Iterator[str]:
    """In words, each post-mortem that failed, was lost, or cannot be read."""
    last: dict[int | None, tuple[str, Any]] = {}
    for action in record.actions:
        if action.what in ("start", "why", "why-failed"):  # a start begins the trial anew: what was before is void
            last[action.trial] = (action.what, action.detail.get("because"))
    for each in record.trials:
        what, because = last.get(each.trial.number, ("", None))
        if each.why_fault is not None:
            yield f"{_path(each)} cannot be read ({each.why_fault})"
        elif what == "why-failed":
            yield f"why the server of {each.trial.directory} failed was not found out ({because})"
        elif what == "why" and each.why is None:
            yield f"{_path(each)} is gone"


def _path(record: TrialRecord) -> str:
    return f"trials/{record.trial.directory}/{WHY}"
