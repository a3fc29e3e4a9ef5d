"""Changes that must not change a verdict, over all cases, and removals that must weaken it.

    python -m bench.metamorphic [CORPUS] [--change NAME …] [--case NAME …] [--seed N] [--all]

Exit status 1 when under 99 % of the verdicts stay, when one that does not stay names another cause, or when another
cause is called certain after the decisive lines are gone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tests.postmortem.corpus import CORPUS, load
from tests.postmortem.invariance import LESS, OTHER, SAME, SKIPPED, Outcome, Removal, matrix, removals
from tests.postmortem.metamorphic import CHANGES

from draftmark.cli.why import examine_paths

LEAST = 0.99


def change_table(outcomes: Sequence[Outcome]) -> Table:
    heads = ("cases", "same", "share", "weaker or surer", "unsettled", "other cause", "not applicable", "s")
    table = Table("change", *heads, box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    by_name = defaultdict(list)
    for one in outcomes:
        by_name[one.change].append(one)
        by_name["all"].append(one)
    for name in (*(n for n in by_name if n != "all"), "all"):
        rows = by_name[name]
        kinds = Counter(one.kind for one in rows)
        tried = len(rows) - kinds[SKIPPED]
        weaker = sum(one.weaker for one in rows)
        share = f"{kinds[SAME] / tried:.1%}" if tried else "–"
        cells = (tried, kinds[SAME], share, weaker, kinds[LESS], kinds[OTHER], kinds[SKIPPED])
        table.add_row(name, *map(str, cells), f"{sum(one.seconds for one in rows):.1f}")
    return table


def removal_table(rows: Sequence[Removal]) -> Table:
    table = Table(
        "taken away", "cases", "unsettled", "same cause", "another, not certain", "not allowed", box=box.SIMPLE
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name in dict.fromkeys(row.removal for row in rows):
        mine = [row for row in rows if row.removal == name]
        kinds = Counter(row.kind for row in mine if row.allowed)
        counts = (len(mine), kinds[LESS], kinds[SAME], kinds[OTHER], sum(not row.allowed for row in mine))
        table.add_row(name, *map(str, counts))
    return table


def details(outcomes: Sequence[Outcome], rows: Sequence[Removal], everything: bool) -> Table:
    table = Table("case", "change", "verdict", box=box.SIMPLE)
    for one in outcomes:
        if one.kind in (LESS, OTHER) or (everything and one.weaker):
            table.add_row(one.case, one.change, escape(one.detail))
    for row in rows:
        if not row.allowed or (everything and row.kind == OTHER):
            after = f"{row.before} → {row.cause} ({row.confidence})"
            table.add_row(row.case, f"without {row.removal}", escape(after))
    return table


def skipped(outcomes: Sequence[Outcome]) -> str:
    whys = Counter(f"{one.change}: {one.detail}" for one in outcomes if one.kind == SKIPPED)
    return "\n".join(f"not applicable {count} times: {why}" for why, count in whys.items())


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.metamorphic", description=__doc__)
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS, help="a folder of labelled cases")
    parser.add_argument("--change", action="append", choices=CHANGES, help="only this change; may be repeated")
    parser.add_argument("--case", action="append", help="only this case; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="also list changed confidences and weaker other causes")
    options = parser.parse_args(words)
    cases = [case for case in load(options.corpus) if not options.case or case.name in options.case]
    started = time.perf_counter()
    names = options.change or list(CHANGES)
    outcomes = list(matrix(examine_paths, cases, lambda _n: names, options.seed))
    rows = [] if options.change else list(removals(examine_paths, cases))
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(details(outcomes, rows, options.all))
    console.print(change_table(outcomes))
    if rows:
        console.print(removal_table(rows))
    console.print(skipped(outcomes), highlight=False)
    tried = [one for one in outcomes if one.kind != SKIPPED]
    share = sum(one.kind == SAME for one in tried) / max(len(tried), 1)
    others = sum(one.kind == OTHER for one in tried)
    refused = sum(not row.allowed for row in rows)
    console.print(
        f"{share:.2%} of {len(tried)} verdicts stay, {others} name another cause; "
        f"{refused} of {len(rows)} removals leave what is not allowed; {time.perf_counter() - started:.0f} s",
        highlight=False,
    )
    return 0 if tried and share >= LEAST and not others and not refused else 1


if __name__ == "__main__":
    sys.exit(main())
