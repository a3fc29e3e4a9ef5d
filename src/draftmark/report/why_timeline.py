"""The drawing of a timeline: a lane for each writer, times to scale, long silences marked as such.

Made of positioned elements, so that it fits any width and its texts keep their size; dots are links to the list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from draftmark.postmortem.model import Moment
from draftmark.report import why_words as words
from draftmark.report.figures import duration, visible
from draftmark.report.tags import Markup, tag
from draftmark.report.why_axis import Axis, axis

MOST_LANES = 12
_MOST_ROWS = 6
_APART = 4.5
"""Percent of the axis between two dots in a row, so that they do not touch on a phone."""

_SYSLOG = re.compile(
    r"(?:^|\s)(?P<who>systemd-oomd|systemd|kernel|earlyoom|dockerd|containerd|kubelet)(?:\[\d+\])?:\s"
)
_RANK = re.compile(r"\b(?P<who>(?:DP\d+ )?(?:TP\d+|PP\d+)(?: EP\d+)?)\]|^\[(?P<rank>rank\d+)\]")
_PROCESS = re.compile(r"\((?P<who>(?:EngineCore|APIServer|Worker|VllmWorker)[\w-]*)(?: pid=\d+)?\)")


def chart(moments: Sequence[Moment]) -> Markup | None:
    """The drawing and its key; None when fewer than two moments have a time on one clock."""
    scale = axis([moment.evidence.time for moment in moments], [moment.at for moment in moments])
    if scale is None:
        return None
    lanes: dict[str, list[int]] = {}
    for number, place in enumerate(scale.places):
        if place is not None:
            name = writer(moments[number])
            lanes.setdefault(name if name in lanes or len(lanes) < MOST_LANES - 1 else "others", []).append(number)
    background = _background(moments, scale)
    return tag(
        "div",
        tag(
            "div",
            *(_lane(name, numbers, moments, scale, background) for name, numbers in lanes.items()),
            _gaps(scale),
            _scale(scale),
            class_="chart",
            role="group",
            aria_label="Timeline, to scale; the list below has the same entries",
        ),
        tag("p", class_="line", id="line", aria_live="polite"),
        _key(moments, scale),
    )


def writer(moment: Moment) -> str:
    """Who wrote the line: a supervisor, the kernel, a rank or process of the engine; else the source."""
    head = moment.evidence.text[:200]
    for form in (_SYSLOG, _RANK, _PROCESS):
        if match := form.search(head):
            return str(next(filter(None, match.groups())))
    return moment.evidence.file


def _at(left: float) -> str:
    return f"--at:{left:.2f}%"


def _background(moments: Sequence[Moment], scale: Axis) -> list[Markup]:
    """What every lane shows: the stretches not to scale, and the time of the cause."""
    marks = [tag("i", class_="gap", style=f"{_at(gap.left)};--wide:{gap.width:.2f}%") for gap in scale.breaks]
    causes = {
        place
        for moment, place in zip(moments, scale.places, strict=True)
        if moment.role == "cause" and place is not None
    }
    return marks + [tag("i", class_="rule", style=_at(place)) for place in sorted(causes)]


def _lane(
    name: str, numbers: Sequence[int], moments: Sequence[Moment], scale: Axis, background: Sequence[Markup]
) -> Markup:
    ends: list[float] = []  # of each row
    dots = []
    for number in sorted(numbers, key=lambda n: (scale.places[n] or 0.0, n)):
        left = scale.places[number] or 0.0
        row = next((i for i, end in enumerate(ends) if left - end >= _APART), len(ends))
        if row == len(ends) and row < _MOST_ROWS:
            ends.append(left)
        row = min(row, _MOST_ROWS - 1)
        ends[row] = left
        dots.append(_dot(number, moments[number], left, row))
    rows = f"--rows:{max(1, len(ends))}"
    return tag(
        "div",
        tag("span", visible(name)),
        tag("div", *background, *dots, class_="track", style=rows),
        class_="lane",
    )


def _dot(number: int, moment: Moment, left: float, row: int) -> Markup:
    kind = moment.role if moment.role in words.ROLE else "state"
    said = ", ".join(part for part in (moment.evidence.time, words.ROLE[kind], moment.what) if part)
    return tag(
        "a",
        href=f"#m{number}",
        class_=f"dot {kind}",
        style=f"{_at(left)};--row:{row}",
        aria_label=visible(f"{said} ({words.place(moment.evidence)})"),
        data_moment=f"m{number}",
        data_order=str(number),
    )


def _gaps(scale: Axis) -> Markup | None:
    """How long the stretches are that are not drawn to scale."""
    if not scale.breaks:
        return None
    labels = [
        tag(
            "span",
            duration(gap.seconds),
            style=_at(gap.left + gap.width / 2),
            class_=_end(gap.left + gap.width / 2),
        )
        for gap in scale.breaks
    ]
    return tag("div", tag("span", "not to scale"), tag("div", *labels, class_="scale"), class_="lane gaps")


def _scale(scale: Axis) -> Markup:
    ticks = [tag("span", tick.label, style=_at(tick.left), class_=_end(tick.left)) for tick in scale.ticks]
    return tag("div", tag("span", scale.day or ""), tag("div", *ticks, class_="scale"), class_="lane axis")


def _end(left: float) -> str | None:
    """How a label is set: from its place at the left edge, up to it at the right."""
    return "first" if left < 10 else "last" if left > 90 else "mid"


def _key(moments: Sequence[Moment], scale: Axis) -> Markup:
    seen = {moment.role if moment.role in words.ROLE else "state" for moment in moments}
    entries = [tag("li", tag("i", class_=f"dot {role}"), name) for role, name in words.ROLE.items() if role in seen]
    if scale.breaks:
        entries.append(tag("li", tag("i", class_="gap"), "nothing of note, not to scale"))
    unplaced = sum(place is None for place in scale.places)
    if unplaced:
        entries.append(tag("li", f"{unplaced} without a time on this clock: in the list only"))
    return tag("ul", *entries, class_="key")
