"""What the words of a script become: a shell's variables, as far as they are certain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from draftmark.service.systemd.environment import ServiceEnvironment
from draftmark.service.systemd.pieces import Piece, Slot
from draftmark.service.systemd.shellwords import Atom, Kind, ShellWord, names

Value = str | tuple[str, ...] | None
"""Of a variable; a tuple for an array, None when it is not set."""

_ITS_OWN = names(
    "_ BASHPID BASH_SOURCE EUID FUNCNAME IFS LINENO OLDPWD PPID PWD RANDOM SECONDS SHLVL UID EPOCHSECONDS"
)
# Set by a shell where the environment does not hold them.
_BY_DEFAULT = names(
    "BASH BASHOPTS BASH_VERSION DIRSTACK GROUPS HOSTNAME HOSTTYPE MACHTYPE OPTERR OPTIND OSTYPE PATH PS1 PS2 PS4 "
    "SHELL SHELLOPTS TERM USERNAME ZSH_VERSION"
)
_GLOB = set("*?[")
_BLANKS = " \t\n"


class UnknownError(Exception):
    """What a variable holds cannot be told."""


@dataclass(slots=True)
class Scope:
    """What is known of the variables at one place of a script.

    Attributes:
        values: Name to value, of those that the script set or the environment holds.
        unknown: Names of which nothing is known.
        lost: Whether any other name may hold anything, after a file was read that is not known.
        positional: `$0` and what follows; None when unknown.
        shell: `bash`; zsh does not split unquoted variables.
        environment: Where names were assigned, for people.
    """

    values: dict[str, Value]
    environment: ServiceEnvironment
    unknown: set[str] = field(default_factory=set)
    lost: bool = False
    positional: tuple[str, ...] | None = None
    shell: str = "sh"

    @property
    def splits(self) -> bool:
        """Whether an unquoted variable is split at blanks."""
        return self.shell != "zsh"

    @classmethod
    def of(cls, environment: Mapping[str, str], positional: tuple[str, ...] | None, *, shell: str) -> Scope:
        """At the beginning of a script."""
        known = ServiceEnvironment.of(environment)
        unknown = ((known.unknown | _BY_DEFAULT) - set(known)) | _ITS_OWN
        return cls(dict(known), known, set(unknown), positional=positional, shell=shell)

    def set(self, name: str, value: Value) -> None:
        """An assignment that is certain."""
        self.values[name] = value
        self.unknown.discard(name)

    def forget(self, names: Iterable[str]) -> None:
        """Assignments that are not."""
        self.unknown.update(names)

    def forget_all(self) -> None:
        """Something was run that may have changed any variable."""
        self.values.clear()
        self.lost = True
        self.positional = None

    def get(self, name: str) -> Value:
        """Value of a variable.

        Raises:
            UnknownError: It cannot be told.
        """
        if name in {"@", "*"}:
            if self.positional is None:
                raise UnknownError
            return self.positional[1:]
        if name.isdecimal():
            if self.positional is None:
                raise UnknownError
            return self.positional[int(name)] if int(name) < len(self.positional) else None
        if name in self.unknown or not name.isidentifier() or (self.lost and name not in self.values):
            raise UnknownError
        return self.values.get(name)


def slot(word: ShellWord, scope: Scope) -> Slot:
    """What a word becomes at this place."""
    try:
        fields = _Fields(scope).of(word)
    except UnknownError:
        return Slot(word.start, word.end, word.raw, (word.raw,), known=False)
    pieces = _pieces(word, scope)
    if pieces is not None:
        return Slot(word.start, word.end, word.raw, fields, pieces)
    sources = [scope.environment.described(a.text) for a in word.atoms if a.kind is Kind.PARAMETER]
    return Slot(word.start, word.end, word.raw, fields, source=", ".join(sources))


def single(word: ShellWord, scope: Scope) -> str:
    """What a word becomes where nothing is split: on the right of an assignment.

    Raises:
        UnknownError: It cannot be told.
    """
    return "".join(_one(atom, scope, quoted=True) for atom in word.atoms)


def _one(atom: Atom, scope: Scope, *, quoted: bool) -> str:
    """What an atom becomes where it is not split.

    Raises:
        UnknownError: It cannot be told, or depends on what splitting would do.
    """
    if atom.kind is Kind.TEXT:
        return atom.text
    if atom.kind is Kind.OPAQUE:
        raise UnknownError
    value = _chosen(atom, scope)
    if isinstance(value, tuple):
        if len(value) != 1:
            raise UnknownError
        value = value[0]
    if not quoted and (set(value) & _GLOB or any(blank in value for blank in _BLANKS)):
        raise UnknownError
    return value


def _chosen(atom: Atom, scope: Scope) -> str | tuple[str, ...]:
    """A variable's value, or what stands behind `:-` and its like.

    Raises:
        UnknownError: It cannot be told.
    """
    value = scope.get(atom.text)
    if isinstance(value, tuple) and not (atom.array or atom.text in {"@", "*"}):
        value = value[0] if value else None
    if isinstance(value, str) and atom.array:
        value = (value,)
    missing = value is None or (":" in atom.test and not value)
    if atom.test.endswith("+"):
        value = None if missing else atom.other
    elif atom.test and missing:
        value = atom.other
    if value is None:
        return () if atom.array else ""
    return value


class _Fields:
    """A word's fields, built up from its atoms."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._done: list[str] = []
        self._open: str | None = None
        self._behind_list = False

    def of(self, word: ShellWord) -> tuple[str, ...]:
        """The words that a process gets for it.

        Raises:
            UnknownError: They cannot be told.
        """
        for atom in word.atoms:
            self._take(atom)
        return (*self._done, *([self._open] if self._open is not None else []))

    def _take(self, atom: Atom) -> None:
        if atom.kind is Kind.TEXT:
            if atom.text or atom.context:  # a continued line is no empty word
                self._join(atom.text)
            return
        if atom.kind is Kind.OPAQUE:
            raise UnknownError
        value = _chosen(atom, self._scope)
        if isinstance(value, tuple):
            self._list(atom, value)
        elif atom.context:
            self._join(value)
        else:
            self._split(value)

    def _join(self, text: str) -> None:
        self._open = (self._open or "") + text

    def _list(self, atom: Atom, values: tuple[str, ...]) -> None:
        self._behind_list = self._behind_list or bool(atom.context)
        if atom.context and (atom.array == "[*]" or atom.text == "*"):
            self._join(" ".join(values))
        elif atom.context:
            for index, value in enumerate(values):
                if index:
                    self._close()
                self._join(value)
            if not values and self._open == "":
                self._open = None  # "${EMPTY[@]}" is no word at all
        else:
            if not all(values):
                raise UnknownError  # empty ones vanish in some shells and at some places only
            self._split(" ".join(values)) if self._scope.splits else self._several(values)

    def _several(self, values: tuple[str, ...]) -> None:
        for index, value in enumerate(values):
            if index:
                self._close()
            self._join(value)

    def _split(self, value: str) -> None:
        if set(value) & _GLOB:
            raise UnknownError
        if not self._scope.splits:
            if value:
                self._join(value)
            return
        if self._behind_list and set(value) & set(_BLANKS):
            raise UnknownError  # dash makes an empty word of two blanks then
        if value[:1] in set(_BLANKS):
            self._close()
        for index, text in enumerate(value.split()):
            if index:
                self._close()
            self._join(text)
        if value[-1:] in set(_BLANKS):
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(self._open)
        self._open = None


def _pieces(word: ShellWord, scope: Scope) -> tuple[Piece, ...] | None:
    """How the word's only value came to be; None where it may be none or several."""
    try:
        found = tuple(
            Piece(
                atom.start - word.start,
                atom.end - word.start,
                _one(atom, scope, quoted=bool(atom.context)),
                atom.context,
            )
            for atom in word.atoms
        )
    except UnknownError:
        return None
    bare = any(a.kind is Kind.PARAMETER and not a.context for a in word.atoms)
    several = any(a.array or a.text in {"@", "*"} for a in word.atoms if a.kind is Kind.PARAMETER)
    return None if several or (bare and not any(piece.value for piece in found)) else found
