"""Rewriting a command line word by word, so that only the words of one group change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag under all its spellings.

    Attributes:
        names: Canonical spelling first.
        arity: Words that follow it: 0 or 1.
    """

    names: tuple[str, ...]
    arity: int = 1


class FlagGroup:
    """The flags that one concern owns in a command line."""

    def __init__(self, flags: Iterable[Flag]) -> None:
        self._by_name: dict[str, Flag] = {name: flag for flag in flags for name in flag.names}

    def canonical(self, name: str) -> str | None:
        """The flag's first spelling, or None when it is not of this group."""
        flag = self._by_name.get(name)
        return flag.names[0] if flag else None

    def split(self, command: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str | None]]:
        """Take the group's words out of a command line.

        Returns:
            The words that stay, in order, and the group's flags: canonical name to value (the last one given
            wins, as in llama-server and argparse), None for a flag without value.
        """
        rest: list[str] = []
        found: dict[str, str | None] = {}
        index = 0
        while index < len(command):
            flag = self._by_name.get(command[index])
            if flag is None or index == 0:
                rest.append(command[index])
                index += 1
                continue
            value = command[index + 1] if flag.arity and index + 1 < len(command) else None
            found[flag.names[0]] = value
            index += 1 + (flag.arity if value is not None else 0)
        return tuple(rest), found


def value_of(command: Sequence[str], names: Sequence[str]) -> str | None:
    """Last value given to a flag under any of its spellings, as `--flag value` or `--flag=value`."""
    found: str | None = None
    for index, word in enumerate(command):
        if word in names and index + 1 < len(command):
            found = command[index + 1]
        head, equals, tail = word.partition("=")
        if equals and head in names:
            found = tail
    return found


def render(flags: Mapping[str, str | None]) -> tuple[str, ...]:
    """Flags back to words, in the order of the mapping."""
    return tuple(word for name, value in flags.items() for word in ((name,) if value is None else (name, value)))
