"""SGLang's command line, read as its own parser reads it. Pure; the option strings are in options.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from draftmark.engines.sglang.versions import Rules, facts, read_minors

_PYTHON = re.compile(r"python[\d.]*")
_ENTRY = re.compile(r"(?:^|[-_./])(?:docker-)?entry-?point(?:\.\w+)?$|\.sh$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_VALUED_SWITCHES = ("-X", "-W", "--check-hash-based-pycs")  # of the interpreter


# --- where the server stands in a command line -----------------------------------------------------------------


def first_argument(command: Sequence[str]) -> int | None:
    """Index of the server's first argument; None when no SGLang server is started here.

    Wrappers may stand before it. Other programs of the package, such as its load generator, are no server.
    """
    for index in range(len(command)):
        after = _program_at(command, index)
        if after is not None:
            return after if _introduces(command[:index]) else None
    return None


def _program_at(command: Sequence[str], index: int) -> int | None:
    """Index behind the words that name the server, if they stand at `index`."""
    programs = facts()["programs"]
    word, following = command[index], command[index + 1] if index + 1 < len(command) else ""
    module, length = (following, 2) if word == "-m" else (word[2:], 1) if word.startswith("-m") else ("", 0)
    if module in programs["modules"]:
        return index + length
    serves = list(command[index + length : index + length + 1]) == ["serve"]
    if module in programs["serving_modules"] and serves:
        return index + length + 1
    if PurePath(word).name == programs["cli"] and following == "serve":
        return index + 2
    if PurePath(word).parts[-2:] == PurePath(programs["script"]).parts:
        return index + 1
    return None


def _introduces(before: Sequence[str]) -> bool:
    """Whether these words run what follows them: an interpreter and its switches, or wrappers and theirs."""
    words = list(before)
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    if not words:
        return True
    name = PurePath(words[0]).name
    if _PYTHON.fullmatch(name):
        return _only_switches(words[1:])
    if name not in facts()["programs"]["wrappers"] and not _ENTRY.search(words[0]):
        return False
    pythons = [
        at
        for at, word in enumerate(words)
        if _PYTHON.fullmatch(PurePath(word).name) and words[at - 1] != "--entrypoint"
    ]
    return not pythons or _only_switches(words[pythons[-1] + 1 :])


def _only_switches(words: Sequence[str]) -> bool:
    rest = iter(words)
    for word in rest:
        if word in _VALUED_SWITCHES:
            next(rest, None)
        elif not word.startswith("-") or word.startswith(("-m", "-c")):
            return False
    return True


# --- option strings --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One option string.

    Attributes:
        name: Of the flag that it spells: its canonical string.
        arity: Words that follow: `0`, `1`, `?` (0 or 1), `*` or `+`.
        since: Oldest minor version, of those read, that has it.
        until: Newest.
        deprecated: Minor version from which on the server warns of it; None where it does not.
        instead: What to write in its place; empty where nothing takes it.
    """

    spelled: str
    name: str
    arity: str
    since: int
    until: int
    deprecated: int | None = None
    instead: str = ""

    def in_version(self, minor: int) -> bool:
        """Whether that version has it."""
        return self.since <= minor <= self.until


_ENTRY_FORM = re.compile(
    r"(?P<arity>[01?*+])(?: (?P<since>\d+)-(?P<until>\d+))?"
    r"(?: =(?P<name>\S+))?(?: !(?P<old>\d+))?(?: >(?P<new>.+))?"
)


@cache
def options() -> Mapping[str, Option]:
    """Every option string of any version that was read."""
    text = files(__package__).joinpath("options.toml").read_text(encoding="utf-8")
    return {spelled: _option(spelled, entry) for spelled, entry in tomllib.loads(text)["options"].items()}


def _option(spelled: str, entry: str) -> Option:
    found = _ENTRY_FORM.fullmatch(entry)
    if found is None:
        raise ValueError(f"options.toml: {spelled}: {entry}")
    return Option(
        spelled=spelled,
        name=found["name"] or spelled,
        arity=found["arity"],
        since=int(found["since"] or read_minors()[0]),
        until=int(found["until"] or read_minors()[-1]),
        deprecated=int(found["old"]) if found["old"] else None,
        instead=found["new"] or "",
    )


@cache
def _of_version(minor: int) -> Mapping[str, Option]:
    return {spelled: option for spelled, option in options().items() if option.in_version(minor)}


def meant(word: str, rules: Rules) -> tuple[Option, ...]:
    """The options that a word can mean, as argparse has it: the very string, else every string that it begins.

    One is what it means, none says that the version has no such flag, several that it is ambiguous.
    """
    spelled = word.partition("=")[0]
    tried = (rules.minor,) if rules.neighbour is None else (rules.minor, rules.neighbour)
    for minor in tried:
        known = _of_version(minor)
        if spelled in known:
            return (known[spelled],)
        if spelled.startswith("--") and len(spelled) > 2:
            begun = {each.name: each for name, each in known.items() if name.startswith(spelled)}
            if begun:
                return tuple(begun.values())
    return ()


# --- a command line taken apart --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Given:
    """One flag with its values, where it stands.

    Attributes:
        spelled: As it was written, without `=VALUE`.
        option: What it means; None when the version has no such flag, or several.
        start: Index of its word in the command line.
        stop: Index behind its last word.
        could_be: What an ambiguous one could mean.
    """

    spelled: str
    option: Option | None
    values: tuple[str, ...]
    start: int
    stop: int
    could_be: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Canonical where it is known."""
        return self.option.name if self.option else self.spelled


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command line's flags, in order, and a model that stands without one (`sglang serve MODEL`)."""

    given: tuple[Given, ...]
    positional: str | None = None

    def value(self, name: str) -> str | None:
        """The last value of a flag, by its canonical name; None when it is not given, or takes none."""
        found = [each for each in self.given if each.name == name and each.values]
        if not found and name == "--model-path":
            return self.positional
        return found[-1].values[-1] if found else None

    def has(self, name: str) -> bool:
        """Whether a flag is given, and not as its `--no-` form."""
        found = [each for each in self.given if each.name == name]
        return bool(found) and not found[-1].spelled.startswith("--no-")


def parse(command: Sequence[str], rules: Rules) -> Parsed:
    """Take the server's arguments apart; words of wrappers before it are left alone."""
    start = first_argument(command)
    if start is None:
        return Parsed(())
    given: list[Given] = []
    positional: str | None = None
    index = start
    while index < len(command):
        if not _is_flag(command[index]):
            if index == start:
                positional = command[index]
            index += 1
            continue
        found = _given(command, index, rules)
        given.append(found)
        index = found.stop
    return Parsed(tuple(given), positional)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not re.fullmatch(r"-\d+(\.\d*)?|-\.\d+", word)


def _given(command: Sequence[str], index: int, rules: Rules) -> Given:
    candidates = meant(command[index], rules)
    option = candidates[0] if len(candidates) == 1 else None
    spelled, equals, attached = command[index].partition("=")
    arity = option.arity if option else "*"
    stop = index + 1
    if not equals and arity != "0":
        most = 1 if arity in "1?" else len(command)
        while stop < len(command) and stop - index <= most and (arity == "1" or not _is_flag(command[stop])):
            stop += 1
    values = (attached,) if equals else tuple(command[index + 1 : stop])
    could_be = tuple(each.name for each in candidates) if option is None else ()
    return Given(spelled, option, values, index, stop, could_be)


def without(command: Sequence[str], given: Sequence[Given]) -> tuple[str, ...]:
    """The command line without these flags and their values, every other word as it was."""
    gone = {index for each in given for index in range(each.start, each.stop)}
    return tuple(word for index, word in enumerate(command) if index not in gone)
