"""The nouns of hazards: what is known of a unit, its host and its server's way to stop, and what one hazard is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from draftmark.model import DrainFacts
from draftmark.service.systemd.manager import listed
from draftmark.service.systemd.timespan import seconds_of_property
from draftmark.service.systemd.triggers import Trigger
from draftmark.service.systemd.unitfile import Assignment, Unit, UnitFile


class Severity(StrEnum):
    """What a hazard means for tuning."""

    STOPS = "stops-tuning"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Hazard:
    """Something about the unit or its host that would spoil a tuning, or a service's life.

    Attributes:
        code: Its name for scripts, such as `stop-timeout-short`.
        what: One sentence.
        evidence: The line that shows it: `FILE:LINE: Key=value`, or a property of `systemctl show`.
        next_step: What to do about it.
    """

    code: str
    what: str
    evidence: str
    next_step: str
    severity: Severity = Severity.WARNING


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU.

    Attributes:
        line: As nvidia-smi printed it.
    """

    pid: int
    name: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What is known of the unit's host; None where it could not be read.

    Attributes:
        swap_total: The line of /proc/meminfo.
        journald: Its configuration files, in the order in which they count.
        journal_folder: Whether /var/log/journal is there.
        gpu: Who is on the GPUs.
        unit_pids: Processes of the unit.
    """

    swap_total: str | None = None
    journald: Sequence[UnitFile] | None = None
    journal_folder: bool | None = None
    gpu: Sequence[GpuProcess] = ()
    unit_pids: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the checks look at.

    Attributes:
        properties: Of `systemctl show`.
        files: Fragment and drop-ins, in systemd's order.
        triggers: What starts the unit.
    """

    properties: Mapping[str, str]
    files: Sequence[UnitFile]
    unit: Unit
    host: HostState
    drain: DrainFacts
    triggers: Sequence[Trigger] = ()

    def value(self, name: str) -> str:
        """A property; empty when it was not told."""
        value = self.properties.get(name, "")
        return "" if value == "[not set]" else value

    def words(self, name: str) -> tuple[str, ...]:
        """A property that is a list of names."""
        return listed(self.value(name))

    def span(self, name: str) -> float | None:
        """A property that is a time span, in seconds; None when it was not told."""
        try:
            return seconds_of_property(self.value(name))
        except ValueError:
            return None

    def size(self, name: str) -> int | None:
        """A property that is a number of bytes; None when it is not told or unlimited."""
        text = self.value(name)
        return int(text) if text.isdecimal() and len(text) < 20 and int(text) < 2**63 else None

    def assigned(self, key: str, section: str = "Service") -> Assignment | None:
        """The line that sets it, if any does."""
        return self.unit.last(key, section)

    def evidence(self, name: str, key: str | None = None, section: str = "Service") -> str:
        """The line of a unit file that sets it, or else the property, which is then systemd's default.

        Args:
            name: Of the property.
            key: Of the setting, where it has another name.
            section: Of the setting.
        """
        line = self.assigned(key or name, section)
        shown = f"{name}={self.properties.get(name, '')}"
        return f"{line} ({shown})" if line and line.value not in shown else str(line) if line else shown
