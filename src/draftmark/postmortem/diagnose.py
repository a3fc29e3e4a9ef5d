"""Sources → verdict: the whole post-mortem in one call. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.postmortem.afterwards import afterwards
from draftmark.postmortem.claims import Claim, unique
from draftmark.postmortem.ending import Ending
from draftmark.postmortem.events import Event
from draftmark.postmortem.judge import Judgement, judge
from draftmark.postmortem.model import (
    Candidate,
    Confidence,
    Consequence,
    Line,
    Moment,
    RuledOut,
    Source,
    Unread,
    Verdict,
)
from draftmark.postmortem.names import pick
from draftmark.postmortem.phases import phase_of
from draftmark.postmortem.scene import Scene, build_scene
from draftmark.postmortem.surroundings import candidates, not_examined, ruled_out
from draftmark.postmortem.tables import Tables

_TELLING = frozenset(
    (
        "fatal", "teardown", "child-exit", "killed", "term", "exit", "clean-exit", "stop", "start-limit",
        "restart", "oom-kill", "oom-record", "echo", "grace-exceeded", "probe-failed", "unhealthy", "stall",
        "host-stop", "client-signal", "container-kill", "operator", "user-manager", "capture-failed",
        "pool-failed", "xid",
    )
)  # fmt: skip
_STATES = frozenset(("start", "ready", "weights-begin", "weights-end", "capture-begin", "capture-end"))
_AFTER = frozenset(("echo", "teardown", "child-exit", "exit", "restart", "start-limit", "killed", "down", "fatal"))
_PROOFS, _CONSEQUENCES, _MOMENTS = 8, 20, 60


def diagnose(
    sources: Sequence[Source],
    *,
    tables: Tables,
    unit: str | None = None,
    unread: Sequence[Unread] = (),
    named: bool = False,
) -> Verdict:
    """Why it died.

    Args:
        sources: What was read.
        tables: What lines mean and what causes are called.
        unit: The service that is meant, where the sources are about several.
        unread: What could not be read.
        named: The user picked `unit` by hand, so it has to occur in the sources.

    Raises:
        BadInputError: It does not.
    """
    if named and unit:
        unit = pick(sources, unit)
    scene = build_scene(sources, tables, unit=unit, unread=unread)
    judgement = judge(scene)
    claim = judgement.claim
    claim.lines = unique([*claim.lines, *(event.line for event in scene.events("start-limit")[:2])], _PROOFS)
    entry = tables.causes.get(claim.cause)
    return Verdict(
        cause=claim.cause,
        confidence=claim.confidence,
        summary=claim.summary + _since(scene, claim),
        phase=phase_of(scene, claim),
        evidence=tuple(line.evidence() for line in claim.lines),
        ruled_out=tuple(ruled_out(scene, judgement)),
        consequences=tuple(_consequences(scene, claim.lines)),
        not_examined=tuple(not_examined(scene, judgement)),
        candidates=tuple(candidates(scene, judgement)) if claim.confidence is Confidence.UNSETTLED else (),
        advice=tuple(_fill(text, scene) for text in entry.advice) if entry else (),
        timeline=tuple(_timeline(scene, claim.lines)),
        service=scene.subject.unit or scene.records.pod or _container(scene) or None,
        engine=scene.engine,
        engine_version=scene.engine_version,
        root_elsewhere=claim.root_elsewhere,
        died=_died(scene, claim, judgement.ending),
        afterwards=afterwards(scene, claim),
        examined=scene.examined,
    )


def _since(scene: Scene, claim: Claim) -> str:
    """A word when a later start of the same log is up."""
    again = claim.died and any(stream.later_alive for stream in scene.servers)
    return " It has been started again since, and is up." if again else ""


def _died(scene: Scene, claim: Claim, ending: Ending) -> bool | None:
    """Whether the service itself went: a child that was killed can leave it running."""
    gone = ending.signal is not None or ending.status is not None or ending.restarted
    up = (ending.running and not gone) or any(stream.later_alive for stream in scene.servers)
    return False if claim.died and up else claim.died


def _container(scene: Scene) -> str:
    return next((c.name for c in scene.records.containers if c.name), "")


def _fill(text: str, scene: Scene) -> str:
    return (
        text.replace("{unit}", scene.subject.unit or "UNIT")
        .replace("{pod}", scene.records.pod or "POD")
        .replace("{container}", _container(scene) or "CONTAINER")
        .replace("{pid}", "PID")
    )


def _consequences(scene: Scene, proof: Sequence[Line]) -> list[Consequence]:
    """What followed, in order, each kind of line once a stream."""
    shown = {(line.source, line.number) for line in proof}
    seen: set[tuple[str, str]] = set()
    found: list[Consequence] = []
    for stream in scene.servers:
        first = min((e.order for e in stream.events if (e.line.source, e.line.number) in shown), default=None)
        for event in stream.events:
            key = (event.sign.id, event.line.actor)
            if event.role not in _AFTER or not event.sign.what or key in seen:
                continue
            if (event.role != "start-limit" and (event.line.source, event.line.number) in shown) or (
                first is not None and event.order < first - 5
            ):
                continue
            seen.add(key)
            found.append(Consequence(event.sign.what, event.line.evidence()))
    return found[:_CONSEQUENCES]


def _timeline(scene: Scene, proof: Sequence[Line]) -> list[Moment]:
    """The marks of the examined life and the proofs, by the clock where all have one, else in the logs' order."""
    shown = {(line.source, line.number) for line in proof}
    moments: list[tuple[Line, Moment]] = []
    told: set[tuple[str, int]] = set()
    for event in _without_runs([e for e in scene.telling if _role(e, shown)]):
        key = (event.line.source, event.line.number)
        role = _role(event, shown)
        if role and key not in told:
            told.add(key)
            moments.append((event.line, _moment(role, event.sign.what or event.role, event.line)))
    rest = [line for line in proof if (line.source, line.number) not in told]
    moments += [(line, _moment("cause", "decisive", line)) for line in rest]
    if all(line.time is not None and line.clock == "wall" for line, _ in moments):
        moments.sort(key=lambda pair: pair[0].time or 0.0)
    return _thin([moment for _, moment in moments])


def _moment(role: str, what: str, line: Line) -> Moment:
    return Moment(role, what, line.evidence(), line.time if line.clock == "wall" else None)


def _without_runs(events: list[Event]) -> list[Event]:
    """Of one kind of line repeated on end, such as a drain's, the first and the last."""
    kept = []
    for before, event, after in zip([None, *events], events, [*events[1:], None], strict=False):
        same = before is not None and after is not None and before.sign.id == event.sign.id == after.sign.id
        if not same:
            kept.append(event)
    return kept


def _role(event: Event, shown: set[tuple[str, int]]) -> str | None:
    if (event.line.source, event.line.number) in shown:
        return "cause"
    if event.role in _STATES:
        return "state"
    if event.role in ("stop", "drain", "client-signal", "container-kill", "operator"):
        return "stop"
    if event.role in ("exit", "killed", "clean-exit", "child-exit"):
        return "exit"
    if event.role in _TELLING:
        return "consequence"
    return "support" if event.role == "fault" else None


def _thin(moments: list[Moment]) -> list[Moment]:
    """At most so many: proofs always, the rest from both ends."""
    if len(moments) <= _MOMENTS:
        return moments
    keep = {i for i, m in enumerate(moments) if m.role == "cause"}
    half = (_MOMENTS - len(keep)) // 2
    rest = [i for i in range(len(moments)) if i not in keep]
    keep.update(rest[:half], rest[len(rest) - half :])
    return [m for i, m in enumerate(moments) if i in keep]


__all__ = ["Candidate", "Judgement", "RuledOut", "diagnose"]
