"""Lays a card's texts out for one console: cut, wrapped and in columns, in what its encoding can carry."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from draftmark.report.console import fit_encoding
from draftmark.report.figures import visible
from draftmark.report.why_lines import Marker, fitted

NARROWEST = 60
"""Cells: on a narrower terminal lines are wrapped by the terminal."""
WIDEST = 120
_LONGEST_NAME = 28

Entry = list[Text]


class Pen:
    """Lays text out for one console."""

    def __init__(self, console: Console, marker: Marker) -> None:
        self.console = console
        self.marker = marker
        self.width = min(WIDEST, max(NARROWEST, console.width))
        self.more = fit_encoding("…", console)
        self.dot = fit_encoding(" · ", console)

    def plain(self, text: str) -> str:
        """Foreign text that can be printed here."""
        return fit_encoding(visible(text), self.console)

    def line(self, text: str, room: int, quoted: tuple[str, ...] = ()) -> str:
        """Cut to so many cells, the telling part kept."""
        return fitted(self.plain(text), room, quoted=quoted, marker=self.marker, more=self.more)

    def end(self, text: str, room: int) -> str:
        """The end of a text, where a file's own name and the line's number are."""
        text = self.plain(text)
        if cell_len(text) <= room:
            return text
        return self.more + set_cell_size(text[::-1], room - len(self.more))[::-1]

    def paragraph(self, lead: Text, text: str, most: int, style: str = "") -> Entry:
        """A hanging paragraph of at most so many lines."""
        indent = cell_len(lead.plain)
        room = self.width - indent
        wrapped = [part.plain.rstrip() for part in Text(self.plain(text)).wrap(self.console, room, overflow="fold")]
        if len(wrapped) > most:
            rest = " ".join(wrapped[most - 1 :])
            wrapped = [*wrapped[: most - 1], rest[: max(1, room - len(self.more))].rstrip() + self.more]
            if cell_len(wrapped[-1]) > room:  # wide characters
                wrapped[-1] = fitted(rest, room, more=self.more)
        return [
            Text.assemble(lead if place == 0 else " " * indent, (part, style))
            for place, part in enumerate(wrapped or [""])
        ]

    def lines(self, lead: Text, text: str, most: int, quoted: tuple[str, ...]) -> Entry:
        """A log line on at most so many lines, the telling part kept: a longer one is broken as a terminal does."""
        whole = self.paragraph(lead, text, most + 1)
        if len(whole) <= most:
            return whole
        indent = cell_len(lead.plain)
        parts = chop_cells(self.line(text, most * (self.width - indent) - most, quoted), self.width - indent)
        return [Text.assemble(" " * indent if place else lead, part) for place, part in enumerate(parts)]

    def command(self, command: str) -> Text:
        """A command, left whole, so that it can be copied."""
        return Text.assemble("      ", (self.plain(command), "cyan"))

    def height(self, rows: list[Text]) -> int:
        """Lines on a terminal of this width, where a long command is wrapped."""
        return sum(max(1, math.ceil(cell_len(row.plain) / self.width)) for row in rows)


class Names:
    """Lays out `name  because`, the names of the whole card in one column."""

    def __init__(self, pen: Pen, names: Iterable[str]) -> None:
        self.pen = pen
        fitting = [cell_len(pen.plain(name)) for name in names]
        self._width = max((width for width in fitting if width <= _LONGEST_NAME), default=0)

    def because(self, name: str, because: str, most: int) -> Entry:
        """One entry, of at most so many lines."""
        name = self.pen.end(name, self.pen.width // 2)
        lead = Text.assemble("  ", (padded(name, self._width), "bold"), "  ")
        return self.pen.paragraph(lead, because, min(most, 2))


def padded(text: str, width: int) -> str:
    """The text in a column of so many cells."""
    return text + " " * max(0, width - cell_len(text))
