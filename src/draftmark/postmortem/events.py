"""Lines → events: what each line means, by the signs. Pure.

Roles of an event (a sign's `role`):

    fault       the line can name a cause (`sign.cause`)
    noise       it looks bad and is ordinary; faults on the same line do not count
    echo        somebody notices a failure elsewhere
    fatal, child-exit, teardown, killed, term, exit, clean-exit, down     how it ended
    stop, drain, client-signal, container-kill, operator, user-manager, host-stop     who asked
    start, starting, weights-begin, weights-end, pool, capture-begin, capture-end, http-up, ready, traffic    phases
    others: details that a rule uses
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from draftmark.postmortem.hints import hints_in
from draftmark.postmortem.model import Line
from draftmark.postmortem.tables import ANY, Sign, Tables
from draftmark.postmortem.tracebacks import Trace, leaves_open, quotes_a_request, read_traces

_VOICES = {
    "systemd": "systemd",
    "init": "systemd",
    "kernel": "kernel",
    "systemd-oomd": "oomd",
    "earlyoom": "earlyoom",
    "nohang": "nohang",
    "systemd-coredump": "coredump",
    "sudo": "sudo",
    "dockerd": "docker",
    "kubelet": "kubelet",
}
_KINDS = r"(?:service|scope|socket|slice|mount|timer|target|swap|path|device|automount)"
_UNIT = re.compile(
    rf"^(?:(?:Unit )?(?P<unit>[^\s:]+\.{_KINDS})(?:: | (?:stop-|final-|start-|failed|entered|changed|has))|"
    rf"(?:Starting|Started|Stopping|Stopped|Finished|Reloading|Failed to start|"
    rf"Dependency failed for) (?P<named>[^\s:]+\.{_KINDS})(?: - |\.|…|$))"
)
_PASTED = re.compile(
    r"^\S+\.(?:service|scope): (?:Main process exited|Failed with result|A process of this unit|"
    r"State '|Killing process|Scheduled restart|Deactivated|Control process exited|Consumed|"
    r"systemd-oomd killed|Watchdog timeout)"
)
"""A line of systemd's that was copied without what stood before it."""
_RECORD = "record"


@dataclass(frozen=True, slots=True)
class Event:
    """One line that means something.

    Attributes:
        order: Place in its stream; several events of one line share it.
        values: Named groups of the sign's expression.
        trace: The traceback whose root exception this line is.
    """

    sign: Sign
    line: Line
    order: int
    values: Mapping[str, str]
    trace: Trace | None = None

    @property
    def role(self) -> str:
        """The sign's role."""
        return self.sign.role

    @property
    def cause(self) -> str:
        """The sign's cause."""
        return self.sign.cause


def voice(line: Line) -> str:
    """Who speaks: `systemd`, `kernel`, …, or `app` for the server and whatever it prints."""
    if not line.ident and _PASTED.match(line.text):
        return "systemd"
    return _VOICES.get(line.ident, "app")


Standing = Mapping[int, Sequence[str]]
"""The hints that stand in each line, by the line's `id`; lines without any are absent."""


def standing_hints(lines: Sequence[Line], tables: Tables) -> Standing:
    """Look once for what makes a line worth reading."""
    found = hints_in([line.text for line in lines], tables.hints)
    return {id(line): hints for line, hints in zip(lines, found, strict=True) if hints}


def read_events(
    lines: Sequence[Line], tables: Tables, standing: Standing | None = None, *, records: bool = False
) -> list[Event]:
    """Events of lines that follow one another; `order` counts from 0.

    Args:
        lines: Of one stream.
        tables: What lines mean.
        standing: From `standing_hints`, where it was looked for before.
        records: The lines are of a state record (`kubectl describe`, `systemctl show`), not of a log.
    """
    found: list[Event] = []
    hinted = standing_hints(lines, tables) if standing is None else standing
    quoted = False
    for order, line in enumerate(lines):
        hints = hinted.get(id(line), ())
        # A request's text may go on in lines of its own, which no logger has stamped.
        if quoted and line.stamp is None and voice(line) == "app":
            quoted = "'" not in line.text
            continue
        quoted = not records and quotes_a_request(line) and leaves_open(line)
        if hints or line.fields:
            found.extend(_line_events(line, order, tables, hints, records=records))
    return _without_floods(found)


_FIRST, _LAST = 200, 100  # of one sign: more of the same proves no more


def _without_floods(events: list[Event]) -> list[Event]:
    """Of a sign that stands in thousands of lines, the first and the last."""
    total = Counter(event.sign.id for event in events)
    if not total or max(total.values()) <= _FIRST + _LAST:
        return events
    seen: Counter[str] = Counter()
    kept = []
    for event in events:
        name = event.sign.id
        seen[name] += 1
        if seen[name] <= _FIRST or seen[name] > total[name] - _LAST:
            kept.append(event)
    return kept


def traces_of(lines: Sequence[Line]) -> list[Trace]:
    """Tracebacks of a stream; `order` counts from the first line given."""
    return read_traces(lines)


def _line_events(line: Line, order: int, tables: Tables, hints: Sequence[str], *, records: bool) -> Iterator[Event]:
    speaker = _RECORD if records else voice(line)
    by_id = tables.of_message_id(line.fields.get("MESSAGE_ID", "")) if line.fields else None
    signs = _candidates(hints, tables)
    if by_id is not None and by_id not in signs:
        signs = (by_id, *signs)
    hits: list[Event] = []
    for sign in signs:
        if sign.voice not in (speaker, ANY) or sign.only_in:
            continue
        match = sign.search(line.text)
        if match is None and sign is not by_id:
            continue
        values = {k: v for k, v in match.groupdict().items() if v is not None} if match else {}
        hits.append(Event(sign, line, order, values))
    if any(hit.role == "noise" for hit in hits) or (speaker == "app" and quotes_a_request(line)):
        hits = [hit for hit in hits if hit.role != "fault"]
    yield from hits


def _candidates(hints: Sequence[str], tables: Tables) -> tuple[Sign, ...]:
    """Signs of which a hint stands in a text, each once, in the tables' order."""
    found = {sign.id for hint in hints for sign in tables.by_hint[hint]}
    return tuple(sorted((tables.by_id[name] for name in found), key=tables.place))


def unit_of(line: Line) -> str:
    """The unit that a line of systemd's is about, if it says so."""
    if line.unit and line.unit != "init.scope":
        return line.unit
    match = _UNIT.match(line.text)
    return (match["unit"] or match["named"]) if match else ""
