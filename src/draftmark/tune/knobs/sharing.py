"""Between a run and the study that keeps its settings, where other runs' are, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from draftmark.run.records import OTHERS, RunInfo, Slot
from draftmark.tune.knobs.run import Setting, others_of, settings_of
from draftmark.tune.knobs.space import Space
from draftmark.tune.steering import Told

Write = Callable[[str, int | None, dict[str, object] | None], None]


class KnobStudy(Protocol):
    """Keeps settings that were tried, for people and for other runs."""

    def keep(self, own: Sequence[Setting]) -> None:
        """Settings of this run, those known already among them. Idempotent."""
        ...

    def others(self) -> Sequence[Setting]:
        """Settings of other runs: measured, or being measured just now."""
        ...


def share(study: KnobStudy, told: Told, write: Write) -> bool:
    """Tell the study of this run, and the run of the others: as an action, so that the records alone say it all.

    Args:
        study: Where both are kept.
        told: The run so far.
        write: Appends an action.

    Returns:
        Whether others had something new, so that the records say more than `told`.
    """
    run = told.knobs(told.search())
    if run is None:
        return False
    study.keep(settings_of(run))
    others = tuple(other for other in study.others() if other.depth == run.depth)
    if others == others_of(told.record):
        return False
    write(OTHERS, None, {"settings": [msgspec.to_builtins(other) for other in others]})
    return True


def announce(study: KnobStudy, info: RunInfo, slot: Slot) -> None:
    """What this run starts now, so that no other starts the same."""
    space = Space(info.knobs)
    point = space.point(slot.arm)
    if point is not None and point != space.base:
        study.keep([Setting(number=slot.number, depth=slot.arm.depth, levels=space.levels(point))])
