"""Old words against new ones: the smallest change, and how it is spelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from draftmark.service.systemd.pieces import Edit, Slot, UnreadableError


def kept(old: Sequence[str], new: Sequence[str], weights: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Pairs of indices of the words that stay: as many as can, and of those ways the one that is torn least.

    What both have in common at the beginning stays in any case.

    Args:
        old: Words.
        new: Words.
        weights: For how many words each of the old ones counts; 1 where nothing is said.
    """
    weights = weights or [1] * len(old)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    behind = _longest(old[start:], new[start:], weights[start:])
    return [*((i, i) for i in range(start)), *((start + i, start + j) for i, j in behind)]


_MATCH, _DELETE, _INSERT = range(3)
_HEAVY = 1000  # of several words that a variable stands for: it should stay a variable
_WORD = 1 << 24  # one word more that stays counts for more than any number of gaps less
_NEVER = -(1 << 60)
_Scores = tuple[int, int, int]
_NONE: _Scores = (_NEVER, _NEVER, _NEVER)
_MOST_CELLS = 500_000  # about a second and 100 MB


def _longest(old: Sequence[str], new: Sequence[str], weights: Sequence[int]) -> list[tuple[int, int]]:
    """A longest common subsequence with the fewest gaps: the words of a flag and its value go together.

    An arm changes few words of many, so only the pairs of about the same place are looked at. A way that leaves the
    band gives up more than `width` words of the shorter text: when no more are lost inside, none is better
    outside. Of texts too long and too different for that, the band's best is taken, which is no less right.
    """
    shift = len(new) - len(old)
    most = sum(sorted(weights, reverse=True)[: len(new)])
    found = _common_end(old, new)
    width = 8
    while True:
        low, high = min(0, shift) - width, max(0, shift) + width
        if (len(old) + 1) * (high - low + 1) > _MOST_CELLS:
            return found
        found = _walk(old, new, _scores(old, new, weights, low, high), weights, low)
        if sum(weights[i] for i, _ in found) >= most - width:
            return found
        width *= 2


def _common_end(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    end = 0
    while end < min(len(old), len(new)) and old[-1 - end] == new[-1 - end]:
        end += 1
    return [(len(old) - k, len(new) - k) for k in range(end, 0, -1)]


def _scores(
    old: Sequence[str], new: Sequence[str], weights: Sequence[int], low: int, high: int
) -> list[list[_Scores]]:
    """Best scores of old[i:] against new[j:], as [i][j - i - low + 1][step before]; a gap costs where it opens."""
    size = high - low + 3  # with nothing at both ends
    below = [_NONE] * size
    rows: list[list[_Scores]] = []
    for i in range(len(old), -1, -1):
        row = [_NONE] * size
        first, last = max(1, 1 - low - i), min(high - low + 1, len(new) - i - low + 1)
        for k in range(last, first - 1, -1):
            j = i + low + k - 1
            same = i < len(old) and j < len(new) and old[i] == new[j]
            stay = below[k][_MATCH] + _WORD * weights[i] if same else _NEVER
            delete, insert = below[k - 1][_DELETE], row[k + 1][_INSERT]
            row[k] = (
                max(stay, delete - 1, insert - 1),
                max(stay, delete, insert - 1),
                max(stay, delete - 1, insert),
            )
            if i == len(old) and j == len(new):
                row[k] = (0, 0, 0)
        rows.append(row)
        below = row
    rows.reverse()
    return rows


def _walk(
    old: Sequence[str], new: Sequence[str], score: list[list[_Scores]], weights: Sequence[int], low: int
) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    i = j = 0
    step = _MATCH
    while i < len(old) and j < len(new):
        k = j - i - low + 1
        here = score[i][k][step]
        if old[i] == new[j] and score[i + 1][k][_MATCH] + _WORD * weights[i] == here:
            out.append((i, j))
            i, j, step = i + 1, j + 1, _MATCH
        elif score[i + 1][k - 1][_DELETE] - (step != _DELETE) == here:
            i, step = i + 1, _DELETE
        else:
            j, step = j + 1, _INSERT
    return out


@dataclass(slots=True)
class _Place:
    """What comes of one slot: the new values in it, and those behind it."""

    inside: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    kept: int = 0


def edits(
    text: str, slots: Sequence[Slot], new: Sequence[str], quote: Callable[[str], str]
) -> tuple[list[Edit], tuple[str, ...]]:
    """The edits that give a command other words, every word that stays or only moves spelled as before.

    Args:
        text: Holds the slots.
        slots: The command's words.
        new: The values that the command is to have; the first one stays.
        quote: Spells a word.

    Returns:
        The edits, and the sources of words that are spelled out now.

    Raises:
        UnreadableError: A word that cannot be told would have to change.
    """
    places = _places(slots, new)
    moved: dict[str, list[str]] = {}
    for word, place in zip(slots, places, strict=True):
        if len(word.values) == 1 and not place.kept:
            moved.setdefault(word.values[0], []).append(word.raw)
    spell = _Speller(moved, quote)
    out: list[Edit] = []
    spelled_out = []
    before = 0
    for word, place in zip(slots, places, strict=True):
        whole = place.kept == len(word.values) == len(place.inside)
        behind = spell.words(place.behind)
        if not whole:
            inside = spell.words(place.inside)
            if word.source:
                spelled_out.append(word.source)
            start = word.start if inside else _with_blanks_before(text, word.start, before)
            out.append(Edit(start, word.end, " ".join(inside)))
        if behind:
            out.append(Edit(word.end, word.end, "".join(f" {raw}" for raw in behind)))
        before = word.end
    stranded = {w.values[0] for w, p in zip(slots, places, strict=True) if not w.known and not p.kept}
    if lost := [value for value in stranded if value in spell.left]:
        raise UnreadableError(
            f"the value of {lost[0]} cannot be told from here, so it cannot be changed or taken out",
            "write the flag and its value into ExecStart=, or the variable into an Environment= of the unit",
        )
    return out, tuple(spelled_out)


class _Speller:
    """Spells words; one that was taken out elsewhere is put in as it was written there."""

    def __init__(self, moved: dict[str, list[str]], quote: Callable[[str], str]) -> None:
        self.left = moved
        self._quote = quote

    def words(self, values: Sequence[str]) -> list[str]:
        return [self._word(value) for value in values]

    def _word(self, value: str) -> str:
        raws = self.left.get(value)
        if not raws:
            return self._quote(value)
        raw = raws.pop(0)
        if not raws:
            del self.left[value]
        return raw


def _places(slots: Sequence[Slot], new: Sequence[str]) -> list[_Place]:
    owners = [index for index, word in enumerate(slots) for _ in word.values]
    old = [value for word in slots for value in word.values]
    places = [_Place() for _ in slots]
    weights = [1 if len(word.values) == 1 else _HEAVY for word in slots for _ in word.values]
    stays = {j: i for i, j in kept(old, new, weights)}
    last_of = {owner: i for i, owner in enumerate(owners)}
    after = _behind_empty(slots)
    at = 0  # index of the last old word that has been passed
    for j, value in enumerate(new):
        if j in stays:
            at = stays[j]
            places[owners[at]].inside.append(value)
            places[owners[at]].kept += 1
            continue
        # Behind a variable's last word it is a word of its own; between two of them it is among them.
        if at == last_of[owners[at]]:
            places[after[owners[at]]].behind.append(value)
        else:
            places[owners[at]].inside.append(value)
    return places


def _behind_empty(slots: Sequence[Slot]) -> list[int]:
    """Of each slot the last of the empty ones right behind it: `--flag $NONE` is not to be torn apart."""
    out = list(range(len(slots)))
    for index in range(len(slots) - 2, -1, -1):
        if not slots[index + 1].values:
            out[index] = out[index + 1]
    return out


def _with_blanks_before(text: str, at: int, floor: int) -> int:
    """Where the blanks before a word begin; not before `floor`, for the word before may end in an escaped one."""
    while at > floor and (text[at - 1 : at] in {" ", "\t"} or text[at - 2 : at] == "\\\n"):
        at -= 1 if text[at - 1] != "\n" else 2
    return at
