"""Finds the command that is the server in a unit's line, through wrappers, shells and scripts.

A line is a stack of texts: the line itself, in one of whose words a shell's script may stand, in one of whose words
another may. Each text has the words of one command in it; the innermost command is the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from draftmark.service.systemd import quoting, shellwords
from draftmark.service.systemd.environment import ServiceEnvironment
from draftmark.service.systemd.pieces import Encode, Slot, UnreadableError
from draftmark.service.systemd.shellcall import SHELLS, shell_call
from draftmark.service.systemd.shellrun import Candidate, candidates
from draftmark.service.systemd.shellvalues import Scope
from draftmark.service.systemd.specifiers import substituted
from draftmark.service.systemd.variables import expanded

IsServer = Callable[[Sequence[str]], bool]
_DEEPEST = 3
_SHEBANG = re.compile(r"#!\s*\S*?(?:/env\s+(?:-S\s+)?)?(?:\S*/)?(sh|bash|dash|ash|zsh|ksh)\b")
_CONTAINERS = frozenset({"docker", "podman", "nerdctl", "docker-compose", "podman-compose"})
_RUNS = frozenset({"run", "start", "exec", "up", "compose", "restart"})
_PASSED_ON = frozenset({'"$@"', "$@", '"${@}"', "${@}"})


@dataclass(frozen=True, slots=True)
class Level:
    """A text and the words of one command in it.

    Attributes:
        text: The line, or a script.
        slots: The command's words.
        encode: How a part of a word is spelled here.
        quote: How a word is spelled here.
        inner: Index of the slot whose value is the next level's text; -1 in the innermost.
    """

    text: str
    slots: tuple[Slot, ...]
    encode: Encode
    quote: Callable[[str], str]
    inner: int = -1

    @property
    def values(self) -> tuple[str, ...]:
        """The command as a process gets it."""
        return tuple(value for s in self.slots for value in s.values)


@dataclass(frozen=True, slots=True)
class PassedOn:
    """A script file of the user's that hands its own arguments to the server, last.

    Attributes:
        path: Of the script.
        head: The server's words in the script, before the arguments.
        first: Index among the innermost level's slots of the first argument.
    """

    path: str
    head: tuple[str, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The server's command and the way to it.

    Attributes:
        levels: Outermost first.
        notes: What was found on the way, in words.
        problem: Why its words cannot be changed though they are known; empty when they can.
        script: Set when the server's words begin in a script file.
    """

    levels: tuple[Level, ...]
    notes: tuple[str, ...] = ()
    problem: str = ""
    script: PassedOn | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        """The server's words; one that cannot be told stands for itself, as written."""
        if self.script is None:
            return self.levels[-1].values
        tail = self.levels[-1].slots[self.script.first :]
        return (*self.script.head, *(value for s in tail for value in s.values))


@dataclass(frozen=True, slots=True)
class Reader:
    """What is needed to understand a line.

    Attributes:
        environment: Of the service's processes.
        specifiers: Letter to value.
        scripts: Path to text, of script files.
        is_server: Whether a command line starts the server.
    """

    environment: ServiceEnvironment
    specifiers: Mapping[str, str]
    scripts: Mapping[str, str]
    is_server: IsServer

    def read(self, line: str) -> Reading:
        """Find the server in a line.

        Raises:
            UnreadableError: There is none, or more than one, or the line is not understood.
        """
        top = self.top(line)
        found = list(self._descend((top,), None, ()))
        if not found:
            raise UnreadableError(self._why_none(top))
        if len(found) > 1:
            shown = "; ".join(" ".join(reading.argv[:3]) for reading in found)
            raise UnreadableError(f"several commands in it may be the server: {shown}")
        if found[0].problem:
            raise UnreadableError(found[0].problem)
        notes = [f"words come from {s.source}" for level in found[0].levels for s in level.slots if s.source]
        return replace(found[0], notes=(*found[0].notes, *dict.fromkeys(notes)))

    def top(self, line: str) -> Level:
        """The line's own words, as systemd makes them.

        Raises:
            UnreadableError: As `read`.
        """
        commands = quoting.split(line)
        if len(commands) != 1:
            raise UnreadableError(
                "it holds several commands, separated by `;`" if commands else "there is no command in it"
            )
        command = commands[0]
        kept = (command.words[0], *command.words[command.arguments_from :])
        slots = []
        for word in kept:
            pieces = substituted(word.pieces, self.specifiers)
            if command.expands:
                slots.append(expanded(word, pieces, self.environment))
            else:
                value = "".join(piece.value for piece in pieces)
                known = all(piece.known for piece in pieces)
                slots.append(Slot(word.start, word.end, word.raw, (value,), pieces, known))
        return Level(
            line,
            tuple(slots),
            partial(quoting.encode, expands=command.expands),
            partial(quoting.quote, expands=command.expands),
        )

    def _descend(self, levels: tuple[Level, ...], scope: Scope | None, notes: tuple[str, ...]) -> Iterator[Reading]:
        """The servers below the innermost level's command."""
        values = levels[-1].values
        call = shell_call(values)
        if call is not None:
            index = _slot_of(levels[-1].slots, call.script)
            positional = _after(levels[-1].slots, index)
            if positional == ():
                positional = (call.shell,)
            inner = self._scope(scope, positional, shell=call.shell)
            if call.clean:
                inner.forget_all()
                inner.positional = positional
            if call.login:
                inner.forget({"PATH", "HOME", "USER", "LOGNAME"})
            for name, value in call.variables:
                inner.set(name, value)
            levels = (*levels[:-1], replace(levels[-1], inner=index))
            login = ", as a login shell: what its profile sets is not known here" if call.login else ""
            notes = (*notes, f"the server is started by a script of {call.shell}{login}")
            yield from self._in_script(levels, inner, notes)
        elif self.is_server(values):
            yield Reading(levels, notes, problem=_container(values[: self._program(values)]))
        elif (
            at := next((i for i, s in enumerate(levels[-1].slots) if _only(s) in self.scripts), None)
        ) is not None:
            yield from self._in_file(levels, at, scope, notes)

    def _scope(self, outer: Scope | None, positional: tuple[str, ...] | None, *, shell: str) -> Scope:
        scope = Scope.of(self.environment, positional, shell=shell)
        if outer is not None:  # what the outer script exported cannot be told from what it only set
            scope.values = {
                name: value for name, value in outer.values.items() if self.environment.get(name) == value
            }
            scope.unknown |= outer.unknown | (set(outer.values) ^ set(scope.values))
            scope.lost = outer.lost
        return scope

    def _in_script(self, levels: tuple[Level, ...], scope: Scope, notes: tuple[str, ...]) -> Iterator[Reading]:
        outer = levels[-1]
        word = outer.slots[outer.inner]
        if len(levels) > _DEEPEST or len(word.values) != 1 or not word.pieces:
            raise UnreadableError(f"the script {word.raw} comes from a variable as a whole, or from too deep")
        for candidate in candidates(word.values[0], scope):
            inner = Level(word.values[0], candidate.slots, shellwords.encode, shellwords.quote)
            for reading in self._descend((*levels, inner), candidate.scope, notes):
                yield _placed(reading, candidate)

    def _in_file(
        self, levels: tuple[Level, ...], at: int, scope: Scope | None, notes: tuple[str, ...]
    ) -> Iterator[Reading]:
        path = levels[-1].slots[at].values[0]
        text = self.scripts[path]
        shebang = _SHEBANG.match(text)
        by_shell = any(PurePosixPath(value).name in SHELLS for s in levels[-1].slots[:at] for value in s.values)
        if shebang is None and not by_shell:
            return
        shell = shebang[1] if shebang else "sh"
        arguments = _after(levels[-1].slots, at, skip=1)
        inner_scope = self._scope(scope, (path, *arguments) if arguments is not None else None, shell=shell)
        for candidate in candidates(text, inner_scope):
            if shell_call(tuple(v for s in candidate.slots for v in s.values)) is not None:
                continue  # a script in a script's word: nothing of it could be reached from here
            if not self.is_server(tuple(v for s in candidate.slots for v in s.values)):
                continue
            last = candidate.slots[-1]
            head = tuple(v for s in candidate.slots[:-1] for v in s.values)
            note = f"the server is started by the script {path}, which is not changed"
            reading = Reading(levels, (*notes, note), script=PassedOn(path, head, at + 1))
            if last.raw not in _PASSED_ON or not last.known:
                problem = (
                    f'the script {path} starts the server without handing on "$@", its own arguments, as last words'
                )
                reading = replace(reading, problem=problem)
            yield _placed(reading, candidate)

    def _program(self, values: Sequence[str]) -> int:
        """Index of the word that makes it a server's command line."""
        return next(at for at in range(len(values)) if self.is_server(values[: at + 1]) or at == len(values) - 1)

    def _why_none(self, top: Level) -> str:
        program = _only(top.slots[0])
        if container := _container([word for value in top.values for word in value.split()]):
            return container
        if program in self.scripts:
            return f"no command in the script {program} is recognised as a server"
        if shell_call(top.values) is not None:
            return "no command in the shell's script is recognised as a server"
        return f"{program} is not recognised as a server, nor was it handed in as a script"


def _placed(reading: Reading, candidate: Candidate) -> Reading:
    """With what is to say about the place in a script at which the command stands."""
    command = candidate.command
    if command.inside:
        return replace(reading, problem=f"the server is started inside of {command.inside[-1]} of a shell's script")
    notes = reading.notes
    if command.then in {"|", "|&"}:
        notes = (*notes, "its output goes through a pipe of the shell")
    if command.then == "&":
        notes = (*notes, "it runs in the background of the shell, which is the service's main process")
    return replace(reading, notes=notes)


def _container(words: Sequence[str]) -> str:
    """Why a command that starts a container is none to be tuned; empty for others."""
    for index, word in enumerate(words):
        runner = PurePosixPath(word).name
        if runner in _CONTAINERS and not _RUNS.isdisjoint(words[index + 1 :]):
            return (
                f"the server runs in a container of {runner}: its processes are not the unit's, which can neither "
                "see that it is idle nor stop it safely"
            )
    return ""


def _only(word: Slot) -> str:
    return word.values[0] if len(word.values) == 1 else ""


def _slot_of(slots: Sequence[Slot], value: int) -> int:
    """Index of the slot that a value belongs to."""
    count = 0
    for index, word in enumerate(slots):
        count += len(word.values)
        if value < count:
            return index
    raise IndexError(value)


def _after(slots: Sequence[Slot], index: int, *, skip: int = 1) -> tuple[str, ...] | None:
    """The values behind a slot; None where one of them cannot be told."""
    behind = slots[index + skip :]
    return tuple(v for s in behind for v in s.values) if all(s.known for s in behind) else None
