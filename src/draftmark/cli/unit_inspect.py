"""`draftmark inspect unit:NAME`: the unit, its server, and what would make tuning unsafe. Touches nothing."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from draftmark.errors import DraftmarkError
from draftmark.model import Activity, Health
from draftmark.ports import EngineClient
from draftmark.service.host import local_facts
from draftmark.service.systemd.hazards import hazards
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
    found = hazards(properties, unit.files, host_state(first.privileged, properties), drain)
    stop_s = first.safe.stop_timeout_s
    return {
        "schema": "draftmark.inspect/1",
        "service": target.shown,
        "engine": {"name": target.engine.name, "version": target.version},
        "unit": {
            "state": f"{properties.get('ActiveState', '')} ({properties.get('SubState', '')})",
            "manager": "user" if unit.manager.user else "system",
            "main_pid": properties.number("MainPID") or None,
            "restarts": properties.number("NRestarts"),
            "files": [file.path for file in unit.files],
            "environment_files": list(unit.environment_files),
        },
        "command": {
            "line": target.shown_line(target.command),
            "stands_in": ":".join(map(str, unit.command.where)),
            "server": " ".join(target.redactor.command(target.command)),
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
        "hazards": [dataclasses.asdict(hazard) for hazard in found] + _in_use(activity),
    }


def _client(target: UnitTarget, base_url: str) -> EngineClient | None:
    """To the running server; None where it does not answer, or cannot be reached from here."""
    try:
        client = target.engine.client(target.reach(base_url), target.engine.headers(target.command))
    except DraftmarkError:
        return None
    return client if client.health() is not Health.UNREACHABLE else None


def _in_use(activity: Activity | None) -> list[dict[str, str]]:
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
