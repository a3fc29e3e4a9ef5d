"""Which lines of a large source are kept: head, tail, those with a hint, and what belongs to them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from draftmark.postmortem.intake.limits import MIB, Limits
from draftmark.postmortem.intake.matcher import matcher
from draftmark.postmortem.intake.scan import OPENING, LongLine, clipped

# Lines that open a block, and how many lines of another kind (other ranks, other services) may interrupt it.
_OPENERS = (
    (OPENING, 6),
    (b"invoked oom-killer", 60),
    (b"Call Trace", 20),
    (b"Fatal Python error", 6),
    (b"terminate called", 6),
    (b"stack trace", 6),
    (b"backtrace", 6),
)
_PATIENCE = 1
_WORDS = (
    *(b'  File "', b"Traceback (most", b"During handling of", b"The above exception", b"^^^", b"frame #", b" 0x"),
    *(b"Error", b"Exception", b"Interrupt"),
)
_INDENTED = re.compile(rb"[:\])|] {3,20}\S")
_WINDOW = 1 << 16
_OPEN_LINE = MIB
_KEPT_BYTES = 48 * MIB
_LAST_OF_BLOCK = 16
_IDLE_BLOCKS = 8
_MAX_CHANGES = 6  # each costs a tenth of a second
_LAST_LINES = 40
_LAST_BYTES = 1 << 13
_LATE_BLOCKS = 8
_TAIL_BYTES = 16 * MIB


Places: TypeAlias = dict[int, list[int]]
"""By hint: offsets in a block."""


class Block:
    """Whole lines of a source, and the numbers of their lines.

    Args:
        data: Ends with a newline.
        first: Number of its first line.
    """

    def __init__(self, data: bytes, first: int) -> None:
        self.data = data
        self.first = first
        self.starts: list[int] = []
        self._before: list[int] = []
        self.lines = 0

    def windows(self) -> Iterator[tuple[int, int]]:
        """Start and end of runs of whole lines, some 64 kB each; their lines are counted on the way."""
        data, at = self.data, 0
        while at < len(data):
            end = data.rfind(b"\n", at, at + _WINDOW) + 1 or data.find(b"\n", at + _WINDOW) + 1
            self.starts.append(at)
            self._before.append(self.lines)
            self.lines += data.count(b"\n", at, end)
            yield at, end
            at = end

    def number(self, offset: int) -> int:
        """Of the line that holds an offset."""
        window = bisect_right(self.starts, offset) - 1
        return self.first + self._before[window] + self.data.count(b"\n", self.starts[window], offset)

    def start(self, offset: int) -> int:
        """Of the line that holds an offset."""
        return self.data.rfind(b"\n", 0, offset) + 1

    def end(self, offset: int) -> int:
        """Of the line that holds an offset: its newline."""
        return self.data.find(b"\n", offset)

    def hits(self, literal: bytes, at: int, end: int) -> list[int]:
        """The first place of a literal in each line of a window."""
        found: list[int] = []
        place = self.data.find(literal, at, end)
        while place >= 0:
            found.append(place)
            place = self.data.find(literal, self.end(place), end)
        return found

    def last_hits(self, literal: bytes, windows: list[tuple[int, int]], most: int) -> list[int]:
        """The last places of a literal, one a line, in order."""
        found: list[int] = []
        for at, end in reversed(windows):
            place = self.data.rfind(literal, at, end)
            while place >= 0 and len(found) < most:
                found.append(place)
                place = self.data.rfind(literal, at, self.start(place))
            if len(found) >= most:
                break
        return found[::-1]


def patience(line: bytes) -> int:
    """How many lines of another kind may interrupt the block that a line opens."""
    return next((patience for opener, patience in _OPENERS if opener in line), _PATIENCE)


def continues(line: bytes) -> bool:
    """Whether a line may belong to the block of lines above it: indented, behind a prefix or not, or a frame."""
    if not line or line[0] in b" \t":
        return True
    start = line[:400]
    return _INDENTED.search(start) is not None or any(word in start for word in _WORDS)


def around(block: Block, place: int) -> list[tuple[int, bytes]]:
    """A hit's line with its neighbours, and a short block, where it opens one."""
    start = block.start(place)
    number = block.number(start)
    lines = []
    if start:
        lines.append((number - 1, block.data[block.start(start - 1) : start - 1]))
    following = block.data[start : max(start + _LAST_BYTES, block.end(place) + 1)].split(b"\n", _LAST_LINES + 1)[
        :-1
    ]
    allowed = patience(following[0])
    misses = 0
    for further, line in enumerate(following):
        misses = misses + 1 if further and (allowed == _PATIENCE or not continues(line)) else 0
        if misses > allowed:
            break
        lines.append((number + further, line))
    return lines


class LastHits:
    """The last lines of the hints that flood a source.

    The last blocks are held as they are: what is in them is looked at when they go, unless later ones had enough.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rings: dict[int, deque[list[tuple[int, bytes]]]] = {}
        self._late: deque[tuple[Block, Places]] = deque()

    def add(self, block: Block, last: Places) -> None:
        """Places of hints in a block, the last ones of each."""
        if last or self._late:
            self._late.append((block, last))
        if len(self._late) > _LATE_BLOCKS:
            self._resolve()

    def _resolve(self) -> None:
        block, last = self._late.popleft()
        for index, places in last.items():
            later = sum(len(others.get(index, ())) for _, others in self._late)
            if places and later < self._most // 2:
                ring = self._rings.setdefault(index, deque(maxlen=self._most))
                ring.extend(around(block, place) for place in places)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """All that is left."""
        while self._late:
            self._resolve()
        for ring in self._rings.values():
            for lines in ring:
                yield from lines


class Selection:
    """Fed with the blocks of a source, it keeps the lines that matter.

    A hint that floods the source is only followed by its last hits; memory is bounded by what `Limits` says.
    """

    def __init__(self, literals: tuple[bytes, ...], limits: Limits) -> None:
        self.size_bytes = 0
        self.total_lines = 0
        self._limits = limits
        self._literals = literals
        self._apart: dict[int, int] = {}  # flooding hints that are looked for on their own → blocks without one
        self._changes = 0
        self._follow_together()
        self._counts = [0] * len(literals)
        self._left_out = [False] * len(literals)
        self._last = LastHits(limits.last_hits)
        self._kept: dict[int, list[bytes]] = {}
        self._kept_bytes = 0
        self._carry = b""
        self._long: LongLine | None = None
        self._before = b""
        self._ends: deque[Block] = deque()
        self._left = self._misses = self._patience = 0  # of the block of lines that a hit opened

    def flooded(self) -> tuple[bytes, ...]:
        """The hints of which lines were left out."""
        return tuple(literal for literal, left in zip(self._literals, self._left_out, strict=True) if left)

    def read(self, block: bytes) -> None:
        """The next bytes of the source."""
        self.size_bytes += len(block)
        if self._long is not None:
            end = block.find(b"\n")
            self._long.add(block if end < 0 else block[:end])
            if end < 0:
                return
            self._end_long_line()
            block = block[end + 1 :]
        data = self._carry + block if self._carry else block
        cut = data.rfind(b"\n") + 1
        if cut:
            self._take(data[:cut] if cut < len(data) else data)
        self._carry = data[cut:]
        if len(self._carry) > _OPEN_LINE:
            self._long = LongLine(self._literals)
            self._long.add(self._carry)
            self._carry = b""

    def finish(self) -> Iterator[tuple[int, list[bytes]]]:
        """What was kept, by number. No more may be read."""
        if self._long is not None:
            self._end_long_line()
        elif self._carry:
            self._take(self._carry + b"\n")
        for block in self._ends:
            first = max(block.first, self.total_lines - self._limits.tail_lines + 1)
            for number, line in enumerate(block.data.split(b"\n")[first - block.first : -1], first):
                self._kept.setdefault(number, clipped(line, self._literals))
        for number, line in self._last.lines():
            self._kept.setdefault(number, clipped(line, self._literals))
        for number in sorted(self._kept):
            yield number, self._kept.pop(number)

    def _end_long_line(self) -> None:
        assert self._long is not None  # noqa: S101 - both callers have one
        self.total_lines += 1
        pieces = self._long.pieces()
        if self._kept_bytes < _KEPT_BYTES:
            self._kept[self.total_lines] = pieces
            self._kept_bytes += sum(map(len, pieces))
        self._long, self._before = None, b""

    def _take(self, data: bytes) -> None:
        """Whole lines."""
        block = Block(data, self.total_lines + 1)
        hits, last = self._search(block)
        if block.first <= self._limits.head_lines:
            wanted = self._limits.head_lines - block.first + 1
            for number, line in enumerate(data.split(b"\n", wanted)[:-1][:wanted], block.first):
                self._store(number, line)
        self._keep(block, hits)
        self._last.add(block, last)
        self.total_lines += block.lines
        self._before = data[block.start(len(data) - 1) : -1]
        self._remember(block)

    def _remember(self, block: Block) -> None:
        """The last blocks, as far as the tail may need them."""
        self._ends.append(block)
        while len(self._ends) > 1:
            rest = sum(end.lines for end in self._ends) - self._ends[0].lines
            size = sum(len(end.data) for end in self._ends)
            if rest < self._limits.tail_lines and size < _TAIL_BYTES:
                break
            self._ends.popleft()

    def _follow_together(self) -> None:
        """Looks for all hints at once, but for those that flood."""
        self._together = [index for index in range(len(self._literals)) if index not in self._apart]
        self._found = matcher(tuple(self._literals[index] for index in self._together))

    def _search(self, block: Block) -> tuple[list[int], Places]:
        """Places of hints; and of those that flood the source, the last of this block."""
        hits: list[int] = []
        flooding: dict[int, list[tuple[int, int]]] = {}
        view = memoryview(block.data)
        full = len(self._kept) > self._limits.kept_lines or self._kept_bytes > _KEPT_BYTES
        for at, end in block.windows():
            for index in map(self._together.__getitem__, self._found(view[at:end])):
                if full or self._counts[index] >= self._limits.hits_per_hint:
                    flooding.setdefault(index, []).append((at, end))
                    self._left_out[index] = True
                else:
                    found = block.hits(self._literals[index], at, end)
                    self._counts[index] += len(found)
                    hits += found
        whole = [(0, len(block.data))]
        last = {
            index: block.last_hits(self._literals[index], flooding.get(index, whole), _LAST_OF_BLOCK)
            for index in (*flooding, *self._apart)
        }
        self._sort_out(block, last, flooding)
        return sorted(hits), last

    def _sort_out(self, block: Block, last: Places, flooding: dict[int, list[tuple[int, int]]]) -> None:
        """A search for all hints is slow where one is in every line: such a one is looked for alone, backwards."""
        dense = {index for index, windows in flooding.items() if len(windows) > len(block.starts) // 2}
        for index in self._apart:
            self._apart[index] = 0 if last[index] else self._apart[index] + 1
        idle = {index for index, blocks in self._apart.items() if blocks >= _IDLE_BLOCKS}
        if (dense or idle) and self._changes < _MAX_CHANGES:
            self._changes += 1
            self._apart = {index: n for index, n in self._apart.items() if index not in idle} | dict.fromkeys(
                dense, 0
            )
            self._follow_together()

    def _keep(self, block: Block, hits: list[int]) -> None:
        """The lines of the hits, a line either side, and the blocks that they open."""
        done, index = 0, 0
        if self._left:
            done, index = self._follow(block, 0, hits, 0)
        while index < len(hits):
            start = block.start(hits[index])
            number = block.number(start)
            if start > done:
                before = block.start(start - 1)
                self._store(number - 1, block.data[before : start - 1])
            elif start == 0 and number > 1:
                self._store(number - 1, self._before)
            done, index = self._follow(block, start, hits, index)

    def _follow(self, block: Block, at: int, hits: list[int], index: int) -> tuple[int, int]:
        """Keeps lines from an offset on while they belong together; where they end, and the next hit after that."""
        data, number = block.data, block.number(at)
        while at < len(data):
            end = block.end(at)
            line = data[at:end]
            if index < len(hits) and hits[index] < end:
                while index < len(hits) and hits[index] < end:
                    index += 1
                own = patience(line)
                self._patience = own if not self._left else max(own, self._patience)
                self._left, self._misses = self._limits.block_lines, 0
            else:
                self._misses = 0 if continues(line) else self._misses + 1
                self._left -= 1
                if self._misses > self._patience or self._left <= 0:
                    self._left = 0
                    break
            self._store(number, line)
            at, number = end + 1, number + 1
        return at, index

    def _store(self, number: int, line: bytes) -> None:
        if number not in self._kept:
            pieces = clipped(line, self._literals)
            self._kept[number] = pieces
            self._kept_bytes += sum(map(len, pieces))
