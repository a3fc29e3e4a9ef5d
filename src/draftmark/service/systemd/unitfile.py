"""Unit files and drop-ins: which assignments are in force, and where each stands.

After systemd.syntax(7) and systemd's own reader: a line that ends in a backslash goes on in the next one, comment
lines between the two do not count; an empty assignment forgets what was assigned before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftmark.errors import RefusedError

_LINE_END = re.compile(r"\r\n|\n\r|[\n\r\0]")
_STRIPPED = " \t\n\r"


@dataclass(frozen=True, slots=True)
class UnitFile:
    """A file of a unit, as it was read.

    Attributes:
        path: On the service's host.
        text: Decoded from UTF-8 with surrogateescape.
    """

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """`Key=value`.

    Attributes:
        section: Without its brackets.
        key, value: Without blanks around them; continued lines joined as systemd joins them.
        path, line: Where it begins, counted from 1.
    """

    section: str
    key: str
    value: str
    path: str
    line: int

    @property
    def where(self) -> str:
        """`/etc/systemd/system/llm.service:7`."""
        return f"{self.path}:{self.line}"

    def __str__(self) -> str:
        return f"{self.where}: {self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class Unit:
    """All assignments of a unit's files, in the order in which systemd reads them."""

    assignments: tuple[Assignment, ...]

    @classmethod
    def parse(cls, files: Sequence[UnitFile]) -> Unit:
        """From the fragment and then its drop-ins, in systemd's order."""
        return cls(tuple(assignment for file in files for assignment in _assignments(file)))

    def all(self, key: str, section: str = "Service") -> tuple[Assignment, ...]:
        """What is in force of a setting that may be given several times."""
        found: list[Assignment] = []
        for assignment in self.assignments:
            if (assignment.section, assignment.key) != (section, key):
                continue
            if assignment.value:
                found.append(assignment)
            else:
                found.clear()
        return tuple(found)

    def last(self, key: str, section: str = "Service") -> Assignment | None:
        """What is in force of a setting of which the last one counts."""
        return next((a for a in reversed(self.assignments) if (a.section, a.key) == (section, key)), None)

    def exec_start(self) -> Assignment:
        """The line by which the service is started.

        Raises:
            RefusedError: There is none, or there are several.
        """
        lines = self.all("ExecStart")
        if not lines:
            raise RefusedError(
                "the unit has no ExecStart=, so there is no command line to change",
                evidence=tuple(str(a) for a in self.assignments if a.key in {"Type", "ExecStart"}),
                next_step="`systemctl cat UNIT` shows its files",
            )
        if len(lines) > 1:
            raise RefusedError(
                "the unit starts several commands, one after the other, and which one to tune cannot be told",
                evidence=tuple(map(str, lines)),
                next_step="put the server into a unit of its own, with one ExecStart=",
            )
        return lines[0]


def _assignments(file: UnitFile) -> Iterator[Assignment]:
    section = ""
    for line, text in logical_lines(file.text):
        text = text.strip(_STRIPPED)
        if text.startswith("["):
            section = text[1:-1] if text.endswith("]") else ""
            continue
        key, equals, value = text.partition("=")
        if section and equals and key.strip(_STRIPPED):
            yield Assignment(section, key.strip(_STRIPPED), value.strip(_STRIPPED), file.path, line)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, continued ones joined, comments and empty ones left out."""
    begun, number = "", 0
    for at, line in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        if line.lstrip(_STRIPPED)[:1] in {"#", ";"}:
            continue
        number = number or at
        begun += line
        if _goes_on(begun):
            begun = f"{begun[:-1]} "
            continue
        if begun.strip(_STRIPPED):
            yield number, begun
        begun, number = "", 0
    if begun.strip(_STRIPPED):
        yield number, begun


def _goes_on(text: str) -> bool:
    backslashes = len(text) - len(text.rstrip("\\"))
    return backslashes % 2 == 1
