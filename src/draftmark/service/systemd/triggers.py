"""Units that start another one by themselves: sockets, timers, paths, and what upholds it.

Between a stop of Draftmark's and its next start they would start it, at a moment of theirs and by the command line
of the trial before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from draftmark.errors import RefusedError
from draftmark.service.systemd.manager import Manager, Properties

_HOW = {
    ".socket": "whenever somebody connects to it",
    ".timer": "when its time has come",
    ".path": "when a file changes",
}
_UPHOLDS = "again at once whenever it is stopped"
_NEEDED_BY = ("RequiredBy", "BoundBy", "WantedBy", "UpheldBy")
"""Whatever starts one of these starts the unit as well."""
_SHOWN = ("Id", "LoadState", "ActiveState", "SubState", "Triggers", "Listen", "NextElapseUSecRealtime", "Paths")


@dataclass(frozen=True, slots=True)
class Trigger:
    """One of them.

    Attributes:
        name: `llm.socket`.
        starts: What it starts: the unit that is looked at, or one that needs it, and so that one too.
        how: When it does, in words.
        active: It does so now; else it would, once it is started itself.
        line: What systemd shows of it.
    """

    name: str
    starts: str
    how: str
    active: bool
    line: str

    @property
    def what(self) -> str:
        """In a sentence."""
        return f"{self.name} starts {self.starts} {self.how}, also between a stop and a start of Draftmark's"


def triggers(manager: Manager, properties: Properties) -> tuple[Trigger, ...]:
    """All that are known to systemd, or have the unit's own name.

    Args:
        manager: Of the unit.
        properties: All of it.
    """
    needing = [name for key in _NEEDED_BY for name in properties.words(key)]
    others = {
        each.get("Id", ""): each.words("TriggeredBy") for each in manager.show_of(needing, "Id", "TriggeredBy")
    }
    unit = manager.unit
    starts = {name: f"{other}, which needs {unit}," for other, names in others.items() for name in names}
    starts |= dict.fromkeys(properties.words("TriggeredBy"), unit)
    stem = unit.removesuffix(".service")
    namesakes = [f"{stem}{suffix}" for suffix in _HOW]
    upholding = properties.words("UpheldBy")
    found = manager.show_of(dict.fromkeys((*starts, *namesakes, *upholding)), *_SHOWN)
    return tuple(_triggers(unit, found, starts, upholding))


def _triggers(
    unit: str, found: list[Properties], starts: dict[str, str], upholding: tuple[str, ...]
) -> Iterator[Trigger]:
    for each in found:
        name = each.get("Id", "")
        started = starts.get(name) or (unit if {unit} & {*each.words("Triggers")} or name in upholding else None)
        if each.get("LoadState") != "loaded" or started is None:
            continue
        state = f"{name}: {each.get('ActiveState', '')} ({each.get('SubState', '')})"
        facts = (f"{key}={each[key]}" for key in _SHOWN[4:] if each.get(key))
        yield Trigger(
            name=name,
            starts=started,
            how=_HOW.get(name[name.rfind(".") :], _UPHOLDS),
            active=each.get("ActiveState") in ("active", "activating"),
            line=", ".join((state, *facts)),
        )


def refuse(manager: Manager, found: tuple[Trigger, ...]) -> None:
    """A unit is not tuned while others start it.

    Raises:
        RefusedError: One does.
    """
    at_work = [trigger for trigger in found if trigger.active]
    if at_work:
        names = Manager(manager.host, " ".join(trigger.name for trigger in at_work), user=manager.user)
        raise RefusedError(
            at_work[0].what,
            evidence=tuple(trigger.line for trigger in at_work),
            next_step=f"{names.for_people('stop')}, tune, {names.for_people('start')}",
        )
