"""The table of a comparison, and a picture of it: restarts to the right, surfaces solved upwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, FOOT = 640, 360, 58, 34, 24, 46
COLOURS = ("#0b6bcb", "#71717a", "#c2410c", "#15803d", "#7e22ce")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One method on one surface."""

    restarts: int
    regret: float
    misfits: int


def share_within(outcomes: Sequence[Outcome], regret: float = 0.02) -> float:
    """Of surfaces, those on which the choice is so near the best."""
    return sum(o.regret <= regret for o in outcomes) / len(outcomes)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def table(found: Mapping[str, Sequence[Outcome]]) -> str:
    """As Markdown."""
    lines = [
        "| method | within 2 % of the best | restarts, median | 95 % | most | regret, mean | 95 % | did not fit |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, outcomes in found.items():
        restarts, regrets = [o.restarts for o in outcomes], [o.regret for o in outcomes]
        lines.append(
            f"| {name} | {share_within(outcomes):.1%} | {quantile(restarts, 0.5):g} | {quantile(restarts, 0.95):g} "
            f"| {max(restarts)} | {sum(regrets) / len(regrets):.2%} | {quantile(regrets, 0.95):.1%} "
            f"| {sum(o.misfits for o in outcomes)} |"
        )
    return "\n".join(lines)


def drawn(found: Mapping[str, Sequence[Outcome]]) -> str:
    """Each method as a point, with a line from its median to its 95th percentile of restarts."""
    most = max(quantile([o.restarts for o in own], 0.95) for own in found.values()) + 1
    floor = min(int(10 * share_within(own)) / 10 for own in found.values()) if found else 0.0
    floor = min(floor, 0.9)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - FOOT

    def x(restarts: float) -> float:
        return LEFT + wide * restarts / most

    def y(share: float) -> float:
        return TOP + tall * (1.0 - (share - floor) / (1.0 - floor))

    out = [f'<text x="{LEFT}" y="18" font-weight="600">surfaces within 2 % of the best depth, by restarts</text>']
    for tick in range(round(10 * floor), 11):
        out.append(f'<path d="M{LEFT} {y(tick / 10):.1f}h{wide}" stroke="#d4d4d8"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(tick / 10) + 4:.1f}" text-anchor="end">{10 * tick} %</text>')
    out += [
        f'<text x="{x(tick):.1f}" y="{HEIGHT - FOOT + 18}" text-anchor="middle">{tick}</text>'
        for tick in range(0, int(most) + 1, 2)
    ]
    out.append(
        f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 8}" text-anchor="middle">restarts: median, line to the 95th '
        "percentile</text>"
    )
    for number, (name, outcomes) in enumerate(found.items()):
        colour = COLOURS[min(number, len(COLOURS) - 1)]
        restarts = [o.restarts for o in outcomes]
        middle, high = quantile(restarts, 0.5), quantile(restarts, 0.95)
        height = y(share_within(outcomes))
        out.append(f'<path d="M{x(middle):.1f} {height:.1f}H{x(high):.1f}" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<circle cx="{x(middle):.1f}" cy="{height:.1f}" r="5" fill="{colour}"/>')
        side = (x(high) + 8, "start") if x(high) < 0.7 * WIDTH else (x(middle) - 10, "end")
        label = f'<text x="{side[0]:.1f}" y="{height + 4:.1f}" text-anchor="{side[1]}" fill="{colour}">'
        out.append(f"{label}{escape(name)}</text>")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#27272a">\n<rect width="100%" height="100%" '
        f'fill="#fff"/>\n' + "\n".join(out) + "\n</svg>\n"
    )
