"""`draftmark inspect unit:NAME`: the unit, its server, and what would make tuning unsafe. Touches nothing."""

from __future__ import annotations

import dataclasses
import math
import shlex
from typing import TYPE_CHECKING, Any

from draftmark.errors import DraftmarkError
from draftmark.model import Activity, Health
from draftmark.ports import EngineClient
from draftmark.service.host import local_facts
from draftmark.service.systemd.hazard import Severity
from draftmark.service.systemd.hazards import hazards
from draftmark.service.systemd.hold import Hold
from draftmark.service.systemd.hoststate import host_state

if TYPE_CHECKING:
    from draftmark.cli.unit_target import UnitTarget


def inspect_unit(target: UnitTarget) -> dict[str, Any]:
    """The `draftmark.inspect/1` document of a unit."""
    first = target.first
    unit, properties = first.unit, first.unit.properties
    base_url = target.engine.base_url(target.command)
    facts = target.engine.summary(target.command)
    drain = target.engine.drain(target.command)
    client = _client(target, base_url) if unit.active else None
    state = client.speculation() if client else None
    activity = client.activity() if client else None
    state_of_host = host_state(first.privileged, properties)
    found = hazards(properties, unit.files, state_of_host, drain, unit.triggers)
    stop_s = first.safe.stop_timeout_s
    holds = {member.flags: hold for member in target.members if (hold := member.hold()) is not None}
    return {
        "schema": "draftmark.inspect/1",
        "service": target.shown,
        "engine": {"name": target.engine.name, "version": target.version},
        "held": _held(next(iter(holds.values()), None)),
        "unit": {
            "state": f"{properties.get('ActiveState', '')} ({properties.get('SubState', '')})",
            "manager": "user" if unit.manager.user else "system",
            "main_pid": properties.number("MainPID") or None,
            "restarts": properties.number("NRestarts"),
            "files": [file.path for file in unit.files],
            "environment_files": list(unit.environment_files),
        },
        "command": {
            **_lines(target),
            "stands_in": ":".join(map(str, unit.command.where)),
            "listens": base_url,
            "notes": list(unit.command.notes),
        },
        "speculation": {
            "depth": target.engine.depth(target.command),
            "method": facts.pop("method", None),
            "on": state.on if state else None,
            "source": state.source if state else None,
        },
        "flags": facts,
        "activity": {"running": activity.running, "queued": activity.queued} if activity else None,
        "stop": {
            "timeout_s": None if math.isinf(stop_s) else stop_s,
            "timeout": properties.get("TimeoutStopUSec"),
            "drains": drain.drains,
            "drain_worst_s": drain.worst_s,
            "kill_mode": properties.get("KillMode"),
            "while_tuning": [f"{each.setting}: {each.reason} | {each.line}" for each in first.safe.because],
        },
        "host": local_facts() if target.local else {"name": first.host.name},
        "load_from": target.load_from,
        "hazards": [
            *(hazard for flags, hold in holds.items() for hazard in _at_work(flags, hold, activity)),
            *(dataclasses.asdict(hazard) for hazard in found),
            *(_in_use(activity) if not any(hold.held for hold in holds.values()) else ()),
        ],
    }


def _lines(target: UnitTarget) -> dict[str, str]:
    """The unit's line, and the server's own in it where that is not the same."""
    line, server = target.shown_line(target.command), target.redactor.command(target.command)
    return {"line": line, **({"server": " ".join(server)} if _words(line) != tuple(server) else {})}


def _words(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError:
        return ()


def _held(hold: Hold | None) -> dict[str, Any] | None:
    if hold is None or not hold.held:
        return None
    return {
        "by": str(hold.holder),
        "measuring_since": hold.measuring or None,
        "last_sign_of_life_s": hold.last_sign_s,
        "lease_s": hold.lease_s,
        "trial": hold.trial or None,
    }


def _at_work(flags: str, hold: Hold, activity: Activity | None) -> list[dict[str, Any]]:
    """What a Draftmark that is at work on the unit, or was, means for what is shown here."""
    in_force = f"{hold.trial} is in force: the command line shown is a trial's, not the unit's own"
    if not hold.held:
        what, step = "a Draftmark that is gone has left its trial in force", f"draftmark restore {flags}"
        return [_stops("left-over", what, [in_force], step)]
    evidence = [f"held by {hold.holder}"] + ([in_force] if hold.trial else [])
    running = activity.running if activity is not None else 0
    if hold.measuring:
        evidence.append(f"measuring since {hold.measuring}" + f": {running} requests in flight" * bool(running))
    elif running:
        evidence.append(f"{running} requests in flight: its own, or others'")
    if hold.gone:
        step = f"its process is dead: draftmark restore {flags}, or wait {hold.lease_s} s until the host does it"
        return [_stops("held", "the unit is held by a Draftmark that is dead", evidence, step)]
    step = f"wait until it is done, or end it ({hold.holder.how_to_end}), which puts the unit back"
    return [_stops("held", "a Draftmark is at work on the unit: nobody else can tune it now", evidence, step)]


def _stops(code: str, what: str, evidence: list[str], step: str) -> dict[str, Any]:
    severity = str(Severity.STOPS)
    return {"code": code, "what": what, "evidence": evidence, "next_step": step, "severity": severity}


def _client(target: UnitTarget, base_url: str) -> EngineClient | None:
    """To the running server; None where it does not answer, or cannot be reached from here."""
    try:
        client = target.engine.client(target.reach(base_url), target.engine.headers(target.command))
    except DraftmarkError:
        return None
    return client if client.health() is not Health.UNREACHABLE else None


def _in_use(activity: Activity | None) -> list[dict[str, Any]]:
    if activity is None or not activity.running:
        return []
    return [
        {
            "code": "in-use",
            "what": "requests are in flight: others use the service now",
            "evidence": f"{activity.running} running, {activity.queued or 0} queued",
            "next_step": "tune when it is quiet, or with --foreign wait",
            "severity": "warning",
        }
    ]
