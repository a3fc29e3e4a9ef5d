"""What the watcher does when a unit has failed: examine, write the report, tell the webhook.

The report is there within seconds: a first look is given little time and the newest lines only. Where that was not
all there is, a second look takes the time it needs, and its report takes the first one's place.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from draftmark.cli import compose_why
from draftmark.errors import BadInputError, DraftmarkError, FailedError, StorageError
from draftmark.service.local import LocalHost
from draftmark.service.watch import keep, notify
from draftmark.service.watch.deaths import Death, Seen, handed_over, journalled, settle, spooled
from draftmark.service.watch.hurry import Hurried
from draftmark.service.watch.places import SYSTEM, Places, Settings, of_user, read_settings

if TYPE_CHECKING:
    from draftmark.ports import Host
    from draftmark.postmortem.model import Verdict

_EACH_S = 1.5
_ALL_S = 2.5
_RUNS = 3
_LOOK_S = 0.2
_POSTING_S = 60.0
_QUICK_LINES = 15_000
"""A journal of more lines is not read whole at the first look: some 50,000 lines take a second."""


def watch(unit: str, *, user: bool) -> int:
    """Deal with what has happened to the unit, until there is nothing left to deal with.

    Raises:
        BadInputError: The unit is not watched.
        StorageError: A report could not be written. The webhook has been told all the same.
        FailedError: The webhook took nothing. The report is there all the same.
    """
    host = LocalHost()
    places = of_user(host) if user else SYSTEM
    settings = read_settings(host, places, unit)
    if settings is None:
        raise BadInputError(
            f"{unit} is not watched",
            evidence=(f"there is no usable {places.settings(unit)}",),
            next_step=f"draftmark watch install unit:{unit}",
        )
    watcher = Watcher(host, places, settings)
    watcher.work()
    return watcher.status()


class Watcher:
    """One unit's.

    Args:
        host: This computer.
        places: Of the unit's manager.
        settings: What was asked for.
    """

    def __init__(self, host: Host, places: Places, settings: Settings) -> None:
        self._host = host
        self._places = places
        self._settings = settings
        self._folder = Path(settings.reports)
        self._spool = Path(places.spool(settings.unit))
        self._seen = Seen(Path(places.folder(settings.unit)))
        self._pace = keep.Pace(Path(places.pace(settings.unit)))
        self._courier = notify.Courier()
        self._failures: list[DraftmarkError] = []

    def work(self) -> None:
        """Report every death that was not reported yet."""
        deaths = self._first()
        give_up_s = time.monotonic()
        while True:
            if deaths:
                self._deal_with(deaths)
                give_up_s = time.monotonic() + _POSTING_S
            elif self._courier.wait(_LOOK_S):
                break
            elif time.monotonic() > give_up_s:
                self._failures.append(FailedError(f"the webhook has not answered for {_POSTING_S:.0f} s"))
                break
            deaths = self._spooled()
        self._failures += self._courier.failures

    def _deal_with(self, deaths: list[Death]) -> None:
        unit = self._settings.unit
        while deaths:
            if os.path.lexists(self._places.tuning(unit)):
                self._seen.add([*deaths, *self._lately()])
                _tell(f"{unit} is being tuned by Draftmark, which keeps post-mortems of its own: nothing to do")
                return
            if (wait := self._pace.wait(time.time())) > 0:
                _tell(f"{unit} fails over and over: its next post-mortem is written in {wait:.0f} s")
                time.sleep(wait)
                deaths += self._spooled()
                self._settings = read_settings(self._host, self._places, unit) or self._settings
                self._folder = Path(self._settings.reports)
            self._report(deaths)
            self._seen.add(deaths)
            deaths = self._spooled() or self._unseen_lately()

    def status(self) -> int:
        """0, or the last failure.

        Raises:
            DraftmarkError: What went wrong last.
        """
        if self._failures:
            raise self._failures[-1]
        return 0

    def _first(self) -> list[Death]:
        """What called the watcher; a start of the unit calls it too, and then the journal is asked."""
        handed = handed_over(os.environ)
        deaths = self._spooled()
        if (
            handed is not None
            and handed not in self._seen
            and all(d.invocation != handed.invocation for d in deaths)
        ):
            deaths.append(handed)
        return deaths or self._unseen_lately()

    def _spooled(self) -> list[Death]:
        return [death for death in spooled(self._spool) if death not in self._seen]

    def _unseen_lately(self) -> list[Death]:
        return [death for death in self._lately() if death not in self._seen]

    def _lately(self) -> list[Death]:
        death = journalled(self._host, self._places, self._settings.unit, self._settings.since_s)
        return [death] if death else []

    def _report(self, deaths: list[Death]) -> None:
        """One report for all of them: a verdict is on the last, and follows a loop back to its beginning."""
        unit, last = self._settings.unit, deaths[-1]
        settle(self._host, self._places, unit, last, monotonic=time.monotonic, sleep=time.sleep)
        when_s = time.time()
        self._pace.note(when_s)
        since = _newest_lines(self._host, self._places, unit)
        hurried = Hurried(self._host, each_s=_EACH_S, all_s=_ALL_S)
        verdict = _examined(hurried, unit, since)
        document = self._kept(verdict, deaths, when_s, None)
        if since is not None or hurried.missed:
            fuller = _examined(self._host, unit, None)
            document = self._kept(fuller, deaths, when_s, document)
        _tell(f"{unit}: {document['cause']} ({document['confidence']}): {document['report']}")
        if self._settings.webhook:
            self._courier.post(self._settings.webhook, self._settings.form, document)

    def _kept(
        self, verdict: Verdict, deaths: list[Death], when_s: float, former: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Write the report; its document, `report` None where it could not be written."""
        name = keep.name_of(when_s, verdict.cause)
        document, forms = _rendered(verdict)
        document |= {
            "host": self._host.name,
            "unit": self._settings.unit,
            "time": datetime.fromtimestamp(when_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "report": str(self._folder / f"{name}.md"),
            "death": asdict(deaths[-1]),
            "deaths": len(deaths),
        }
        forms["json"] = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        try:
            keep.write_report(self._folder, name, forms)
            if former and former["report"] != document["report"] and former["report"]:
                keep.remove_report(self._folder, Path(former["report"]).stem)
            keep.rotate(self._folder, self._settings.keep)
        except OSError as error:
            document["report"] = former["report"] if former else None
            self._failures.append(
                StorageError(
                    f"the post-mortem of {self._settings.unit} could not be written",
                    evidence=(f"{error.strerror}: {error.filename or self._folder}",),
                    next_step=f"make room, then: draftmark why unit:{self._settings.unit}",
                )
            )
        return document


def _tell(text: str) -> None:
    """A line for the watcher's own journal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _newest_lines(host: Host, places: Places, unit: str) -> str | None:
    """Since when to read at the first look; None when all can be read."""
    argv = ("journalctl", "--quiet", "--no-pager", "--reverse", "--output=short-unix", f"--lines={_QUICK_LINES}")
    asked = host.run((*argv, "--user-unit" if places.user else "--unit", unit), timeout_s=_EACH_S)
    lines = asked.stdout.splitlines()
    if len(lines) < _QUICK_LINES:
        return None
    stamp = lines[-1].split(b" ", 1)[0].decode("ascii", "replace")
    return f"@{stamp}" if stamp.replace(".", "", 1).isdigit() else None


def _examined(host: Host, unit: str, since: str | None) -> Verdict:
    """The verdict without secrets. Whatever goes wrong, there is one."""
    from draftmark.postmortem.collect import collect_unit
    from draftmark.postmortem.diagnose import diagnose
    from draftmark.postmortem.intake import Hints, read_bytes
    from draftmark.report.why_safe import safe

    tables = compose_why.tables()
    try:
        read = partial(read_bytes, hints=Hints(tables.literals))
        found = collect_unit(host, unit, read=read, runs=_RUNS, since=since)
        return safe(diagnose(found.sources, tables=tables, unit=found.unit or unit, unread=found.unread))
    except Exception as error:  # a fault of ours must not cost the user the news that his server is down
        return safe(_unexamined(unit, error))


def _unexamined(unit: str, error: Exception) -> Verdict:
    from draftmark.postmortem.model import Confidence, Unread, Verdict
    from draftmark.report.why_words import UNSETTLED

    because = f"the examination failed: {type(error).__name__}: {error}"[:500]
    return Verdict(
        cause=UNSETTLED,
        confidence=Confidence.UNSETTLED,
        summary=f"{unit} failed, and why could not be examined.",
        phase=None,
        not_examined=(Unread("everything", because, f"draftmark why unit:{unit}"),),
        service=unit,
        died=True,
    )


def _rendered(verdict: Verdict) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document, and the forms for people."""
    from draftmark.postmortem.document import document
    from draftmark.report.why_html import render_html
    from draftmark.report.why_markdown import render_markdown
    from draftmark.report.why_names import with_short_names

    shown = with_short_names(verdict)
    page = render_html(shown, compose_why.marker(verdict.cause))
    return document(verdict), {"md": render_markdown(shown).encode(), "html": page.encode()}
