"""Between a run and the study that keeps its settings, where other runs' are, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from draftmark.run.records import OTHERS, RunRecord, Slot
from draftmark.tune.knobs.run import Setting, others_of, settings_of
from draftmark.tune.steering import Told

Write = Callable[[str, int | None, dict[str, object] | None], None]


class KnobStudy(Protocol):
    """Keeps settings that were tried, for people and for other runs."""

    def keep(self, own: Sequence[Setting]) -> None:
        """All of this run, those known already included. Idempotent."""
        ...

    def others(self) -> Sequence[Setting]:
        """Settings of other runs: measured, or being measured just now."""
        ...


def share(study: KnobStudy, record: RunRecord, write: Write, running: Slot | None = None) -> None:
    """Tell the study of this run, and the run of the others: as an action, so that the records alone say it all.

    Args:
        study: Where both are kept.
        record: Of the run.
        write: Appends an action.
        running: What is started now.
    """
    told = Told(record)
    run = told.knobs(told.search())
    if run is None:
        return
    study.keep(settings_of(run, None if running is None else (running.number, running.arm)))
    others = tuple(other for other in study.others() if other.depth == run.depth)
    if running is None and others != others_of(record):
        rows = [msgspec.to_builtins(other) for other in others]
        write(OTHERS, None, {"settings": rows})
