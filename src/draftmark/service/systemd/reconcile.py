"""What a trial's drop-in has to say so that a stop is never cut short by systemd. Pure.

Nothing is ever lowered: a time is made longer, or left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from draftmark.errors import RefusedError
from draftmark.model import DrainFacts
from draftmark.service.systemd.hazard import HostState, Seen
from draftmark.service.systemd.hazards_stop import START_PACE_S, kills_hard
from draftmark.service.systemd.timespan import span
from draftmark.service.systemd.unitfile import Unit, UnitFile

MARGIN_S = 15.0
"""Between the server's worst end and systemd's patience."""

LONGEST_S = 900.0
"""A stop that may last longer is refused, unless the caller allows it."""

_KILL = ("9", "SIGKILL", "KILL")


@dataclass(frozen=True, slots=True)
class Because:
    """Why a setting is needed.

    Attributes:
        setting: `TimeoutStopSec=120s`.
        reason: One sentence.
        line: That shows it.
    """

    setting: str
    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Settings for a trial's drop-in.

    Attributes:
        settings: Of `[Service]`.
        unit_settings: Of `[Unit]`.
        because: Why, for each of them.
        stop_timeout_s: From SIGTERM until systemd would kill, with these settings; may be infinite.
        refusal: Why no setting makes a stop safe; None when one can go on.
    """

    settings: dict[str, str] = field(default_factory=dict)
    unit_settings: dict[str, str] = field(default_factory=dict)
    because: tuple[Because, ...] = ()
    stop_timeout_s: float = 0.0
    refusal: RefusedError | None = None


def reconcile(
    properties: Mapping[str, str],
    drain: DrainFacts,
    files: Sequence[UnitFile] = (),
    *,
    margin_s: float = MARGIN_S,
    longest_s: float = LONGEST_S,
) -> Reconciled:
    """What the unit and its server need to get on.

    Args:
        properties: All of `systemctl show UNIT`.
        drain: How its server ends.
        files: The unit's fragment and drop-ins in systemd's order, to show lines instead of properties.
        margin_s: Added to the server's worst end.
        longest_s: Longest stop that may be waited for.
    """
    seen = Seen(properties, files, Unit.parse(files), HostState(), drain)
    refusal = _refusal(seen, margin_s, longest_s)
    given = seen.span("TimeoutStopUSec")
    if refusal is not None or given is None or drain.worst_s is None:
        return Reconciled(stop_timeout_s=given or 0.0, refusal=refusal)
    because: list[Because] = []
    needed = drain.worst_s + margin_s
    if given < needed:
        because.append(
            Because(
                f"TimeoutStopSec={span(needed)}",
                f"the server may need {span(drain.worst_s)} to end ({drain.source})",
                seen.evidence("TimeoutStopUSec", "TimeoutStopSec"),
            )
        )
    because += [*_signals(seen), *_life(seen)]
    limits = _start_limit(seen)
    return Reconciled(
        settings=dict(_pair(each) for each in because),
        unit_settings=dict(_pair(each) for each in limits),
        because=(*because, *limits),
        stop_timeout_s=max(given, float(math.ceil(needed))),
    )


def _pair(because: Because) -> tuple[str, str]:
    key, _, value = because.setting.partition("=")
    return key, value


def _signals(seen: Seen) -> list[Because]:
    found = []
    mode = seen.value("KillMode")
    if mode == "control-group" and seen.drain.children_need_main_only:
        reason = f"the workers would die of a signal of their own before the server has ended ({seen.drain.source})"
        found.append(Because("KillMode=mixed", reason, seen.evidence("KillMode")))
    elif mode in ("process", "none"):
        reason = "workers that are left over would keep memory and port from the next arm"
        found.append(Because("KillMode=mixed", reason, seen.evidence("KillMode")))
    if seen.value("KillSignal") in _KILL:
        reason = "a server that is killed does not end its requests"
        found.append(Because("KillSignal=SIGTERM", reason, seen.evidence("KillSignal")))
    return found


def _life(seen: Seen) -> list[Because]:
    found = []
    if seen.value("Restart") not in ("", "no"):
        reason = "an arm that dies is looked into, not started again"
        found.append(Because("Restart=no", reason, seen.evidence("Restart")))
    limit = seen.span("RuntimeMaxUSec")
    if limit is not None and not math.isinf(limit):
        reason = "systemd would end it while it is measured"
        found.append(Because("RuntimeMaxSec=infinity", reason, seen.evidence("RuntimeMaxUSec", "RuntimeMaxSec")))
    return found


def _start_limit(seen: Seen) -> list[Because]:
    interval, burst = seen.span("StartLimitIntervalUSec"), seen.value("StartLimitBurst")
    if not interval or not burst.isdecimal() or not int(burst) or interval / int(burst) <= START_PACE_S:
        return []
    reason = "systemd would refuse to start the next arm"
    line = seen.evidence("StartLimitIntervalUSec", "StartLimitIntervalSec", "Unit")
    return [Because("StartLimitIntervalSec=0", reason, line)]


def _refusal(seen: Seen, margin_s: float, longest_s: float) -> RefusedError | None:
    drain, given = seen.drain, seen.span("TimeoutStopUSec")
    if given is None:
        return RefusedError(
            "systemd does not say how long it waits at a stop",
            evidence=(f"TimeoutStopUSec={seen.value('TimeoutStopUSec')}",),
            next_step="systemctl show -p TimeoutStopUSec of the unit",
        )
    if seen.value("SendSIGKILL") == "no":
        return RefusedError(
            "a server that does not end would be left running, and the next arm find its port and memory taken",
            evidence=(seen.evidence("SendSIGKILL"),),
            next_step="remove SendSIGKILL=no",
        )
    hard = [str(line) for line in seen.unit.all("ExecStop") if kills_hard(line.value)]
    if not seen.unit.all("ExecStop") and kills_hard(seen.value("ExecStop")):
        hard.append(f"ExecStop={seen.value('ExecStop')}")
    if hard:
        return RefusedError(
            "ExecStop= kills the server before it could end its requests",
            evidence=tuple(hard),
            next_step="remove the line: systemd sends SIGTERM itself",
        )
    if drain.worst_s is None:
        return RefusedError(
            "how long the server needs to end has no bound: systemd might kill it",
            evidence=(seen.evidence("TimeoutStopUSec", "TimeoutStopSec"), drain.source),
            next_step="give the server a limit for its shutdown",
        )
    if drain.worst_s + margin_s > longest_s:
        return RefusedError(
            f"the server may need {span(drain.worst_s)} to end, and a stop may last {span(longest_s)} at most",
            evidence=(seen.evidence("TimeoutStopUSec", "TimeoutStopSec"), drain.source),
            next_step="give the server a shorter limit for its shutdown",
        )
    return None
