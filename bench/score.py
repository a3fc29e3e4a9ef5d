"""Scores the post-mortem on a folder of labelled cases. `make score` calls it.

    python -m bench.score [CORPUS] [--all] [--json]

Exit status 1 when the score is under what is accepted: 68 of 70 causes (as a share), no false memory cause, the
decisive line cited in 95 % of the cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tests.postmortem.corpus import CORPUS, Answer, Examine, Tally, answer, load

from draftmark.cli.why import examine_paths

GROUPS: dict[str, Callable[[Answer], str]] = {
    "engine": lambda a: str(a.case.label.get("engine")),
    "fidelity": lambda a: str(a.case.label.get("fidelity")),
    "phase": lambda a: str(a.case.label.get("phase")),
    "label's confidence": lambda a: str(a.case.label.get("confidence")),
    "answer's confidence": lambda a: a.confidence or "no answer",
}


def grouped(answers: Sequence[Answer]) -> dict[str, dict[str, Tally]]:
    """Counts by each property of the cases."""
    result = {}
    for title, of in GROUPS.items():
        parts = defaultdict(list)
        for one in answers:
            parts[of(one)].append(one)
        result[title] = {name: Tally.of(parts[name]) for name in sorted(parts)}
    return result


def remarks(one: Answer) -> str:
    """What is wrong with an answer, in words; empty when nothing is."""
    label = one.case.label
    found = [
        "no answer" if one.error else "wrong" if one.wrong else "unsettled" if one.unsettled else "",
        "false OOM" if one.false_memory else "",
        "missed OOM" if one.missed_memory else "",
        "in `not`" if one.hasty else "",
        "" if one.evidence else "decisive line not cited",
        "" if one.phase == label.get("phase") else f"phase {one.phase}, not {label.get('phase')}",
        "" if one.engine in (label.get("engine"), None) else f"engine {one.engine}, not {label.get('engine')}",
    ]
    return " · ".join(filter(None, found))


def failed(one: Answer) -> bool:
    """Whether the answer costs a point; a phase or an engine does not."""
    return not one.right or not one.evidence or one.false_memory


def case_table(answers: Sequence[Answer]) -> Table:
    table = Table("case", "label", "answer", "", "remarks", box=box.SIMPLE, title_justify="left")
    for one in answers:
        wanted = " or ".join(sorted(one.case.accepted))
        said = "[green]" if one.right else "[yellow]" if one.unsettled else "[red]"
        cause = escape(one.error or one.cause)
        table.add_row(one.case.name, wanted, f"{said}{cause}", one.confidence, escape(remarks(one)))
    return table


def total_table(answers: Sequence[Answer]) -> Table:
    heads = ("top-1", "wrong", "unsettled", "false OOM", "missed OOM", "in `not`", "evidence")
    table = Table("", "cases", *heads, box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = [("all", Tally.of(answers))]
    for title, parts in grouped(answers).items():
        rows += [(f"{title}: {name}", tally) for name, tally in parts.items()]
    for name, t in rows:
        counts = (t.wrong, t.unsettled, t.false_memory, t.missed_memory, t.hasty)
        top, evidence = (f"{n} ({n / max(t.cases, 1):.0%})" for n in (t.right, t.evidence))
        table.add_row(name, str(t.cases), top, *map(str, counts), evidence, end_section=name == "all")
    return table


def document(answers: Sequence[Answer]) -> dict[str, object]:
    total = Tally.of(answers)
    return {
        "schema": "draftmark.score/1",
        "accepted": not total.shortfalls,
        "shortfalls": total.shortfalls,
        "seconds": sum(a.seconds for a in answers),
        "total": dataclasses.asdict(total),
        "groups": {
            title: {name: dataclasses.asdict(tally) for name, tally in parts.items()}
            for title, parts in grouped(answers).items()
        },
        "cases": [
            {
                "case": a.case.name,
                "label": sorted(a.case.accepted),
                "cause": a.cause or None,
                "confidence": a.confidence or None,
                "right": a.right,
                "evidence": a.evidence,
                "remarks": remarks(a),
                "cited": a.cited,
                "error": a.error,
                "seconds": a.seconds,
            }
            for a in answers
        ],
    }


def main(words: Sequence[str] | None = None, judge: Examine | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.score", description="Scores the post-mortem.")
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS, help="a folder of labelled cases")
    parser.add_argument("--all", action="store_true", help="also list the cases that are right")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(words)
    examine = judge or examine_paths
    answers = [answer(examine, case) for case in load(options.corpus)]
    total = Tally.of(answers)
    if options.json:
        print(json.dumps(document(answers), indent=1))
        return 1 if total.shortfalls else 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    listed = [a for a in answers if options.all or failed(a)]
    if listed:
        console.print(case_table(listed))
    console.print(total_table(answers))
    seconds = sorted(a.seconds for a in answers) or [0.0]
    console.print(f"{sum(seconds):.2f} s, the slowest case {seconds[-1]:.2f} s", highlight=False)
    for line in total.shortfalls or ("accepted",):
        console.print(line, style="red" if total.shortfalls else "green", highlight=False)
    return 1 if total.shortfalls else 0


if __name__ == "__main__":
    sys.exit(main())
