"""A unit's command line as the engine sees it, and written anew with other flags, all else spelled as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from draftmark.errors import RefusedError
from draftmark.service.systemd import dropin, quoting
from draftmark.service.systemd.alignment import edits, kept
from draftmark.service.systemd.environment import ServiceEnvironment
from draftmark.service.systemd.pieces import Edit, UnreadableError, applied, respelled
from draftmark.service.systemd.reading import IsServer, PassedOn, Reader, Reading
from draftmark.service.systemd.specifiers import specifier_values
from draftmark.service.systemd.unitfile import Assignment, Unit, UnitFile


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A new ExecStart= value.

    Attributes:
        line: As it is to be written.
        notes: What else there is to say, in words: a variable that is spelled out now.
    """

    line: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitCommand:
    """The command line by which a unit starts its server.

    Attributes:
        argv: The server's words, wrappers before it included; a word that cannot be told from here, such as `$(…)`,
            stands for itself.
        line: ExecStart= as written, blanks and continued lines between words made single spaces.
        source: The assignment in force.
        notes: How the words were found, in words.
    """

    argv: tuple[str, ...]
    line: str
    source: Assignment
    notes: tuple[str, ...]
    _reader: Reader
    _reading: Reading
    _last_wins: bool

    @classmethod
    def parse(
        cls,
        files: Sequence[UnitFile],
        environment: Mapping[str, str],
        properties: Mapping[str, str],
        scripts: Mapping[str, str],
        is_server: IsServer,
        *,
        last_wins: bool = False,
        specifiers: Mapping[str, str] | None = None,
    ) -> UnitCommand:
        """Find the server's command line in a unit.

        Args:
            files: The fragment, then the drop-ins in systemd's order.
            environment: As a process of the service gets it; a ServiceEnvironment knows where a variable is from.
            properties: Of `systemctl show`, for `%` specifiers: Id, FragmentPath, ControlGroup.
            scripts: Script files of the user's that ExecStart= may start, path to text.
            is_server: Whether a command line starts the server.
            last_wins: Whether of a flag given twice the server takes the last one.
            specifiers: What each `%` letter stands for; None for what the properties tell.

        Raises:
            RefusedError: There is not exactly one such command line, or it is not understood.
        """
        # A trial's drop-in that is still there is no part of the unit: whoever tunes it next puts it back first.
        lasting = [file for file in files if PurePosixPath(file.path).name != dropin.TRIAL]
        source = Unit.parse(lasting).exec_start()
        _refuse_outranked(source)
        known = specifier_values(properties) if specifiers is None else specifiers
        reader = Reader(ServiceEnvironment.of(environment), known, scripts, is_server)
        try:
            line = _single_spaced(source.value)
            reading = reader.read(line)
        except UnreadableError as reason:
            raise _refused("the unit's command line cannot be tuned", reason, source) from None
        return cls(reading.argv, line, source, reading.notes, reader, reading, last_wins)

    @property
    def where(self) -> tuple[str, int]:
        """File and line in which it begins."""
        return self.source.path, self.source.line

    def effective(self, line: str) -> tuple[str, ...]:
        """The server's words that an ExecStart= value gives in the same environment.

        Raises:
            RefusedError: As `parse`.
        """
        try:
            return self._reader.read(line).argv
        except UnreadableError as reason:
            raise _refused("a command line is not understood", reason, self.source) from None

    def rewritten(self, new_argv: Sequence[str]) -> str:
        """The ExecStart= value that gives the server these words. Raises as `rewrite`."""
        return self.rewrite(new_argv).line

    def rewrite(self, new_argv: Sequence[str]) -> Rewrite:
        """The ExecStart= value that gives the server these words.

        Words that stay or only move keep their spelling, so that a `%i` or `$VAR` in them stays alive. A variable
        that stands for several words is spelled out if one of these changes.

        Raises:
            RefusedError: It cannot be done without changing more than those words, or a script of the user's.
        """
        new = tuple(new_argv)
        try:
            if new == self.argv:
                return Rewrite(self.line)
            if new[:1] != self.argv[:1]:
                raise UnreadableError("the program itself would change")
            return self._spelled(new)
        except UnreadableError as reason:
            raise _refused(
                "the unit's command line cannot be changed to the wanted flags", reason, self.source
            ) from None

    def _spelled(self, new: tuple[str, ...]) -> Rewrite:
        script = self._reading.script
        level = self._reading.levels[-1]
        wanted, notes = new, []
        if script is None:
            target = new
        else:
            tail = tail_for_script(script, self.argv, new, last_wins=self._last_wins)
            target = (*(v for s in level.slots[: script.first] for v in s.values), *tail)
            wanted = (*script.head, *tail)
            if wanted != new:
                notes.append(f"flags are given behind those of {script.path}: the last one counts")
        changes, spelled_out = edits(level.text, level.slots, target, level.quote)
        line = self._carried_out(changes)
        self._check(line, wanted)
        notes += [
            f"{source} is spelled out: what is changed there has no effect meanwhile" for source in spelled_out
        ]
        return Rewrite(line, tuple(notes))

    def _carried_out(self, changes: list[Edit]) -> str:
        """The edits of the innermost text, made to the line."""
        for level in reversed(self._reading.levels[:-1]):
            word = level.slots[level.inner]
            raw = respelled(word.raw, word.pieces, changes, level.encode)
            changes = [Edit(word.start, word.end, raw)]
        return applied(self._reading.levels[0].text, changes)

    def _check(self, line: str, wanted: tuple[str, ...]) -> None:
        """Read it back as systemd will.

        Raises:
            UnreadableError: Something else would come out.
        """
        quoting.refuse_unwritable(line)
        text = dropin.render(exec_start=line, settings={}, header=())
        written = Unit.parse([UnitFile("", text)]).exec_start().value
        if written != line or self._reader.read(line).argv != wanted:
            raise UnreadableError("written anew, it would not be read back as the wanted words")
        longest = max(len(os_bytes(v)) for s in self._reader.top(line).slots for v in s.values)
        before = max(len(os_bytes(v)) for s in self._reading.levels[0].slots for v in s.values)
        if longest > quoting.LONGEST_WORD >= before:
            raise UnreadableError(
                f"a word of it would be longer than {quoting.LONGEST_WORD} bytes, which older systemd refuses"
            )


def os_bytes(text: str) -> bytes:
    """As a process gets it."""
    return text.encode("utf-8", "surrogateescape")


def tail_for_script(
    script: PassedOn, old: Sequence[str], new: Sequence[str], *, last_wins: bool
) -> tuple[str, ...]:
    """The arguments with which a script that is not changed starts the server as wanted.

    Args:
        script: Its head stands before the arguments, whatever these are.
        old: The server's words now.
        new: The words wanted.
        last_wins: Whether a flag of the head counts no more when it is given again behind it.

    Raises:
        UnreadableError: No arguments do that.
    """
    head = script.head
    if tuple(new[: len(head)]) == tuple(head):
        return tuple(new[len(head) :])
    next_step = f"move the flags that are to be tuned from {script.path} to ExecStart=, behind the script's name"
    if not last_wins:
        raise UnreadableError(
            f"flags of the script {script.path} would have to change, which is never edited", next_step
        )
    stays = {j: i for i, j in kept(old, new) if i < len(head)}
    tail: list[str] = []
    for j, word in enumerate(new):
        if j in stays:
            continue
        if not word.startswith("-") and j - 1 in stays and new[j - 1].startswith("-"):
            tail.append(new[j - 1])  # a value of a flag that the script gives: give it again, with the flag
        tail.append(word)
    given = {_name(word) for word in tail if word.startswith("-")}
    for flag in _flags_without(head, set(stays.values())):
        if flag not in given:
            raise UnreadableError(
                f"the script {script.path} gives {flag or 'words'}, which arguments behind it cannot take back",
                next_step,
            )
    return tuple(tail)


def _flags_without(head: Sequence[str], stays: set[int]) -> list[str]:
    """Names of the flags of which a word is not to stay; empty for a word that is no flag's."""
    out, flag = [], ""
    for index, word in enumerate(head):
        if word.startswith("-"):
            flag = _name(word)
        if index not in stays:
            out.append(flag)
    return out


def _name(flag: str) -> str:
    return flag.partition("=")[0]


def _single_spaced(value: str) -> str:
    commands = quoting.split(value)
    if len(commands) != 1:
        return value
    return " ".join(word.raw for word in commands[0].words)


def _refuse_outranked(source: Assignment) -> None:
    path = PurePosixPath(source.path)
    if path.parent.name.endswith(".d") and path.name > dropin.TRIAL:
        raise RefusedError(
            f"the drop-in {path.name} gives the command line and is read after any of Draftmark's",
            evidence=(str(source),),
            next_step=f"rename it so that it sorts before {dropin.TRIAL}, then systemctl daemon-reload",
        )


def _refused(what: str, reason: UnreadableError, source: Assignment) -> RefusedError:
    return RefusedError(f"{what}: {reason}", evidence=(str(source),), next_step=reason.next_step)
