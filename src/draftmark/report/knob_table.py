"""What a search of knobs found, as a table: which mattered, how much, and which were dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftmark.report import figures
from draftmark.report.fields import flag, mapping, mappings, number, text, texts
from draftmark.report.view import Ratio

HEADS = ("knob", "tried", "ran with", "matters", "most was moved by", "single request", "highest load")
ABOUT = (
    "Ratios are those of one value to what ran, the other knobs left alone, with 95 % intervals, by a model of all "
    "that was measured. A knob that is dropped moved nothing at its ends and was left as it ran."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobView:
    """One knob. `runs` and `most` are None where the engine's own default is meant, or nothing was tried."""

    name: str
    flag: str
    values: tuple[str, ...]
    runs: str | None
    chance: float | None
    dropped: bool
    most: str | None
    latency: Ratio | None
    throughput: Ratio | None


def knobs_in(document: Mapping[str, Any]) -> tuple[KnobView, ...]:
    """Those of a result document; none where none were searched."""
    return tuple(
        KnobView(
            name=text(entry, "knob") or figures.UNKNOWN,
            flag=text(entry, "flag") or figures.UNKNOWN,
            values=tuple(texts(entry, "values")),
            runs=text(entry, "runs"),
            chance=number(entry, "chance"),
            dropped=bool(flag(entry, "dropped")),
            most=text(entry, "most"),
            latency=_ratio(mapping(entry, "latency")),
            throughput=_ratio(mapping(entry, "throughput")),
        )
        for entry in mappings(document, "knobs")
    )


def _ratio(entry: Mapping[str, Any]) -> Ratio | None:
    ratio = number(entry, "ratio")
    return None if ratio is None else Ratio(ratio, number(entry, "low"), number(entry, "high"))


def rows(knobs: tuple[KnobView, ...]) -> list[tuple[str, ...]]:
    """Cells under `HEADS`."""
    return [
        (
            knob.name,
            _span(knob.values),
            knob.runs or "engine's default",
            _matters(knob),
            figures.UNKNOWN if knob.most is None else f"{knob.name}={knob.most}",
            _told(knob.latency),
            _told(knob.throughput),
        )
        for knob in knobs
    ]


def sentences(knob: KnobView) -> list[str]:
    """The same in words: seven columns are more than a terminal has."""
    others = tuple(value for value in knob.values if value != knob.runs)
    matters = _matters(knob).replace("likely", "likely to matter").removeprefix("no: ")
    said = [f"{matters}; ran with {knob.runs or 'the default of the engine'}; tried {_span(others)}"]
    if knob.most is not None:
        moved = [
            f"{_told(ratio)} {where}"
            for ratio, where in ((knob.latency, "for a single request"), (knob.throughput, "at the highest load"))
            if ratio is not None
        ]
        said.append(f"{knob.most} moves most: {', '.join(moved)}")
    return said


def _span(values: tuple[str, ...]) -> str:
    return ", ".join(values) if len(values) <= 4 else f"{values[0]} to {values[-1]}"


def _matters(knob: KnobView) -> str:
    if knob.chance is None:
        return "not tried"
    return "no: dropped" if knob.dropped else f"{knob.chance:.0%} likely"


def _told(ratio: Ratio | None) -> str:
    if ratio is None:
        return figures.UNKNOWN
    return f"{figures.ratio(ratio.ratio)} ({figures.span(ratio.low, ratio.high)})"
