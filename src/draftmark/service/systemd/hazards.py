"""What about a unit and its host would make tuning unsafe, or hides why a server died. Pure.

Every hazard shows the line that it is drawn from; what was not told is no hazard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from draftmark.model import DrainFacts
from draftmark.service.systemd.hazard import GpuProcess, Hazard, HostState, Seen, Severity
from draftmark.service.systemd.hazards_host import HOST
from draftmark.service.systemd.hazards_stop import STOP
from draftmark.service.systemd.hazards_unit import UNIT
from draftmark.service.systemd.triggers import Trigger
from draftmark.service.systemd.unitfile import Unit, UnitFile

__all__ = ["DrainFacts", "GpuProcess", "Hazard", "HostState", "Severity", "hazards"]

_CHECKS: tuple[Callable[[Seen], Iterator[Hazard]], ...] = (*STOP, *UNIT, *HOST)


def hazards(
    properties: Mapping[str, str],
    files: Sequence[UnitFile],
    host: HostState,
    drain: DrainFacts,
    triggers: Sequence[Trigger] = (),
) -> list[Hazard]:
    """All hazards, those that stop a tuning first.

    Args:
        properties: All of `systemctl show UNIT`.
        files: The unit's fragment and drop-ins, in systemd's order.
        host: What is known of its host.
        drain: How its server ends.
        triggers: What starts it besides.
    """
    seen = Seen(properties, files, Unit.parse(files), host, drain, triggers)
    found = [hazard for check in _CHECKS for hazard in check(seen)]
    return sorted(found, key=lambda hazard: hazard.severity is not Severity.STOPS)
