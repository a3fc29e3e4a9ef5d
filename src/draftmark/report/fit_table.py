"""The memory verdict on the terminal: a row a depth, what ends first, and what to change to get more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from draftmark.report import figures
from draftmark.report.console import hanging, line
from draftmark.report.fields import Document, mapping, mappings, number, text, texts
from draftmark.report.terminal_tables import add_row, table_of

_ENDS = {
    "kv-tokens": "KV tokens",
    "state-slots": "state slots",
    "requested-maximum": "the maximum asked for",
    "default-maximum": "the engine's own limit",
    "weights": "weights",
    "graphs": "CUDA graphs",
}


def print_fit(document: Mapping[str, Any], console: Console) -> None:
    """The verdict on every depth."""
    head = " ".join(filter(None, (text(document, "engine"), text(document, "version"))))
    source = text(document, "calibrated_from")
    cards = ", ".join(
        f"{text(gpu, 'name')} ({number(gpu, 'total_mib'):,.0f} MiB)" for gpu in mappings(document, "gpus")
    )
    hanging(console, f"{head}  ", f"calibrated from {source}" if source else cards or "no card", "bold")
    arms = mappings(document, "arms")
    console.print()
    console.print(_table(arms, console))
    for arm in arms:
        if not _adaptive(arm) and arm not in (_deepest(arms), *_first_that_does_not(arms)):
            continue
        console.print()
        hanging(console, f"{_depth(arm)}: ", _verdict(arm), "bold")
        for because in texts(arm, "because"):
            hanging(console, "  ", because)
        for lever in texts(arm, "to_get_more"):
            hanging(console, "  more: ", lever, "green")
    console.print()
    for assumption in texts(document, "assumptions"):
        hanging(console, "assumed: ", assumption, "dim")
    line(console, _sentence(arms), "bold")


def _deepest(arms: list[Document]) -> Document | None:
    fitting = [arm for arm in arms if arm.get("fits") is True]
    return max(fitting, key=lambda arm: number(arm, "depth") or 0.0, default=None)


def _first_that_does_not(arms: list[Document]) -> list[Document]:
    """Those that cannot be told, and the first that does not start: the deeper ones lack the same."""
    steady = [arm for arm in arms if arm.get("fits") is not True and not _adaptive(arm)]
    none = next((at for at, arm in enumerate(steady) if arm.get("fits") is False), len(steady))
    return steady[: none + 1]


def _table(arms: list[Document], console: Console) -> Table:
    slots = any(number(arm, "state_slots") is not None for arm in arms)
    heads = [("depth", "<"), ("fits", "<"), ("KV tokens", ">"), ("from", ">"), ("to", ">")]
    heads += [("at once", ">"), *((("slots", ">"),) if slots else ()), ("ends first", "<")]
    table = table_of(*heads)
    for arm in arms:
        low, high = mapping(arm, "low"), mapping(arm, "high")
        cells = [
            _depth(arm),
            {True: "yes", False: "no"}.get(arm.get("fits"), "unsure"),  # type: ignore[arg-type]
            *(_count(number(each, "kv_tokens")) for each in (arm, low, high)),
            _count(number(arm, "max_running_requests")),
            *((_count(number(arm, "state_slots")),) if slots else ()),
            _ENDS.get(text(arm, "binding") or "", figures.UNKNOWN),
        ]
        add_row(table, console, *cells)
    return table


def _adaptive(arm: Document) -> bool:
    return "adaptive" in (text(arm, "arm") or "")


def _depth(arm: Document) -> str:
    depth = number(arm, "depth")
    if _adaptive(arm):
        return "adaptive"
    return "off" if not depth else f"{depth:.0f}"


def _count(value: float | None) -> str:
    return figures.UNKNOWN if value is None else f"{value:,.0f}"


def _verdict(arm: Document) -> str:
    if arm.get("fits") is None:
        return "whether it starts cannot be told"
    return "starts" if arm.get("fits") else "does not start"


def _sentence(arms: list[Document]) -> str:
    none = [_depth(arm) for arm in arms if arm.get("fits") is False]
    unsure = [_depth(arm) for arm in arms if arm.get("fits") is None]
    parts = [f"{len(arms) - len(none) - len(unsure)} of {len(arms)} fit"]
    parts += [f"does not: {', '.join(none)}"] if none else []
    parts += [f"cannot be told: {', '.join(unsure)}"] if unsure else []
    return "; ".join(parts) + "."
