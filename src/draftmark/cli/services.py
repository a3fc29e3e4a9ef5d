"""`draftmark.toml`: services by name, so that nobody types units, hosts and options twice."""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmark.errors import BadInputError, UsageError
from draftmark.model import Foreign

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
    if word.endswith(".toml") and Path(word).is_file():
        config, word = Path(word), ""
    if ":" in word or (word and not config.is_file()):
        return None
    services = load(config)
    if not word and len(services) == 1:
        word = next(iter(services))
    if word not in services:
        close = difflib.get_close_matches(word, services, n=1)
        raise UsageError(
            f'no service "{word}" in {config}' if word else f"{config} has several services",
            evidence=(f"it has: {', '.join(services)}",),
            next_step=f"did you mean {close[0]}?"
            if close
            else f"name one of them with {config} here, or unit:NAME",
        )
    return services[word]


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
