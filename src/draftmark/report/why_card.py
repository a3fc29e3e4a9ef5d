"""A verdict on the terminal: a card of at most 40 lines, so that it is seen without scrolling.

What does not fit is counted (`… and 3 more`), never dropped in silence; `--json` has it all.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from draftmark.model import Evidence
from draftmark.postmortem.model import Verdict
from draftmark.report import why_words as words
from draftmark.report.why_lines import Marker, Stamped, no_marker, said_in, without_stamp
from draftmark.report.why_pen import Entry, Names, Pen, padded

MOST_LINES = 40
_LONGEST_PLACE = 30


@dataclass(slots=True)
class _Section:
    """A titled list.

    Attributes:
        entries: Laid out; no more than a card has lines.
        total: Entries of the verdict.
        least: Entries that stay while another section has more to give.
        shown: Entries shown now.
    """

    title: str
    entries: list[Entry]
    total: int
    least: int
    shown: int = 0

    @property
    def hidden(self) -> int:
        return self.total - self.shown


def print_card(verdict: Verdict, console: Console, marker: Marker = no_marker) -> None:
    """The card. The verdict has gone through `why_safe.safe` before.

    Args:
        verdict: What to say.
        console: Where; its width is used between 60 and 120 columns.
        marker: Tells where in a line the proof is, for lines that must be cut.
    """
    for row in card(verdict, console, marker):
        console.print(row, soft_wrap=True)


def card(verdict: Verdict, console: Console, marker: Marker = no_marker) -> list[Text]:
    """The card's lines; together they take no more than 40 on a terminal of the console's width."""
    pen = Pen(console, marker)
    for most in (3, 2, 1):  # lines a paragraph may take
        head, sections = _head(verdict, pen), _sections(verdict, pen, most)
        _shorten(pen, head, sections, by_least=most > 1)
        rows = _rows(pen, head, sections)
        if pen.height(rows) <= MOST_LINES:
            break
    return rows


def _head(verdict: Verdict, pen: Pen) -> list[Text]:
    healthy = verdict.cause in words.HEALTHY
    rows = [
        Text.assemble(
            (pen.plain(verdict.cause), "bold green" if healthy else "bold"), f"  {words.sureness(verdict)}"
        )
    ]
    if subject := words.subject(verdict):
        rows += pen.paragraph(Text(), pen.dot.join(subject), 2, "dim")
    rows.append(Text())
    rows += pen.paragraph(Text(), verdict.summary, 4)
    if root := words.root(verdict):
        rows += pen.paragraph(Text(), root, 2, "yellow")
    return rows


def _sections(verdict: Verdict, pen: Pen, most: int) -> list[_Section]:
    advice = [pen.paragraph(Text("  "), said, most) for said in verdict.advice[:MOST_LINES]]
    names = _names(verdict, pen)
    sections = [
        _Section(words.EVIDENCE, _evidence(verdict, pen, most), len(verdict.evidence), 3),
        _Section(words.SETTLE, _candidates(verdict, names, most), len(verdict.candidates), 3),
        _Section(words.RULED_OUT, _refuted(verdict, names, most), len(verdict.ruled_out), 2),
        _Section(words.FOLLOWED, _consequences(verdict, pen), len(verdict.consequences), 1),
        _Section(words.NOT_EXAMINED, _unread(verdict, names, most), len(verdict.not_examined), 2),
        _Section(words.ADVICE, advice, len(verdict.advice), 2),
    ]
    return [section for section in sections if section.entries]


def _evidence(verdict: Verdict, pen: Pen, most: int) -> list[Entry]:
    quoted = said_in(verdict.summary)
    return _proofs([(item, "") for item in verdict.evidence[:MOST_LINES]], pen, quoted, lines=most)


def _consequences(verdict: Verdict, pen: Pen) -> list[Entry]:
    return _proofs([(item.evidence, item.what) for item in verdict.consequences[:MOST_LINES]], pen, (), lines=1)


def _proofs(items: list[tuple[Evidence, str]], pen: Pen, quoted: tuple[str, ...], *, lines: int) -> list[Entry]:
    """Place, time, and the line or what it means; the first two may take more than one line."""
    taken = [without_stamp(item.text, item.time) for item, _ in items]
    one_day = len({stamped.date for stamped in taken if stamped.date}) <= 1
    places = [pen.end(words.place(item), min(_LONGEST_PLACE, pen.width // 3)) for item, _ in items]
    clocks = [pen.end(_clock(stamped, one_day=one_day), pen.width // 4) for stamped in taken]
    width = max(map(cell_len, places), default=0)
    clock_width = max(map(cell_len, clocks), default=0)
    found = []
    for number, ((_, what), stamped, where, clock) in enumerate(zip(items, taken, places, clocks, strict=True)):
        lead = Text.assemble("  ", (padded(where, width), "dim"), "  ")
        if clock_width:
            lead.append(f"{padded(clock, clock_width)}  ", "dim")
        said = what or stamped.text
        room = pen.width - cell_len(lead.plain)
        if number < 2 and lines > 1:
            found.append(pen.lines(lead, said, lines, quoted))
        else:
            found.append([lead.append(pen.line(said, room, quoted))])
    return found


def _clock(stamped: Stamped, *, one_day: bool) -> str:
    return stamped.clock if one_day or not stamped.date else f"{stamped.date} {stamped.clock}"


def _names(verdict: Verdict, pen: Pen) -> Names:
    causes = [*(item.cause for item in verdict.ruled_out), *(item.cause for item in verdict.candidates)]
    return Names(pen, [*causes, *(item.source for item in verdict.not_examined)])


def _refuted(verdict: Verdict, names: Names, most: int) -> list[Entry]:
    found = []
    for item in verdict.ruled_out[:MOST_LINES]:
        where = f" ({words.place(item.evidence[0])})" if item.evidence else ""
        found.append(names.because(item.cause, f"{item.because}{where}", most))
    return found


def _candidates(verdict: Verdict, names: Names, most: int) -> list[Entry]:
    shown: set[str] = set()
    return [
        names.because(item.cause, item.because, most) + _command(item.command, names.pen, shown)
        for item in verdict.candidates[:MOST_LINES]
    ]


def _unread(verdict: Verdict, names: Names, most: int) -> list[Entry]:
    """What was not read and how to read it; a command that stands with a candidate is not repeated."""
    shown = {item.command for item in verdict.candidates}
    return [
        names.because(item.source, item.because, most) + _command(item.command, names.pen, shown)
        for item in verdict.not_examined[:MOST_LINES]
    ]


def _command(command: str, pen: Pen, shown: set[str]) -> Entry:
    """The command's line, unless it is on the card already."""
    if not command or command in shown:
        return []
    shown.add(command)
    return [pen.command(command)]


# --- how much of it ------------------------------------------------------------------------------------------

# Who gives first.
_GIVING = (words.FOLLOWED, words.RULED_OUT, words.EVIDENCE, words.ADVICE, words.NOT_EXAMINED, words.SETTLE)


def _shorten(pen: Pen, head: list[Text], sections: list[_Section], *, by_least: bool) -> None:
    """Hide entries, the least telling section's last ones first, until the card is short enough.

    Args:
        pen: Measures.
        head: Stays as it is.
        sections: Their `shown` is set.
        by_least: Stop at each section's least, and leave it to the caller to write more tersely.
    """
    for section in sections:
        section.shown = len(section.entries)
    order = sorted(sections, key=lambda section: _GIVING.index(section.title))
    for most in (None,) if by_least else (None, 1, 0):
        while pen.height(_rows(pen, head, sections)) > MOST_LINES:
            giver = next((s for s in order if s.shown > (s.least if most is None else most)), None)
            if giver is None:
                break
            giver.shown -= 1


def _rows(pen: Pen, head: list[Text], sections: list[_Section]) -> list[Text]:
    rows = list(head)
    for section in sections:
        rows += [Text(), Text(section.title, "bold")]
        for entry in section.entries[: section.shown]:
            rows += entry
        if section.hidden:
            said = f"{section.hidden} more" if section.shown else f"{section.hidden} in all"
            rows.append(Text(f"  {pen.more} {'and ' if section.shown else ''}{said} (--json)", "dim"))
    return rows
