"""`python -m bench.result_plot RESULT.json OUT.svg [TITLE]`: the figures of a run as a small picture for a page.

Left: each axis against the baseline, with its interval. Right: KV tokens as predicted before the start and as the
server then had them, if it told. The reports have more; this is for documents that show one picture.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7e22ce")
HEIGHT, WIDTH, LEFT, TOP, FOOT = 260, 380, 62, 46, 40


@dataclass(frozen=True, slots=True)
class Line:
    """One series: y with low and high for each place on the axis; None where there is none."""

    name: str
    points: tuple[tuple[float, float, float] | None, ...]
    colour: str
    open: bool = False


def lines_of_ratio(result: dict[str, Any]) -> list[Line]:
    """Each axis, the baseline being 1."""
    found = []
    own = [axis for axis in result["axes"] if not axis["axis"].startswith("all@")]
    for axis, colour in zip(own, COLOURS, strict=False):
        points: list[tuple[float, float, float] | None] = []
        for arm in result["arms"]:
            figure = (arm["axes"] or {}).get(axis["axis"]) if arm["status"] == "measured" else None
            if figure is None or (figure.get("ratio") is None and arm["arm"] != result["baseline"]["arm"]):
                points.append(None)
            elif arm["arm"] == result["baseline"]["arm"]:
                points.append((1.0, 1.0, 1.0))
            else:
                points.append((figure["ratio"], figure["low"], figure["high"]))
        found.append(Line(axis["axis"], tuple(points), colour))
    return found


def lines_of_memory(result: dict[str, Any]) -> list[Line]:
    """KV tokens in thousands, predicted and found."""

    def of(key: str) -> tuple[tuple[float, float, float] | None, ...]:
        counts = [(arm["fit"] or {}) for arm in result["arms"]]
        told = [(fit if key == "fit" else fit.get("actual") or {}).get("kv_tokens") for fit in counts]
        return tuple(None if tokens is None else (tokens / 1e3,) * 3 for tokens in told)

    return [Line("predicted", of("fit"), COLOURS[3], open=True), Line("boot log", of("actual"), COLOURS[2])]


def panel(title: str, lines: list[Line], ticks: list[str], at: int, rule: float | None = None) -> list[str]:
    """One plot, its left edge at `at`."""
    highs = [point[2] for line in lines for point in line.points if point]
    top = _round_up(max([*highs, rule or 0]))
    wide, tall = WIDTH - LEFT - 14, HEIGHT - TOP - FOOT

    def x(place: int) -> float:
        return at + LEFT + wide * (place + 0.5) / len(ticks)

    def y(value: float) -> float:
        return TOP + tall * (1 - value / top)

    out = [f'<text x="{at + LEFT}" y="18" font-weight="600">{escape(title)}</text>']
    for step in range(5):
        value = top * step / 4
        out.append(f'<path d="M{at + LEFT} {y(value):.1f}h{wide}" stroke="#d4d4d8"/>')
        out.append(f'<text x="{at + LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    if rule is not None:
        out.append(f'<path d="M{at + LEFT} {y(rule):.1f}h{wide}" stroke="#52525b" stroke-dasharray="4 3"/>')
    for place, tick in enumerate(ticks):
        out.append(f'<text x="{x(place):.1f}" y="{HEIGHT - FOOT + 18}" text-anchor="middle">{escape(tick)}</text>')
    for number, line in enumerate(lines):
        shift = 4 * (number - (len(lines) - 1) / 2)
        out.extend(_drawn(line, x, y, shift))
        label = at + LEFT + 76 * number
        out.append(f'<circle cx="{label + 5}" cy="33" r="4" {_fill(line)}/>')
        out.append(f'<text x="{label + 14}" y="37">{escape(line.name)}</text>')
    return out


def _drawn(line: Line, x: Any, y: Any, shift: float) -> list[str]:
    out = []
    for (place, a), (after, b) in pairwise((place, p) for place, p in enumerate(line.points) if p):
        ends = f"M{x(place) + shift:.1f} {y(a[0]):.1f}L{x(after) + shift:.1f} {y(b[0]):.1f}"
        out.append(f'<path d="{ends}" stroke="{line.colour}" stroke-opacity=".45"/>')
    for place, point in enumerate(line.points):
        if point:
            middle, low, high = (y(value) for value in point)
            out.append(f'<path d="M{x(place) + shift:.1f} {low:.1f}V{high:.1f}" stroke="{line.colour}"/>')
            out.append(f'<circle cx="{x(place) + shift:.1f}" cy="{middle:.1f}" r="4" {_fill(line)}/>')
    return out


def _fill(line: Line) -> str:
    return f'fill="{"none" if line.open else line.colour}" stroke="{line.colour}" stroke-width="1.5"'


def _round_up(value: float) -> float:
    """The least top that is four steps of a round number."""
    steps = (digit * 10.0**power for power in range(-2, 6) for digit in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8))
    return next((4 * step for step in steps if 4 * step >= value), value)


def drawn(result: dict[str, Any], title: str) -> str:
    """The picture."""
    ticks = [arm["label"].removeprefix("depth ") for arm in result["arms"]]
    memory = lines_of_memory(result)
    shown = any(any(line.points) for line in memory)
    parts = panel(f"{title}: times the baseline, by depth", lines_of_ratio(result), ticks, 0, rule=1.0)
    if shown:
        parts += panel("thousand KV tokens", memory, ticks, WIDTH)
    width = WIDTH * (2 if shown else 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#27272a">\n<rect width="100%" height="100%" '
        f'fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__)
        return 2
    result = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(drawn(result, *sys.argv[3:] or ("",)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
