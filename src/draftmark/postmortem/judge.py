"""Weighs the claims: the first independent failure wins, the rest are consequences. Pure.

Order of weight where clocks cannot be compared: kernel log, the supervisor's record, the server's own log, lines of
the GPU's driver, absence of anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmark.postmortem.afterwards import runs_now
from draftmark.postmortem.claims import Claim
from draftmark.postmortem.ending import Ending, read_ending
from draftmark.postmortem.model import Confidence
from draftmark.postmortem.rules import gpu, host, program, quiet, supervisor
from draftmark.postmortem.scene import Scene

_KILLED_FROM_OUTSIDE = frozenset(
    (
        "segfault-or-abort",
        "peer-rank-died",
        "nccl-timeout",
        "engine-rpc-timeout",
        "nccl-init-error",
        "model-load-timeout",
    )
)
_BEFORE_S = 2.0  # two logs of one second are not in order


@dataclass(frozen=True, slots=True)
class Judgement:
    """The claim that stands, and those that do not."""

    claim: Claim
    others: tuple[Claim, ...]
    ending: Ending


def judge(scene: Scene) -> Judgement:
    """Decide."""
    ending = read_ending(scene)
    killers = list(host.claims(scene, ending))
    hardware = list(gpu.claims(scene, ending))
    supervised = list(supervisor.claims(scene, ending))
    own = list(program.claims(scene, ending))
    silent = list(quiet.claims(scene, ending))
    every = [*killers, *hardware, *supervised, *own, *silent]
    chosen = _choose(killers, hardware, supervised, own, silent, ending.result)
    return Judgement(runs_now(scene, chosen), tuple(c for c in every if c is not chosen), ending)


def _choose(
    killers: list[Claim],
    hardware: list[Claim],
    supervised: list[Claim],
    own: list[Claim],
    silent: list[Claim],
    result: str,
) -> Claim:
    failure = _failure(own)
    broken = next((c for c in hardware if c.cause == "gpu-hardware-xid"), None)
    if broken and (failure is None or failure.cause in gpu.SYMPTOMS) and not _later_than(broken, failure):
        return broken
    killer = next((c for c in killers if c.confidence is not Confidence.UNSETTLED), None)
    if killer and not _stands_against(failure, killer):
        stop = next((c for c in supervised if c.cause == "stop-timeout-sigkill"), None)
        return stop if stop and _stopped_first(stop, killer, result) else killer
    record = supervised[0] if supervised else None
    if record and (failure is None or failure.asked_first or _weak(failure) or record.cause == "config-invalid"):
        return record
    if failure and not _weak(failure):
        hang = next((c for c in silent if c.cause in ("hang-not-crash", "host-ram-exhaustion-stall")), None)
        return hang if hang and failure.fault is not None and failure.fault.symptom else failure
    for rest in (killers, hardware):
        if rest:
            return rest[0]
    if failure:
        tidy = next((c for c in silent if c.cause == "healthy-exit" and c.confidence is Confidence.CERTAIN), None)
        return tidy if tidy and failure.asked_first else failure
    return silent[0]


def _stopped_first(stop: Claim, killer: Claim, result: str) -> bool:
    """Which came first when a stop timed out and something killed: systemd keeps the first as its result."""
    if result in ("timeout", "oom-kill"):
        return result == "timeout"
    if stop.time is not None and killer.time is not None and abs(stop.time - killer.time) < 86400:
        return stop.time < killer.time
    return killer.confidence is not Confidence.CERTAIN


def _failure(own: list[Claim]) -> Claim | None:
    """The server's own failure: one that names itself before one that reports another's."""
    named = [c for c in own if c.fault is None or not c.fault.wrapper]
    sure = [c for c in named if c.fault is not None]
    # An abort by the records alone says less than a message about what another rank or library met.
    told = [c for c in own if c.confidence is not Confidence.CERTAIN and c.fault is not None]
    bare = next(iter(named), None)
    if (
        bare is not None
        and bare.cause == "segfault-or-abort"
        and bare.confidence is not Confidence.CERTAIN
        and told
    ):
        bare = told[0]
    return next(iter(sure), None) or bare or next(iter(own), None)


def _weak(claim: Claim) -> bool:
    return claim.fault is not None and claim.fault.wrapper


def _later_than(one: Claim, other: Claim | None) -> bool:
    """Whether one came well after the other, on clocks that can be compared."""
    if other is None or one.time is None or other.time is None:
        return False
    return one.time - other.time > _LOGGED_LATE_S and abs(one.time - other.time) < 86400


_LOGGED_LATE_S = 120.0  # a driver's report may come after the first symptom


def _stands_against(failure: Claim | None, killer: Claim) -> bool:
    """Whether the server had failed by itself before something killed what was left of it."""
    if failure is None or _weak(failure) or failure.cause in _KILLED_FROM_OUTSIDE or failure.fault is None:
        return False
    if failure.confidence is not Confidence.CERTAIN:
        return False
    if killer.time is not None and failure.time is not None and abs(killer.time - failure.time) < 86400:
        return failure.time < killer.time - _BEFORE_S
    return killer.confidence is not Confidence.CERTAIN
