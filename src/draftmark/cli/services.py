"""`draftmark.toml`: services by name, so that nobody types units, hosts and options twice."""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmark.errors import BadInputError, DraftmarkError, UsageError
from draftmark.model import Foreign, ServiceKind, ServiceRef
from draftmark.service.reference import parse_reference

FILE = "draftmark.toml"

_EXAMPLE = '[services.qwen]\nunit = "sglang-qwen.service"\nhost = "gpu1"'
_SERVICE_KEYS = {"unit": str, "host": str, "members": list, "foreign": str, "patience": (int, float), "lease": int}
_OPTIONS: tuple[str, ...] = ("foreign", "patience", "lease")
_DEFAULTS: dict[str, Any] = {"foreign": Foreign.ABORT, "patience": 120.0, "lease": 60}
_MEMBER_KEYS = {"unit": str, "host": str}


@dataclass(frozen=True, slots=True)
class Member:
    """One unit of a service.

    Attributes:
        host: SSH destination; None for this computer.
    """

    unit: str
    host: str | None = None

    def __str__(self) -> str:
        """As it is typed: `unit:big-0.service --host gpu1`."""
        return f"unit:{self.unit}" + (f" --host {self.host}" if self.host else "")


@dataclass(frozen=True, slots=True)
class Named:
    """A service of the file.

    Attributes:
        members: In rank order; the first answers requests.
        options: Option name to value, where the file gives one.
    """

    name: str
    members: tuple[Member, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def resolve(args: argparse.Namespace, config: Path = Path(FILE)) -> Named | None:
    """The service that the arguments name by a name of the file; None when they give a reference.

    What the command line gives itself goes before what the file says.

    Raises:
        UsageError: There is no such name.
        BadInputError: The file cannot be used.
    """
    word = args.service
    if is_file(word):
        return _only(Path(word))
    if ":" in word or not config.is_file():
        return None
    services = load(config)
    if word not in services:
        close = difflib.get_close_matches(word, services, n=1)
        raise UsageError(
            f'no service "{word}" in {config}',
            evidence=(f"it has: {', '.join(services)}",),
            next_step=f"did you mean {close[0]}?" if close else f"name one of these, or unit:{word or 'NAME'}",
        )
    return services[word]


def is_file(word: str) -> bool:
    """Whether a word is the path of such a file."""
    return word.endswith(".toml") and Path(word).is_file()


def _only(config: Path) -> Named:
    services = load(config)
    if len(services) > 1:
        raise UsageError(
            f"{config} has several services",
            evidence=(f"it has: {', '.join(services)}",),
            next_step=f"in {config.absolute().parent}, where they can be called by name, name one of them"
            if config.name == FILE
            else f"name one of them, in the folder of a {FILE}",
        )
    return next(iter(services.values()))


def asked(args: argparse.Namespace, config: Path = Path(FILE)) -> Named | ServiceRef:
    """What the arguments name: a service of the file, whose options are filled in, or a reference.

    Raises:
        UsageError: It is neither.
        BadInputError: The file cannot be used.
    """
    named = resolve(args, config)
    if named is not None:
        fill_in(args, named)
        return named
    try:
        return parse_reference(args.service)
    except UsageError as error:
        if ":" not in args.service:
            error.evidence = (*error.evidence, no_file(config))
        raise


def reference(args: argparse.Namespace) -> ServiceRef | None:
    """The reference that the arguments give; None when they name a service of the file. Raises as `asked`."""
    found = asked(args)
    return found if isinstance(found, ServiceRef) else None


def no_file(config: Path = Path(FILE)) -> str:
    """Why a bare word is no name, in words."""
    return f"a name without a colon stands in {config}, which is not here"


def units(args: argparse.Namespace, refused: Callable[[ServiceRef], UsageError]) -> tuple[Member, ...]:
    """The units that the arguments name, in rank order, for a verb that is about units.

    Args:
        args: With `service` and `host`.
        refused: What is said of a reference to anything else.

    Raises:
        UsageError: They name none.
        BadInputError: The file cannot be used.
    """
    found = asked(args)
    if isinstance(found, Named):
        return found.members
    if found.kind is not ServiceKind.UNIT:
        raise refused(found)
    return (Member(found.target, args.host),)


def for_each(
    members: Sequence[Member], do: Callable[[Member], dict[str, Any]], tell: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Do something to each member in rank order, whatever becomes of the others.

    Args:
        members: In rank order.
        do: To one; what came of it.
        tell: Is told that at once.

    Raises:
        DraftmarkError: The worst of those that failed, with what became of the others.
    """
    done: list[dict[str, Any]] = []
    said: list[str] = []
    failed: list[tuple[Member, DraftmarkError]] = []
    for member in members:
        try:
            done.append(do(member))
            tell(done[-1])
            said.append(f"{member}: done")
        except DraftmarkError as error:
            failed.append((member, error))
            said.append(f"{member}: {error.what}")
    if failed:
        member, worst = max(failed, key=lambda pair: pair[1].exit_status)
        if len(members) > 1:
            worst.what = f"{member}: {worst.what}"
            worst.evidence = (*worst.evidence, *(line for line in said if not line.startswith(f"{member}: ")))
        raise worst
    return done


def fill_in(args: argparse.Namespace, named: Named) -> None:
    """What the file says of options that the command line leaves at their defaults.

    Raises:
        UsageError: The command line says where the service is, and so does the file.
    """
    if getattr(args, "host", None) is not None:
        raise UsageError(
            f"{FILE} says on which host {named.name} is",
            evidence=(f"--host {args.host}",),
            next_step="leave --host out, or name unit:NAME",
        )
    for key, value in named.options.items():
        if hasattr(args, key) and getattr(args, key) == _DEFAULTS[key]:
            setattr(args, key, Foreign(value) if key == "foreign" else value)


def load(path: Path) -> dict[str, Named]:
    """The services of a file, by name.

    Raises:
        BadInputError: It cannot be read, is no TOML, or says what is not understood.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}", next_step="name another file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} is not TOML", evidence=(str(error),), next_step="mend that line") from None
    services = document.get("services")
    if not isinstance(services, dict) or not services or set(document) != {"services"}:
        extra = ", ".join(sorted(set(document) - {"services"}))
        raise BadInputError(
            f"{path} names no services" if not extra else f"{path} has keys that are not known: {extra}",
            next_step=f"write it like this:\n{_EXAMPLE}",
        )
    return {name: _service(path, name, entry) for name, entry in services.items()}


def _service(path: Path, name: str, entry: object) -> Named:
    where = f"{path}: services.{name}"
    known = _checked(where, entry, _SERVICE_KEYS)
    if ("unit" in known) == ("members" in known):
        raise BadInputError(f"{where}: give either unit or members", next_step=f"for example:\n{_EXAMPLE}")
    if "foreign" in known and known["foreign"] not in set(Foreign):
        raise BadInputError(f"{where}: foreign is {' | '.join(Foreign)}", evidence=(str(known["foreign"]),))
    if "unit" in known:
        members: tuple[Member, ...] = (Member(known["unit"], known.get("host")),)
    else:
        checked = [_checked(f"{where}.members[{i}]", m, _MEMBER_KEYS) for i, m in enumerate(known["members"])]
        if not checked or any("unit" not in each for each in checked):
            raise BadInputError(
                f"{where}: every member has a unit", next_step='members = [{ unit = "…", host = "…" }]'
            )
        members = tuple(Member(each["unit"], each.get("host", known.get("host"))) for each in checked)
    options: dict[str, Any] = {key: known[key] for key in _OPTIONS if key in known}
    return Named(name, members, options)


def _checked(where: str, entry: object, kinds: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise BadInputError(f"{where} is no table", next_step=f"for example:\n{_EXAMPLE}")
    for key, value in entry.items():
        if key not in kinds:
            raise BadInputError(f"{where}: {key} is not known", evidence=(f"known: {', '.join(kinds)}",))
        if not isinstance(value, kinds[key]) or isinstance(value, bool) or value in ("", 0):
            raise BadInputError(f"{where}: {key} cannot be {value!r}", next_step=f"for example:\n{_EXAMPLE}")
    return entry
