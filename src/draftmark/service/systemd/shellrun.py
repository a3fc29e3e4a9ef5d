"""Walks a script's commands in order and keeps track of the variables that they set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from draftmark.service.systemd.pieces import Slot
from draftmark.service.systemd.shellscript import Script, SimpleCommand, assigned_name, parse
from draftmark.service.systemd.shellvalues import Scope, UnknownError, Value, single, slot
from draftmark.service.systemd.shellwords import ShellWord, names

# Their words may name a server, and yet they do not start one.
NO_STARTERS = names(
    ". : [ alias awk basename cat cd chmod chown command-not-found cp curl cut date declare dirname echo eval "
    "export false find grep head hostname id kill killall let ln local logger ls mkdir mkfifo module mv nvidia- "
    "smi pgrep pip pip3 pkill printf pushd popd pwd read readonly rm rmdir sed seq set shift shopt sleep source "
    "stat sync tail tee test touch tr trap true type typeset ulimit umask unalias uname unset wait wc wget which "
    "whoami"
)
_DECLARING = frozenset({"export", "declare", "typeset", "readonly", "local"})
_SETTING_ANYTHING = frozenset({"eval", "mapfile", "readarray", "getopts", "let"})
_RUNNERS = frozenset({"exec", "command", "builtin", "nohup", "then", "noglob", "nocorrect"})
_OPTION = re.compile(r"[-+][a-zA-Z]")
_VENV_SETS = ("PATH", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "PS1", "PYTHONHOME", "_OLD_VIRTUAL_PATH")
_CONSTANT_READS = frozenset({"activate", "conda.sh", "mamba.sh", "micromamba.sh", "setvars.sh"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A simple command at its place.

    Attributes:
        command: As parsed.
        slots: Its words from the program on; `exec` and its like are left out.
        scope: Variables at that place; the next command changes it.
    """

    command: SimpleCommand
    slots: tuple[Slot, ...]
    scope: Scope


def candidates(text: str, scope: Scope) -> Iterator[Candidate]:
    """The commands that start a program, in order.

    Raises:
        UnreadableError: The script is not understood.
    """
    script = parse(text, scope.shell)
    scope.forget(script.loop_variables)
    walk = _Walk(script, scope)
    for command in script.commands:
        walk.enter(command)
        slots = _program(tuple(slot(word, scope) for word in command.words))
        if slots and _first_value(slots) not in NO_STARTERS:
            yield Candidate(command, slots, scope)
        walk.leave(command)


def _first_value(slots: Sequence[Slot]) -> str:
    return next((value for s in slots for value in s.values), "")


def _program(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """Without `exec -a NAME` and the like before the program."""
    while slots and slots[0].values[:1] and slots[0].values[0] in _RUNNERS and len(slots[0].values) == 1:
        runner, slots = slots[0].values[0], slots[1:]
        while runner == "exec" and slots and re.fullmatch(r"-[cla]+", slots[0].raw):
            slots = slots[2 if "a" in slots[0].raw else 1 :]
    return slots


class _Walk:
    def __init__(self, script: Script, scope: Scope) -> None:
        self._script = script
        self._scope = scope
        self._run = -1
        self._only_in_run: set[str] = set()

    def enter(self, command: SimpleCommand) -> None:
        """What was set behind an `&&` holds only for what stands behind further ones."""
        if command.run != self._run or command.after == "||":
            self._scope.forget(self._only_in_run)
            self._only_in_run = set()
            self._run = command.run

    def leave(self, command: SimpleCommand) -> None:
        """The command has run: what it set."""
        name = command.words[0].raw if command.words else ""
        if not name:
            self._assign(command.assignments, command)
        elif name in _DECLARING:
            self._assign([w for w in command.words[1:] if assigned_name(w)], command)
        elif name in {"source", "."}:
            self._read(command)
        elif name in _SETTING_ANYTHING or name in self._script.functions:
            self._scope.forget_all()
        elif name in {"read", "unset", "printf"}:
            self._scope.forget(word.raw for word in command.words[1:])
        elif name == "shift" or (name == "set" and not all(_OPTION.match(w.raw) for w in command.words[1:2])):
            self._scope.positional = None

    def _read(self, command: SimpleCommand) -> None:
        path = command.words[1].raw.strip("'\"") if len(command.words) > 1 else ""
        if PurePosixPath(path).name in _CONSTANT_READS:
            self._scope.forget(_VENV_SETS)
        else:
            self._scope.forget_all()

    def _assign(self, words: Sequence[ShellWord], command: SimpleCommand) -> None:
        for word in words:
            name = assigned_name(word)
            if name is None:
                continue
            if name == "IFS":
                self._scope.forget_all()  # every splitting from here on is another
            elif command.inside or command.piped or command.after == "||":
                self._scope.forget([name])
            else:
                self._set(name, word)
                if command.after == "&&":
                    self._only_in_run.add(name)

    def _set(self, name: str, word: ShellWord) -> None:
        try:
            self._scope.set(name, self._value(name, word))
        except UnknownError:
            self._scope.forget([name])

    def _value(self, name: str, word: ShellWord) -> Value:
        left, _, _ = word.raw.partition("=")
        if "[" in left or (left.endswith("+") and self._scope.shell not in {"bash", "zsh", "ksh"}):
            raise UnknownError
        before: Value = self._scope.get(name) if left.endswith("+") else None
        if word.elements is not None:
            slots = [slot(element, self._scope) for element in word.elements]
            if not all(s.known for s in slots) or isinstance(before, str):
                raise UnknownError
            return (*(before or ()), *(value for s in slots for value in s.values))
        if isinstance(before, tuple):
            raise UnknownError
        behind = len(left) + 1
        rest = ShellWord(
            word.start, word.end, word.raw, tuple(a for a in word.atoms if a.start >= word.start + behind)
        )
        return (before or "") + single(rest, self._scope)
