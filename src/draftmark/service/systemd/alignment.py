"""Old words against new ones: the smallest change, and how it is spelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from draftmark.service.systemd.pieces import Edit, Slot, UnreadableError


def kept(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of indices of the words that stay: as many as can, and of those ways the one that is torn least.

    What both have in common at the beginning and at the end stays in any case.
    """
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle = _longest(old[start : len(old) - end], new[start : len(new) - end])
    pairs = [(i, i) for i in range(start)]
    pairs += [(start + i, start + j) for i, j in middle]
    return pairs + [(len(old) - k, len(new) - k) for k in range(end, 0, -1)]


def _longest(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """A longest common subsequence with the most neighbours that stay neighbours."""
    # best[i][j]: (words kept, neighbours kept) of old[i:], new[j:]; first: the same, given that i and j stay.
    none = (-1, -1)
    best = [[(0, 0)] * (len(new) + 1) for _ in range(len(old) + 1)]
    first = [[none] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            if old[i] == new[j]:
                words, pairs = best[i + 1][j + 1]
                first[i][j] = (words + 1, pairs)
                if (joint := first[i + 1][j + 1]) != none:
                    first[i][j] = max(first[i][j], (joint[0] + 1, joint[1] + 1))
            best[i][j] = max(first[i][j], best[i + 1][j], best[i][j + 1])
    out: list[tuple[int, int]] = []
    i = j = 0
    neighbour = False
    while i < len(old) and j < len(new):
        if neighbour or first[i][j] == best[i][j]:
            out.append((i, j))
            here, after = first[i][j], first[i + 1][j + 1]
            neighbour = after != none and (after[0] + 1, after[1] + 1) == here
            i, j = i + 1, j + 1
        elif best[i + 1][j] == best[i][j]:
            i += 1
        else:
            j += 1
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
    for word, place in zip(slots, places, strict=True):
        whole = place.kept == len(word.values) == len(place.inside)
        behind = spell.words(place.behind)
        if not whole:
            inside = spell.words(place.inside)
            if word.source:
                spelled_out.append(word.source)
            start = word.start if inside else _with_blanks_before(text, word.start)
            out.append(Edit(start, word.end, " ".join(inside)))
        if behind:
            out.append(Edit(word.end, word.end, "".join(f" {raw}" for raw in behind)))
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
    stays = {j: i for i, j in kept(old, new)}
    last_of = {owner: i for i, owner in enumerate(owners)}
    at = 0  # index of the last old word that has been passed
    for j, value in enumerate(new):
        if j in stays:
            at = stays[j]
            places[owners[at]].inside.append(value)
            places[owners[at]].kept += 1
            continue
        place = places[owners[at]]
        # Behind a variable's last word it is a word of its own; between two of them it is among them.
        (place.behind if at == last_of[owners[at]] else place.inside).append(value)
    return places


def _with_blanks_before(text: str, at: int) -> int:
    while text[at - 1 : at] in {" ", "\t"} or text[at - 2 : at] == "\\\n":
        at -= 1 if text[at - 1] != "\n" else 2
    return at
