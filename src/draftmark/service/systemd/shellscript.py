"""The simple commands of a shell's script, and where each stands: alone, in a pipe, in a loop.

As much of the grammar as it takes to find them; what a construct does is not told, only that a command is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from draftmark.service.systemd.pieces import UnreadableError
from draftmark.service.systemd.shellwords import Operator, Redirection, ShellWord, Token, tokens

_OPENING = {
    "if": "an if",
    "while": "a loop",
    "until": "a loop",
    "for": "a loop",
    "select": "a loop",
    "{": "a group",
}
_CLOSING = {"fi": "an if", "done": "a loop", "}": "a group"}
_GOING_ON = frozenset({"then", "else", "elif", "do", "!", "time", "coproc"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?\+?=")


@dataclass(slots=True)
class SimpleCommand:
    """A program or builtin with its words.

    Attributes:
        assignments: `NAME=value` before it.
        words: The rest, redirections left out.
        inside: Constructs around it, outermost first: `a loop`.
        run: Number of its and-or list, the commands between two `;`.
        after: The operator before it: "", `;`, `&&`, `||`, `|`.
        then: The operator behind it.
    """

    assignments: list[ShellWord] = field(default_factory=list)
    words: list[ShellWord] = field(default_factory=list)
    inside: tuple[str, ...] = ()
    run: int = 0
    after: str = ""
    then: str = ""

    @property
    def piped(self) -> bool:
        """Whether it runs in a process of its own, so that its variables are lost."""
        return self.after in {"|", "|&"} or self.then in {"|", "|&", "&"}


def assigned_name(word: ShellWord) -> str | None:
    """NAME of `NAME=…`, `NAME+=…`, `NAME[1]=…`."""
    found = _ASSIGNMENT.match(word.raw)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class Script:
    """What was found.

    Attributes:
        commands: In order.
        functions: Names of the functions that it defines.
        loop_variables: Names that loops set.
    """

    commands: tuple[SimpleCommand, ...]
    functions: frozenset[str]
    loop_variables: frozenset[str]


def parse(text: str, shell: str = "bash") -> Script:
    """The commands of a script, as this shell reads it.

    Raises:
        UnreadableError: It is not understood.
    """
    return _Parser(text, shell).parse()


class _Parser:
    def __init__(self, text: str, shell: str) -> None:
        self._tokens: Iterator[Token] = tokens(text, shell)
        self._inside: list[str] = []
        self._commands: list[SimpleCommand] = []
        self._command = SimpleCommand()
        self._functions: set[str] = set()
        self._loops: set[str] = set()
        self._run = 0
        self._function_next = False

    def parse(self) -> Script:
        after = ""
        self._begin(after)
        for token in self._tokens:
            if isinstance(token, Redirection):
                continue
            if isinstance(token, Operator):
                self._operator(token.text)
            else:
                self._word(token)
        self._end("")
        if self._inside:
            raise UnreadableError(f"{self._inside[-1]} does not end in the script")
        return Script(tuple(self._commands), frozenset(self._functions), frozenset(self._loops))

    def _begin(self, after: str) -> None:
        self._command = SimpleCommand(inside=tuple(self._inside), run=self._run, after=after)

    def _end(self, then: str) -> None:
        command = self._command
        command.then = then
        if command.words or command.assignments:
            self._commands.append(command)
        if then not in {"&&", "||", "|", "|&"}:
            self._run += 1
        self._begin(then)

    def _operator(self, text: str) -> None:
        if text == "(":
            self._parenthesis()
        elif text == ")":
            self._end(")")
            self._leave("a subshell")
        elif text in {";;", ";&", ";;&"}:
            self._end(";")
            self._pattern()
        elif text == "\n" and not (self._command.words or self._command.assignments):
            return  # `&&` and `|` go on in the next line
        else:
            self._end(";" if text == "\n" else text)

    def _parenthesis(self) -> None:
        words = self._command.words
        if len(words) == 1 and not self._command.assignments:  # name()
            self._functions.add(words.pop().raw)
            token = next(self._tokens, None)
            if not (isinstance(token, Operator) and token.text == ")"):
                raise UnreadableError("a parenthesis is not understood in the script")
            self._function_next = True
            return
        if words:
            raise UnreadableError("a parenthesis is not understood in the script")
        self._enter("a subshell")

    def _enter(self, what: str) -> None:
        self._inside.append("a function" if self._function_next else what)
        self._function_next = False
        self._begin(self._command.after)

    def _leave(self, what: str) -> None:
        if not self._inside or self._inside[-1] not in {what, "a function"}:
            raise UnreadableError(f"{what} ends in the script that did not begin")
        self._inside.pop()
        self._command.inside = tuple(self._inside)

    def _word(self, word: ShellWord) -> None:
        command = self._command
        if command.words or command.assignments:
            if not command.words and assigned_name(word) is not None:
                command.assignments.append(word)
            else:
                command.words.append(word)
        elif word.raw in _OPENING or word.raw in _CLOSING or word.raw in {"case", "function", "[["}:
            self._reserved(word.raw)
        elif word.raw not in _GOING_ON:
            (command.words if assigned_name(word) is None else command.assignments).append(word)

    def _reserved(self, name: str) -> None:
        if name == "case":
            self._enter("a case")
            self._until("in")
            self._pattern()
        elif name == "function":
            named = next(self._tokens, None)
            if isinstance(named, ShellWord):
                self._functions.add(named.raw)
            self._function_next = True
        elif name == "[[":
            self._until("]]")
        elif name in {"for", "select"}:
            self._enter(_OPENING[name])
            self._loop_head()
        elif name in _OPENING:
            self._enter(_OPENING[name])
        else:
            self._leave(_CLOSING[name])

    def _loop_head(self) -> None:
        token = next(self._tokens, None)
        if isinstance(token, ShellWord):
            self._loops.add(token.raw)
        while token is not None and not (isinstance(token, ShellWord) and token.raw == "do"):
            token = next(self._tokens, None)

    def _until(self, name: str) -> None:
        for token in self._tokens:
            if isinstance(token, ShellWord) and token.raw == name:
                return
        raise UnreadableError(f"{name} is missing in the script")

    def _pattern(self) -> None:
        """Up to the `)` of the next pattern of a case, or its end."""
        for token in self._tokens:
            if isinstance(token, Operator) and token.text == ")":
                self._begin(";")
                return
            if isinstance(token, ShellWord) and token.raw == "esac":
                self._leave("a case")
                return
        raise UnreadableError("a case does not end in the script")
