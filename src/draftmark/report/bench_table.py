"""A load run on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from draftmark.report import bench_words as words
from draftmark.report import figures
from draftmark.report.console import hanging, heading, line
from draftmark.report.fields import Document, mapping, mappings, number, text, texts
from draftmark.report.terminal_tables import add_row, table_of


def print_bench(document: Mapping[str, Any], console: Console) -> None:
    """What kind of load it was; latencies and throughput per level; the throughput once more at the end."""
    levels = mappings(document, "levels") or [document]
    if said := words.loop_sentence(document):
        line(console, said)
    if service := text(document, "service"):
        line(console, service, "bold")
    for level in levels:
        _print_level(level, console)
    console.print()
    for level in levels:
        disturbed = ", disturbed: see above" if texts(level, "disturbed") else ""
        if because := text(level, "stopped_because"):
            disturbed = f", {because}{disturbed}"
        hanging(
            console,
            f"{words.level_title(level)}: ",
            f"{figures.rate(number(level, 'output_tok_s'))} tok/s{disturbed}",
            "bold",
        )


def _print_level(level: Document, console: Console) -> None:
    heading(console, words.level_title(level))
    hanging(console, "  ", f"{words.counted(level)}, {words.errors(level)}; {words.rates(level)}")
    further = (words.request_rates(level), words.goodput(level), words.acceptance(level), words.again(level))
    for said in further:
        if said:
            hanging(console, "  ", said)
    table = table_of(("  ms", "<"), *((quantile, ">") for quantile in words.QUANTILES))
    for key, name in words.latencies(level):
        spread = mapping(level, key)
        add_row(table, console, f"  {name}", *(figures.millis(number(spread, q)) for q in words.QUANTILES))
    console.print(table)
    _print_categories(level, console)
    for lead, key, style in (
        ("  note: ", "notes", ""),
        ("  assumed: ", "assumptions", "dim"),
        ("  disturbed: ", "disturbed", "yellow"),
    ):
        for said in texts(level, key):
            hanging(console, lead, said, style)


def _print_categories(level: Document, console: Console) -> None:
    """By kind of text, where there is more than one: speculation differs most between these."""
    kinds = mappings(level, "categories")
    if len(kinds) < 2:
        return
    table = table_of(
        ("  kind of text", "<"), ("requests", ">"), ("TPOT p50, ms", ">"), ("accept length", ">"), ("per step", ">")
    )
    for kind in kinds:
        add_row(
            table,
            console,
            f"  {text(kind, 'name') or figures.UNKNOWN}",
            figures.count(number(kind, "requests")),
            figures.millis(number(mapping(kind, "tpot_ms"), "p50")),
            figures.length(number(kind, "accept_len")),
            figures.length(number(kind, "tokens_per_step")),
        )
    console.print(table)
