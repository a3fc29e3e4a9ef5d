"""The environment of a service's processes, from the settings of its unit and the files that these name.

After systemd.exec(5), "Environment", and systemd's own readers. Later wins: systemd's own variables,
PassEnvironment=, Environment=, and then every EnvironmentFile=, wherever it stands; UnsetEnvironment= takes out of
all of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from draftmark.errors import RefusedError
from draftmark.service.systemd.envfile import parse_env_file
from draftmark.service.systemd.pieces import Piece, UnreadableError, text_of
from draftmark.service.systemd.quoting import Word, next_word
from draftmark.service.systemd.specifiers import substituted
from draftmark.service.systemd.unitfile import Assignment, Unit

NEW_EACH_START = frozenset(
    {
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "SYSTEMD_EXEC_PID",
        "NOTIFY_SOCKET",
        "LISTEN_PID",
        "WATCHDOG_PID",
        "MAINPID",
    }
)
"""Variables that systemd sets anew at each start: no word may be resolved by them."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class ServiceEnvironment(Mapping[str, str]):
    """Variables as a process of the service sees them.

    Attributes:
        variables: Name to value.
        origins: Name to where it was assigned: `/etc/default/llm:3`.
        unknown: Names whose value cannot be told from here.
    """

    variables: Mapping[str, str]
    origins: Mapping[str, str] = field(default_factory=dict)
    unknown: frozenset[str] = NEW_EACH_START

    def __getitem__(self, name: str) -> str:
        return self.variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def described(self, name: str) -> str:
        """`$LLAMA_ARGS of /etc/default/llm:3`."""
        origin = self.origins.get(name)
        return f"${name} of {origin}" if origin else f"${name}"

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ServiceEnvironment:
        """The same, where no origins are known."""
        return environment if isinstance(environment, cls) else cls(dict(environment))


@dataclass(frozen=True, slots=True)
class WantedFile:
    """An EnvironmentFile=.

    Attributes:
        path: May be a pattern.
        optional: It may be missing.
        where: The assignment.
    """

    path: str
    optional: bool
    where: Assignment


def wanted_files(unit: Unit, specifiers: Mapping[str, str]) -> tuple[WantedFile, ...]:
    """The EnvironmentFile= in force, in order: what has to be read to know the environment."""
    return tuple(
        WantedFile(path, assignment.value.startswith("-"), assignment)
        for assignment in unit.all("EnvironmentFile")
        if (path := printed(assignment.value.removeprefix("-"), specifiers)).startswith("/")
    )


def service_environment(
    unit: Unit,
    specifiers: Mapping[str, str],
    files: Mapping[str, str],
    *,
    base: Mapping[str, str] | None = None,
    manager: Mapping[str, str] | None = None,
    version: int | None = None,
) -> ServiceEnvironment:
    """What the unit's settings make of the environment.

    Args:
        unit: Its files.
        specifiers: Letter to value.
        files: The EnvironmentFile= that are there, path to text; for a pattern, each file that it matches.
        base: What systemd sets by itself: `systemctl show-environment`, HOME, USER and the like.
        manager: The manager's own environment, for PassEnvironment=; None when it cannot be read.
        version: Of systemd; None for a recent one.

    Raises:
        RefusedError: An EnvironmentFile= that must be there is missing or not readable for systemd: the service
            would not start.
    """
    values, origins = dict(base or {}), {}
    unknown = set(NEW_EACH_START)
    for name in _listed(unit, "PassEnvironment", specifiers):
        if manager is None:
            unknown.add(name)
        elif name in manager:
            values[name], origins[name] = manager[name], "PassEnvironment="
    for name, value, where in [*_assigned(unit, specifiers), *_from_files(unit, specifiers, files, version)]:
        values[name], origins[name] = value, where
        unknown.discard(name)
    for unset in _listed(unit, "UnsetEnvironment", specifiers):
        name, equals, value = unset.partition("=")
        if name in values and (not equals or values[name] == value):
            del values[name]
        if not equals:
            unknown.discard(name)
    return ServiceEnvironment(values, origins, frozenset(unknown))


def printed(text: str, specifiers: Mapping[str, str]) -> str:
    """A text that is no list of words, its specifiers replaced."""
    pieces = [Piece(at, at + 1, char) for at, char in enumerate(text)]
    return text_of(substituted(pieces, specifiers))


def _words(assignment: Assignment) -> Iterator[Word]:
    """Up to the first that cannot be read, which systemd leaves out with all behind it."""
    at = 0
    while True:
        try:
            word = next_word(assignment.value, at)
        except UnreadableError:
            return
        if word is None:
            return
        yield word
        at = word.end


def _listed(unit: Unit, key: str, specifiers: Mapping[str, str]) -> list[str]:
    return [text_of(substituted(w.pieces, specifiers)) for a in unit.all(key) for w in _words(a)]


def _assigned(unit: Unit, specifiers: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for assignment in unit.all("Environment"):
        for word in _words(assignment):
            name, equals, value = text_of(substituted(word.pieces, specifiers)).partition("=")
            if equals and _NAME.match(name) and _is_utf8(value):
                yield name, value, assignment.where


def _from_files(
    unit: Unit, specifiers: Mapping[str, str], files: Mapping[str, str], version: int | None
) -> Iterator[tuple[str, str, str]]:
    for wanted in wanted_files(unit, specifiers):
        found = sorted(path for path in files if _matches(path, wanted.path))
        if not found and not wanted.optional:
            raise RefusedError(
                f"the service's EnvironmentFile {wanted.path} is not there, so it would not start again",
                evidence=(str(wanted.where),),
                next_step="put the file back, or a `-` before its name if it may be missing",
            )
        for path in found:
            entries = tuple(parse_env_file(files[path], version=version))
            if not all(_is_utf8(value) for _, value, _ in entries):
                if wanted.optional:
                    continue
                raise RefusedError(
                    f"{path} is not UTF-8, so systemd does not read it and the service would not start again",
                    evidence=(str(wanted.where),),
                    next_step="save the file as UTF-8",
                )
            for name, value, line in entries:
                if _NAME.match(name):
                    yield name, value, f"{path}:{line}"


def _matches(path: str, pattern: str) -> bool:
    ours, theirs = path.split("/"), pattern.split("/")
    return len(ours) == len(theirs) and all(map(fnmatchcase, ours, theirs))


def _is_utf8(value: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in value)
