"""Tables of the terminal reports: quiet heads, no frame, cells that are safe to print and fold."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from draftmark.report.console import fit_encoding
from draftmark.report.figures import visible


def table_of(*columns: tuple[str, str]) -> Table:
    """An empty table.

    Args:
        columns: Head, and `<` or `>` for the side that its cells keep to.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for head, side in columns:
        table.add_column(head, justify="right" if side == ">" else "left", overflow="fold")
    return table


def add_row(table: Table, console: Console, *cells: str) -> None:
    """One row; what the console cannot print is written out."""
    table.add_row(*(Text(fit_encoding(visible(cell), console)) for cell in cells))
