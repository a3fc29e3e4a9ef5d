"""The terminal's table of a run: arms as rows, a block per concurrency, a group of columns per workload.

Laid out by hand rather than by a table widget, because the number of groups side by side follows from the width:
an interval is never cut or wrapped to make room, the next workload moves below instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len, set_cell_size

from draftmark.report import figures
from draftmark.report.view import ALL, AxisView, Figure, ResultView
from draftmark.report.words import against_baseline, at_once, figure_on, role, tie_rule, unit

MARKS = {"choice": "*", "tie": "=", "baseline": " ", "other": " "}
GAP = "  "
LABEL_LIMIT = 20
WIDE = 120


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table and how it is set."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of a group. `detail` columns are shown where there is room to spare."""

    head: str
    show: Callable[[Figure, str], str]
    align: str = ">"
    detail: bool = False


def _ratio(figure: Figure, role_word: str) -> str:
    if role_word == "reference":
        return "baseline"
    return against_baseline(figure.ratio)


ACCEPT = Column("accept", lambda figure, _: figures.length(figure.accept_len))
PER_STEP = Column("tok/step", lambda figure, _: figures.length(figure.tokens_per_step), detail=True)

COLUMNS = (
    Column("tok/s", lambda figure, _: figures.rate(figure.tok_s)),
    Column("ratio (interval)", _ratio, "<"),
    ACCEPT,
    PER_STEP,
    Column("TTFT ms", lambda figure, _: figures.millis(figure.ttft_ms_p50), detail=True),
    Column("TPOT ms", lambda figure, _: figures.millis(figure.tpot_ms_p50), detail=True),
)


def result_table(view: ResultView, width: int) -> list[Row]:
    """The table's lines, none wider than `width` (unless a single group of figures already is)."""
    axes = [axis for axis in view.shown_axes if any(figure_on(arm, axis) for arm in view.measured)]
    if not axes:
        return []
    heads = {at_once(axis.concurrency) for axis in axes}
    longest = max(*(cell_len(arm.label) + 3 for arm in view.measured), *map(cell_len, heads))
    columns = tuple(column for column in COLUMNS if not column.detail)
    per_block = max(sum(1 for _ in group) for _, group in groupby(axes, key=lambda axis: axis.concurrency))
    groups = {axis.name: _group(view, axis, columns) for axis in axes}
    # Arms with knobs differ at the end of long labels, so that these go before workloads side by side.
    widest = max(cell_len(group[0]) for group in groups.values())
    label_width = min(max(LABEL_LIMIT, width - widest), longest)
    room = width - label_width
    side_by_side = _fitting(groups, per_block, room)
    detailed = {axis.name: _group(view, axis, COLUMNS) for axis in axes}
    if width >= WIDE and _fitting(detailed, per_block, room) >= side_by_side:
        groups = detailed
    rows: list[Row] = []
    for concurrency, block in groupby(axes, key=lambda axis: axis.concurrency):
        members = list(block)
        for start in range(0, len(members), side_by_side):
            rows += _block(view, concurrency, members[start : start + side_by_side], groups, label_width)
    return [*rows, *legend] if (legend := _legend(view, axes)) else rows[:-1]  # no blank line before nothing


def _block(
    view: ResultView, concurrency: int, axes: Sequence[AxisView], groups: dict[str, list[str]], label_width: int
) -> list[Row]:
    """A title line, a line of heads, and a line per measured arm."""
    titles = GAP.join(
        set_cell_size(
            f" {'all workloads' if axis.workload == ALL else axis.workload}", cell_len(groups[axis.name][0])
        )
        for axis in axes
    )
    rows = [Row((set_cell_size(at_once(concurrency), label_width) + titles).rstrip(), "bold")]
    labels = ["", *(f"  {arm.label}" for arm in view.measured)]
    for place, label in enumerate(labels):
        cells = GAP.join(groups[axis.name][place] for axis in axes)
        first, *further = _folded(label, label_width)
        rows.append(Row((first + cells).rstrip(), "dim" if place == 0 else ""))
        rows += [Row(line.rstrip()) for line in further]
    return [*rows, Row("")]


def _group(view: ResultView, axis: AxisView, columns: Sequence[Column]) -> list[str]:
    """The heads and the figures of every measured arm on one axis, padded to equal width."""
    pooled = axis.workload == ALL
    seen = [figure for arm in view.measured if (figure := figure_on(arm, axis)) is not None]
    if any(f.tokens_per_step for f in seen) and not any(f.accept_len for f in seen):
        # This server does not count verifications: what a pass brought is the next best.
        columns = [PER_STEP if column is ACCEPT else column for column in columns if column is not PER_STEP]
    shown = [column for column in columns if not (pooled and column.head not in ("tok/s", "ratio (interval)"))]
    table = [[column.head for column in shown]]
    marks = [" "]
    for arm in view.measured:
        figure = figure_on(arm, axis)
        word = role(axis, arm.name, view.baseline)
        marks.append(MARKS[word])
        reference = "reference" if arm.name == view.baseline else word
        table.append([column.show(figure, reference) if figure else figures.UNKNOWN for column in shown])
    widths = [max(cell_len(row[place]) for row in table) for place in range(len(shown))]
    return [
        mark
        + " ".join(
            _align(cell, width, column.align) for cell, width, column in zip(row, widths, shown, strict=True)
        )
        for mark, row in zip(marks, table, strict=True)
    ]


def _fitting(groups: dict[str, list[str]], most: int, room: int) -> int:
    """How many groups stand side by side; at least one."""
    widest = max(cell_len(group[0]) for group in groups.values())
    return max(1, min(most, (room + len(GAP)) // (widest + len(GAP))))


def _legend(view: ResultView, axes: Sequence[AxisView]) -> list[Row]:
    marks = []
    shown = {role(axis, arm.name, view.baseline) for axis in axes for arm in view.measured}
    if "choice" in shown:
        marks.append("* choice")
    if "tie" in shown:
        marks.append(f"= tie ({tie_rule(view)})")
    rows = [Row(GAP.join(marks), "dim")] if marks else []
    levels = dict.fromkeys(axis.concurrency for axis in axes)
    rows += [Row(f"tok/s, {at_once(level)}: {unit(level)}", "dim") for level in levels]
    figures_seen = [f for axis in axes for arm in view.measured if (f := figure_on(arm, axis)) is not None]
    if any(f.accept_len for f in figures_seen):
        rows.append(Row("accept: tokens gained per verification, bonus included", "dim"))
    elif any(f.tokens_per_step for f in figures_seen):
        rows.append(Row("tok/step: output tokens per pass of the model", "dim"))
    return rows


def _align(cell: str, width: int, align: str) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if align == "<" else space + cell


def _folded(label: str, width: int) -> list[str]:
    """A label as lines of this width, broken between its knobs."""
    lines, rest = [label], label
    while cell_len(rest) > width - 1 and (at := rest.rfind(", ", 0, width - 1)) > 0:
        lines[-1], rest = rest[: at + 1], f"    {rest[at + 2 :]}"
        lines.append(rest)
    return [_cut(line, width) for line in lines]


def _cut(text: str, width: int) -> str:
    return set_cell_size(text if cell_len(text) <= width - 1 else set_cell_size(text, width - 2) + "…", width)
