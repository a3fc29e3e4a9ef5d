"""Hosts that exist on paper: commands answered from a script, a journal from entries, files from a dictionary."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from draftmark.ports import Completed

_UNIT_FIELDS = {
    "--unit": ("UNIT", "_SYSTEMD_UNIT", "COREDUMP_UNIT", "OBJECT_SYSTEMD_UNIT"),
    "--user-unit": ("USER_UNIT", "_SYSTEMD_USER_UNIT"),
}

NOT_INSTALLED = Completed(None, stderr="No such file or directory", missing=True)


class ScriptedHost:
    """ports.Host that says what it was told to say.

    Args:
        answers: Regular expression → what the command says whose words, joined by blanks, it is found in. The first
            that fits counts; a command that none fits is not installed. Text stands for output and status 0.
        files: Path → content, or the error that reading it raises. Others do not exist.
        name: Host name.
        is_root: Whether commands run as root.
    """

    def __init__(
        self,
        answers: Mapping[str, Completed | bytes | str],
        files: Mapping[str, bytes | OSError] | None = None,
        *,
        name: str = "gpu1",
        is_root: bool = True,
    ) -> None:
        self._answers = dict(answers)
        self._files = dict(files or {})
        self._name = name
        self._is_root = is_root
        self.asked: list[tuple[str, ...]] = []
        self.running = 0

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    @property
    def is_root(self) -> bool:
        """As given."""
        return self._is_root

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in the port
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        """The answer, cut at the limit."""
        said = self._answer(argv)
        if len(said.stdout) <= limit_bytes:
            return said
        return Completed(-9, said.stdout[:limit_bytes], said.stderr, cut=True)

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> ScriptedStream:
        """The answer in pieces that respect no line. `running` counts the streams that were not closed."""
        self.running += 1
        return ScriptedStream(self, self._answer(argv))

    def reach(self, address: str, port: int) -> tuple[str, int]:
        """As it stands."""
        return address, port

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """A file of the script.

        Raises:
            OSError: As scripted, or FileNotFoundError.
        """
        content = self._files.get(path, FileNotFoundError(2, "No such file or directory"))
        if isinstance(content, OSError):
            raise content
        return content[:limit_bytes]

    def _answer(self, argv: Sequence[str]) -> Completed:
        self.asked.append(tuple(argv))
        words = " ".join(argv)
        for pattern, said in self._answers.items():
            if re.search(pattern, words):
                if isinstance(said, Completed):
                    return said
                return Completed(0, said.encode() if isinstance(said, str) else said)
        return NOT_INSTALLED


class ScriptedStream:
    """ports.Stream over an answer."""

    def __init__(self, host: ScriptedHost, said: Completed, piece: int = 61) -> None:
        self._host = host
        self._said = said
        self._piece = piece
        self._at = 0
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        """Pieces."""
        while self._at < len(self._said.stdout) and not self._closed:
            self._at += self._piece
            yield self._said.stdout[self._at - self._piece : self._at]

    def close(self) -> Completed:
        """How it ended; cut when not all was taken."""
        self._host.running -= not self._closed
        self._closed = True
        said = self._said
        cut = self._at < len(said.stdout)
        return Completed(-9 if cut else said.status, b"", said.stderr, cut, said.timed_out, said.missing)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a journal.

    Attributes:
        time_s: Seconds since the epoch.
        fields: Journal fields, MESSAGE among them.
    """

    time_s: float
    fields: Mapping[str, str]

    def json(self) -> bytes:
        """As journalctl writes it."""
        return json.dumps({"__REALTIME_TIMESTAMP": str(round(self.time_s * 1e6)), **self.fields}).encode() + b"\n"


class JournalHost(ScriptedHost):
    """A scripted host that has a journal, which it filters by unit, match and time as journalctl does.

    Args:
        entries: The journal, in any order.
        answers: Of the other commands, and of journalctl where a pattern fits.
        files: As for ScriptedHost.
        name: Host name.
        is_root: Whether commands run as root.
        hint: What journalctl says of what this user may not see.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        answers: Mapping[str, Completed | bytes | str] = MappingProxyType({}),
        files: Mapping[str, bytes | OSError] | None = None,
        *,
        name: str = "gpu1",
        is_root: bool = True,
        hint: str = "",
    ) -> None:
        super().__init__(answers, files, name=name, is_root=is_root)
        self._entries = sorted(entries, key=lambda entry: entry.time_s)
        self._hint = hint

    def _answer(self, argv: Sequence[str]) -> Completed:
        said = super()._answer(argv)
        if argv[0] != "journalctl" or said is not NOT_INSTALLED:
            return said
        json_wanted = "--output=json" in argv
        found = [entry for entry in self._entries if _selects(argv, entry)]
        if "--reverse" in argv:
            found.reverse()
        lines = [e.json() if json_wanted else f"{e.time_s:.6f} {e.fields['MESSAGE']}\n".encode() for e in found]
        if "--lines=1" in argv:
            lines = lines[-1:]
        quiet = json_wanted or "--quiet" in argv
        return Completed(0, b"".join(lines), "" if quiet else self._hint)


def _selects(argv: Sequence[str], entry: Entry) -> bool:
    """Whether journalctl would show the entry: alternatives between `+`, all of the words within one."""
    alternatives: list[list[tuple[str, str]]] = [[]]
    units: list[tuple[str, str]] = []
    for word in argv[1:]:
        key, _, value = word.partition("=")
        if (key == "--since" and entry.time_s < _at(value)) or (key == "--until" and entry.time_s > _at(value)):
            return False
        if word == "+":
            alternatives.append([])
        elif key in _UNIT_FIELDS:
            units += [(field, value) for field in _UNIT_FIELDS[key]]
        elif not word.startswith("-"):
            alternatives[-1].append((key, value))
    if units and not any(entry.fields.get(field) == value for field, value in units):
        return False
    # The same field twice is an alternative, too; no collector asks so.
    return any(all(entry.fields.get(key) == value for key, value in each) for each in alternatives)


def _at(stamp: str) -> float:
    """`@SECONDS`; any other stamp is before everything."""
    return float(stamp[1:]) if stamp.startswith("@") else 0.0
