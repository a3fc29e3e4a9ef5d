"""The post-mortem of a trial that ran as a systemd unit: all that its host knows of this one start."""

from __future__ import annotations

from functools import partial

from draftmark.cli import compose_why
from draftmark.cli.trial_postmortem import told_of_a_trial
from draftmark.ports import Failure, Host


class UnitPostMortem:
    """ports.PostMortem."""

    def __init__(self, host: Host, unit: str) -> None:
        self._host = host
        self._unit = unit
        self._since = ""

    def watch(self) -> None:
        """A start is about to be made: what was before it is another story."""
        ended = self._host.run(("date", "-u", "+%Y-%m-%d %H:%M:%S"))
        self._since = ended.stdout.decode("ascii", "replace").strip()

    def examine(self, failure: Failure) -> dict[str, object]:
        """The verdict as a document, secrets hidden by name."""
        from draftmark.postmortem.collect.unit import collect_unit
        from draftmark.postmortem.diagnose import diagnose
        from draftmark.postmortem.document import document
        from draftmark.postmortem.intake import Hints, read_bytes
        from draftmark.report.why_safe import safe

        tables = compose_why.tables()
        read = partial(read_bytes, hints=Hints(tables.literals))
        found = collect_unit(self._host, self._unit, read=read, runs=1, since=self._since or None)
        verdict = diagnose(found.sources, tables=tables, unit=found.unit, unread=found.unread)
        return document(safe(told_of_a_trial(verdict, failure)))
