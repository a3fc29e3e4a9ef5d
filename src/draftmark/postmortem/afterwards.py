"""What became of a service after the end that is examined, by its supervisor's record. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

from draftmark.postmortem.claims import Claim, unique
from draftmark.postmortem.model import Phase
from draftmark.postmortem.records import UnitRecord
from draftmark.postmortem.scene import Scene

_STAMP = re.compile(r"^(?:[^\W\d]+ )?(?P<when>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?(?P<zone> \S+)?$")
_LATE_S = 1.0
"""A stamp of systemd's is cut to the second."""


def afterwards(scene: Scene, claim: Claim) -> str | None:
    """`runs again since …` or `is being started again`; None where it did not die, or no record tells of more."""
    unit = scene.records.unit
    if not claim.died or unit is None or not _is_later(unit, claim):
        return None
    if unit.get("ActiveState") == "activating":
        return "is being started again"
    return f"runs again{_since(unit)}" if _is_up(unit) else None


def runs_now(scene: Scene, claim: Claim) -> Claim:
    """Of a unit that was stopped in order and is up again nothing is wrong: it is said to run."""
    unit = scene.records.unit
    if claim.cause != "healthy-exit" or unit is None or not _is_up(unit) or not _is_later(unit, claim):
        return claim
    return replace(
        claim,
        cause="healthy-running",
        summary=f"It runs{_since(unit)}. Of the run before that: {claim.summary[:1].lower()}{claim.summary[1:]}",
        lines=unique([unit.lines["ActiveState"], *claim.lines]),
        phase=Phase.SERVING,
        died=False,
    )


def _is_up(unit: UnitRecord) -> bool:
    return unit.get("ActiveState") in ("active", "reloading") and "ActiveState" in unit.lines


def _is_later(unit: UnitRecord, claim: Claim) -> bool:
    """Whether the record is of after the end: it tells when it became active, and the lines when that ended."""
    if unit.get("ActiveState") == "activating":
        return True
    began = _seconds(unit.get("ActiveEnterTimestamp"))
    ends = [line.time for line in claim.lines if line.time is not None and line.clock == "wall"]
    return began is None or not ends or began >= max(ends) - _LATE_S


def _since(unit: UnitRecord) -> str:
    found = _STAMP.match(unit.get("ActiveEnterTimestamp"))
    return f" since {found['when']}{found['zone'] or ''}" if found else ""


def _seconds(stamp: str) -> float | None:
    """Seconds since the epoch; None for a zone that only its host knows."""
    found = _STAMP.match(stamp)
    if found is None or (found["zone"] or "").strip() not in ("UTC", "GMT"):
        return None
    return datetime.fromisoformat(f"{found['when']}+00:00").astimezone(UTC).timestamp()
