"""What the run directory holds, as types, and their JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from draftmark.model import Arm, Evidence, Fit, Knob, Refusal, RequestRecord, Trial, Workload

T = TypeVar("T")

RUN_SCHEMA = "draftmark.run/1"
WHY_SCHEMA = "draftmark.why/1"

GRID, FORECAST = "grid", "forecast"
"""How a run finds its depth: every arm in rounds, or each start by what those before it showed."""

NEXT, LOST, FITTED, ENOUGH, FINISH = "next", "lost", "fitted", "enough", "finish"
"""Actions that later ones depend on: a slot was asked for; the node that had it is gone; a start's log told what
fits; no further slot is worth its start; the run is over."""

INTERVENTION, ENDED_BY_OTHERS, ALTERED = "intervention", "ended-by-others", "altered"
"""Actions of somebody else: a trial was spoilt; the run was ended; the service's configuration was changed."""

LEFT, OTHERS = "left", "others"
"""Of a search of knobs: settings that are not started, since they do not fit or the engine refuses them; what other
runs of the same study have measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place in the schedule: which arm is started when."""

    number: int
    round: int
    arm: Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """`run.json`: provenance and plan, secrets redacted; written once, before anything is started.

    Attributes:
        service: The reference as the user gave it, redacted.
        engine: The engine's name.
        engine_version: As the engine or its package says; None when unknown.
        command: The service's original command line, redacted.
        redacted: True when a secret was cut out, so that a resume needs the service again.
        host: Facts of the host the server runs on.
        settings: Options that change what is measured; runs that differ here are not compared.
        workloads: What is asked, in full, so that a resume asks the same.
        baseline: The arm that is running today.
        arms: All arms, the baseline included, in the order given.
        refused: Arms that are not started, by name, and why.
        schedule: Slots in order.
        cwd: Working directory, in which a relative path of the command line means something.
        notes: What was found before the first start and bears on the result.
        fit: What each arm leaves of the memory, as predicted before the first start; None where nobody could tell.
        search: `grid`, with its whole schedule here; or `forecast`, which asks for one slot after the other.
        trees: Drafts branch, so that one depth's rounds do not tell another's.
        experts: Of a mixture: how many a layer has, and how many of them a token chooses; None where not known.
        cluster: Address of the cluster on whose nodes the trials run; None for a service of one host.
        knobs: Searched beside the depth; what of them is asked for becomes an arm then.
        budget: Restarts that may be spent on knobs.
        study: Where the study of them is stored, without its password; None for the run directory.
    """

    schema: str = RUN_SCHEMA
    draftmark: str
    service: str
    engine: str
    engine_version: str | None
    command: tuple[str, ...]
    redacted: bool
    host: dict[str, Any]
    started_at: str
    settings: dict[str, Any]
    workloads: tuple[Workload, ...]
    concurrency: tuple[int, ...]
    rounds: int
    tie_margin: float
    baseline: Arm
    arms: tuple[Arm, ...]
    refused: dict[str, Refusal]
    schedule: tuple[Slot, ...]
    notes: tuple[str, ...] = ()
    cwd: str | None = None
    fit: Fit | None = None
    search: str = GRID
    trees: bool = False
    experts: tuple[int, int] | None = None
    cluster: str | None = None
    knobs: tuple[Knob, ...] = ()
    budget: int = 0
    study: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One line of `actions.jsonl`: something that was done to the world, and when.

    Attributes:
        at: Wall clock, ISO 8601 UTC.
        at_s: Monotonic seconds since this process began with the run.
        what: `begin`, `start`, `ready`, `measure`, `stop`, `resume`, `finish`, `interrupted`, ….
        trial: Slot number it belongs to.
        detail: Facts of that kind of action.
    """

    at: str
    at_s: float
    what: str
    trial: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyRecord:
    """As much of a trial's `why.json` as its run's result tells; the file holds the whole verdict."""

    schema: str
    cause: str
    confidence: str
    summary: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A finished trial with its request records.

    Attributes:
        trial: As written at its end.
        requests: As written while it ran; a torn last line is left out.
        why: Why its server did not start or died; None without a post-mortem.
        why_fault: Why the post-mortem that is there cannot be read.
    """

    trial: Trial
    requests: tuple[RequestRecord, ...]
    why: WhyRecord | None = None
    why_fault: str | None = None

    @property
    def torn(self) -> bool:
        """Whether there are fewer records, or more, than the trial says it wrote."""
        return len(self.requests) != self.trial.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything that a result follows from.

    Attributes:
        strays: Directories among the trials that are none of this run's: copies, other names, other arms. They
            count nowhere.
    """

    info: RunInfo
    actions: tuple[Action, ...]
    trials: tuple[TrialRecord, ...]
    strays: tuple[str, ...] = ()


def learned(info: RunInfo, actions: Sequence[Action]) -> RunInfo:
    """The plan with what became known on the way: slots that were asked for, and what fits by a start's own log."""
    arms = {arm.name: arm for arm in (info.baseline, *info.arms)}
    slots = {slot.number: slot for slot in info.schedule}
    for action in actions:
        arm = arms.get(str(action.detail.get("arm"))) or setting(action.detail)
        if action.what == NEXT and action.trial is not None and arm is not None:
            slots[action.trial] = Slot(number=action.trial, round=int(action.detail.get("round", 1)), arm=arm)
            arms.setdefault(arm.name, arm)
        elif action.what == LOST and action.trial is not None:
            slots.pop(action.trial, None)
        elif action.what == LEFT and arm is not None:
            refusal = Refusal(str(action.detail.get("code")), str(action.detail.get("because")))
            info = replace(info, refused={**info.refused, arm.name: refusal})
            arms.setdefault(arm.name, arm)
        elif action.what == FITTED:
            info = replace(
                info,
                fit=msgspec.convert(action.detail["fit"], Fit),
                refused=msgspec.convert(action.detail["refused"], dict[str, Refusal]),
            )
    known = dict.fromkeys((*info.arms, *(arm for arm in arms.values() if arm != info.baseline)))
    return replace(info, arms=tuple(known), schedule=tuple(slots[number] for number in sorted(slots)))


def setting(detail: Mapping[str, Any]) -> Arm | None:
    """An arm that stands in no plan: one that a search of knobs asked for; None where the action names none."""
    knobs = detail.get("knobs")
    return Arm(int(detail["depth"]), tuple((str(flag), str(value)) for flag, value in knobs)) if knobs else None


def fitted(fit: Fit, refused: Mapping[str, Refusal]) -> dict[str, Any]:
    """The detail of an action that says what fits, and which arms are not started."""
    return {"fit": msgspec.to_builtins(fit), "refused": msgspec.to_builtins(dict(refused))}


def encode_line(record: object) -> bytes:
    """One JSON line, newline included."""
    return msgspec.json.encode(record) + b"\n"


def encode_document(document: object) -> bytes:
    """A JSON document for people and diffs: indented, one form for one content."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode(data: bytes, kind: type[T]) -> T:
    """One record.

    Raises:
        msgspec.DecodeError: Not JSON, or not of that kind.
    """
    return msgspec.json.decode(data, type=kind)


def decode_lines(data: bytes, kind: type[T]) -> tuple[T, ...]:
    """Every whole line that is a record; a killed process leaves a torn last line, which is left out."""
    decoder = msgspec.json.Decoder(kind)
    found: list[T] = []
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            found.append(decoder.decode(line))
        except msgspec.DecodeError:
            break  # what follows a torn line is not to be trusted
    return tuple(found)
