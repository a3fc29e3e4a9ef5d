"""What `draftmark why` is asked about: a service on this host, evidence in files, or both."""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.cli import services
from draftmark.errors import UsageError
from draftmark.model import ServiceKind

FORMS = "unit:NAME, docker:NAME, pod:[NAMESPACE/]NAME, job:ID or a name of draftmark.toml"
"""The services that can be asked about, for people."""

STDIN = "-"
_KINDS = ("unit", "docker", "pod", "job")
_NAME = {"pod": re.compile(r"(?:[^\s/]+/)?[^\s/]+"), "job": re.compile(r"[0-9][0-9_+.]*")}
_ANY_NAME = re.compile(r"[^\s/-][^\s/]*")
# What one types for a kind that has another name here.
_ALIASES = {"systemd": "unit", "service": "unit", "container": "docker", "podman": "docker", "slurm": "job"}
_ALIASES |= {"k8s": "pod", "kubernetes": "pod", "kubectl": "pod", "sacct": "job"}


@dataclass(frozen=True, slots=True)
class Service:
    """A service whose death is looked into on this host.

    Attributes:
        kind: `unit`, `docker`, `pod` or `job`.
        name: Unit, container, `[namespace/]pod`, or job id.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Asked:
    """The words of the command line, sorted.

    Attributes:
        service: At most one.
        paths: Files, folders, archives, `-`.
        members: The units of a service that was named by a name of draftmark.toml, in rank order; `service` is
            the first.
    """

    service: Service | None
    paths: tuple[str, ...]
    members: tuple[services.Member, ...] = ()


def asked(words: Sequence[str]) -> Asked:
    """Sort the words into a service and paths. What exists as a path is one, but for a file that names services.

    Raises:
        UsageError: A word is neither, or two services are named.
        BadInputError: The file that names services cannot be used.
    """
    found: list[tuple[Service, tuple[services.Member, ...]]] = []
    paths = []
    for word in words:
        if word == STDIN or (os.path.lexists(word) and not services.is_file(word)):
            paths.append(word)
        elif (members := _named_in_file(word)) is not None:
            found.append((Service("unit", members[0].unit), members))
        else:
            found.append((parse(word), ()))
    if len(found) > 1:
        raise UsageError(
            "why looks into one service at a time",
            evidence=tuple(str(service) for service, _ in found),
            next_step="ask about each by itself",
        )
    service, members = found[0] if found else (None, ())
    return Asked(service, tuple(paths), members)


def _named_in_file(word: str) -> tuple[services.Member, ...] | None:
    """The units of a service of draftmark.toml; None for what cannot be a name of it."""
    if not services.is_file(word) and (not _ANY_NAME.fullmatch(word) or ":" in word):
        return None
    try:
        named = services.resolve(argparse.Namespace(service=word))
    except UsageError as error:
        if not services.is_file(word):
            error.evidence = (*error.evidence, "no file or folder of that name is here either")
        raise
    return named.members if named is not None else None


def parse(word: str) -> Service:
    """Read a service reference of `why`.

    Raises:
        UsageError: It is none.
    """
    kind, colon, name = word.partition(":")
    if colon and kind in _KINDS:
        return _named(kind, name.strip(), word)
    if colon and kind in set(ServiceKind):
        raise UsageError(
            f"the death of a {kind}: service leaves nothing that could be read",
            evidence=(word,),
            next_step=f"name what supervises it ({FORMS}), or hand over its log as a file",
        )
    if colon and kind in ("http", "https"):
        raise UsageError(
            "a URL tells nothing of why a server died", evidence=(word,), next_step=f"use {FORMS}, or a log file"
        )
    raise _unknown(word, kind if colon else "", name)


def _named(kind: str, name: str, word: str) -> Service:
    if not name:
        raise UsageError(f"{kind}: names nothing", evidence=(word,), next_step=f"use {FORMS}")
    if not _NAME.get(kind, _ANY_NAME).fullmatch(name) or name.startswith("-"):
        shape = "a number" if kind == "job" else "one word without a slash" if kind != "pod" else "[NAMESPACE/]NAME"
        raise UsageError(f"the name after {kind}: is {shape}", evidence=(word,), next_step=f"use {FORMS}")
    return Service(kind, name)


def _unknown(word: str, kind: str, name: str) -> UsageError:
    tried = f"no file or folder of that name, and no service reference ({FORMS})"
    if kind:
        meant = _ALIASES.get(kind.lower()) or next(iter(difflib.get_close_matches(kind, _KINDS, n=1)), None)
        advice = f"did you mean {meant}:{name}?" if meant else "check the path"
    elif "/" in word or not _ANY_NAME.fullmatch(word):
        advice = "check the path"
    else:
        advice = f"if it is a systemd unit: draftmark why unit:{word}"
    bare = () if kind or "/" in word else (services.no_file(),)
    return UsageError(f'there is no "{word}"', evidence=(tried, *bare), next_step=advice)
