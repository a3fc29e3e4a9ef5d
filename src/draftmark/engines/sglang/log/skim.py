"""Takes the lines that make up nearly all of a long log, batches and requests, many at a time.

What the grammar does for such a line step by step (the stamp, the kind, the list of `name: value`) is known once
one line of its make was read: the names and their order stay. So makes become one pattern, which goes through many
lines at once; its groups are columns of values. What fits no make is left to the grammar; the result is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from draftmark.engines.sglang.log.serving import ServingReader, value_of

_MOST_MAKES: Final = 16
_MOST_TRIES: Final = 64  # lines that no pattern could be made of

# Narrower than what the grammar takes as a stamp, a value, an access: what is stranger is left to it.
_TIME = r"\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?"
_STAMP = _TIME + r"((?: [A-Z_]+[0-9]+)*)\] "
_NUMBER = r"(?: \[[0-9]+\])?"  # of the batch
_VALUE = r"[^,\[\r\n\x1b]*+"
_ACCESS = _TIME + r'\] INFO: [^"\[\r\n\x1b]*+"[A-Z]+ [^ "\[\r\n\x1b]++ HTTP/[0-9.]++" [0-9]{3}[^\[\r\n\x1b]*+'
_NEVER = r"(?!)"
_OTHER = r"([^\n]*+\n)"
_BATCH = re.compile(rf"{_STAMP}(Decode|Prefill) batch{_NUMBER}, ([^\[\r\n\x1b]*+)\n")

Column = Sequence[str]


@dataclass(frozen=True, slots=True)
class Make:
    """Lines of one kind with the same names in the same order.

    Attributes:
        says: Its text from the kind on, as a pattern: groups are the kind and the values of `names`.
        names: Those of the values that something is made of.
    """

    kind: str
    says: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines of a log, one a row.

    Attributes:
        ranks: What the stamp of a batch says besides the time, " DP0 TP1"; "" in other rows.
        makes: Each with the column of its kind, "" in rows of others, and those of its values.
        others: The lines that fit no make; "" in the other rows.
    """

    ranks: Column
    makes: tuple[tuple[Make, Column, tuple[Column, ...]], ...]
    others: Column

    def left_over(self) -> Iterator[int]:
        """Rows of others."""
        return (row for row, line in enumerate(self.others) if line)

    def count(self, serving: ServingReader, start: int, end: int) -> None:
        """Tell a server's statistics what the rows from `start` to before `end` say."""
        ranks = self.ranks[start:end]
        deaf = {rank for rank in set(ranks) if not serving.hears(rank[1:])}
        rows = [row for row, rank in enumerate(ranks, start) if rank not in deaf] if deaf else None
        figures: dict[str, list[Column]] = {}
        for make, heads, columns in self.makes:
            chosen = [_chosen(each, start, end, rows) for each in (heads, *columns)]
            for figure, column in serving.take_columns(make.kind, make.names, chosen[0], chosen[1:]):
                figures.setdefault(figure, []).append(column)
        for figure, found in figures.items():
            backwards = zip(*map(reversed, found), strict=True)
            serving.last(figure, chain.from_iterable(backwards))


def _chosen(column: Column, start: int, end: int, rows: Sequence[int] | None) -> Column:
    return column[start:end] if rows is None else [column[row] for row in rows]


class Skimmer:
    """Knows the makes that it was shown."""

    def __init__(self) -> None:
        self._makes: list[Make] = []
        self._tries = 0
        self._compile()

    def _compile(self) -> None:
        kinds = "|".join(make.says for make in self._makes) or _NEVER
        self._pattern = re.compile(rf"{_STAMP}(?:{kinds})\n|{_ACCESS}\n|{_OTHER}")

    def read(self, text: str) -> Chunk:
        """Whole lines, each with its end."""
        columns: list[Column] = list(zip(*self._pattern.findall(text), strict=True))
        at, makes = 1, []
        for make in self._makes:
            end = at + 1 + len(make.names)
            makes.append((make, columns[at], tuple(columns[at + 1 : end])))
            at = end
        return Chunk(columns[0], tuple(makes), columns[-1])

    def learn(self, line: str) -> None:
        """Look at a line that was left over: more of its make may follow."""
        if len(self._makes) >= _MOST_MAKES or self._tries >= _MOST_TRIES:
            return
        match = _BATCH.match(line)
        if match is None:
            return
        self._tries += 1
        make = _make(match[2], match[3])
        if make is not None and all(make.says != each.says for each in self._makes):
            self._makes.append(make)
            self._compile()


def _make(kind: str, pairs: str) -> Make | None:
    parts, names = [], []
    for pair in pairs.split(", "):
        name, colon, _ = pair.partition(": ")
        if not colon:
            return None
        value = value_of(kind, name)
        parts.append(f"{re.escape(name)}: " + (_VALUE if value is None else f"({value})"))
        if value is not None:
            names.append(name)
    return Make(kind, f"({kind}) batch{_NUMBER}, {', '.join(parts)}", tuple(names))
