"""Which version's rules a command line follows. Rules are known for the versions that were read; see facts.toml."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from glob import glob
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

Find = Callable[[Sequence[str]], Sequence[str]]
"""From glob patterns to the paths that exist, on the host of the service."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_IMAGE = re.compile(r"(?:^|/)sglang\S*:v?(\d+\.\d+\.\d+[\w.]*)")
_INFO = re.compile(r"sglang-(\d+\.\d+\.\d+[^/-]*)\.dist-info/?$")


@cache
def facts() -> dict[str, Any]:
    """facts.toml, read once."""
    return tomllib.loads(files(__package__).joinpath("facts.toml").read_text(encoding="utf-8"))


@cache
def read_minors() -> tuple[int, ...]:
    """Minor numbers of 0.5 whose sources were read, oldest first."""
    return tuple(facts()["read"])


@cache
def choices(flag: str, minor: int) -> tuple[str, ...]:
    """Values that a version takes for a flag, by its name without dashes; empty where they are not known."""
    table = tomllib.loads(files(__package__).joinpath("choices.toml").read_text(encoding="utf-8"))
    return tuple(value for value, (first, last) in table.get(flag, {}).items() if first <= minor <= last)


@dataclass(frozen=True, slots=True)
class Rules:
    """Whose rules are followed, and what had to be assumed.

    Attributes:
        minor: Of 0.5: a version that was read.
        version: As it was told; None when nothing tells it.
        assumption: In words; None where the version itself was read.
        neighbour: The next newer version that was read, where the version lies between two: its flags may be there.
    """

    minor: int
    version: str | None = None
    assumption: str | None = None
    neighbour: int | None = None

    @property
    def certain(self) -> bool:
        """Whether a flag that is not among these rules' is surely unknown to the server."""
        return self.version is not None and self.assumption is None


def rules_for(version: str | None) -> Rules:
    """Rules of a version: its own, or those of the nearest older one that was read."""
    known = read_minors()
    newest = f"0.5.{known[-1]}"
    found = _VERSION.match(version.strip()) if version else None
    if version is None or found is None:
        what = "the version is not known" if version is None else f"{version!r} is no version"
        return Rules(known[-1], None, f"{what}: the rules of SGLang {newest} are assumed")
    major, middle, minor = (int(part) for part in found.groups())
    if (major, middle) > (0, 5):
        return Rules(known[-1], version, f"SGLang {version} is newer than what was read: {newest} is assumed")
    if (major, middle) < (0, 5) or minor < known[0]:
        oldest = f"0.5.{known[0]}"
        return Rules(known[0], version, f"SGLang {version} is older than what was read: {oldest} is assumed")
    nearest = max(each for each in known if each <= minor)
    if nearest == minor:
        return Rules(minor, version)
    after = next((each for each in known if each > minor), None)
    if after is None:
        return Rules(nearest, version, f"SGLang {version} is newer than what was read: {newest} is assumed")
    return Rules(nearest, version, f"SGLang {version} was not read: the rules of 0.5.{nearest} are assumed", after)


def installed(command: Sequence[str], find: Find | None = None) -> str | None:
    """The version that a command line runs: an image's tag, or the package beside its interpreter.

    Args:
        command: With its wrappers.
        find: Looks at the service's host; None looks at this one.
    """
    for word in command:
        if (image := _IMAGE.search(word)) is not None:
            return image[1]
    here = find is None
    for word in command:
        name = PurePath(word).name
        if name == facts()["programs"]["cli"] or re.fullmatch(r"python[\d.]*", name):
            patterns = _package_patterns(word, here=here)
            found = (_INFO.search(path) for path in (_glob(patterns) if find is None else find(patterns)))
            return next((each[1] for each in found if each is not None), None)
    return None


def shell_find(patterns: Sequence[str]) -> str:
    """A shell line that prints the paths which match, for a host that is reached by commands."""
    quoted = ("*".join(shlex.quote(part) if part else "" for part in pattern.split("*")) for pattern in patterns)
    return "ls -d " + " ".join(quoted) + " 2>/dev/null"


def _package_patterns(program: str, *, here: bool) -> tuple[str, ...]:
    """Where the package of an interpreter, or of a script beside it, has its metadata."""
    place = program
    if "/" not in program:
        place = (shutil.which(program) or "") if here else f"/usr/bin/{program}"
    if not place.startswith("/"):
        return ()
    prefix = PurePath(place).parent.parent
    roots = [prefix / "lib"]
    if here:
        roots.append(Path(place).resolve().parent.parent / "lib")  # a link to it
    if prefix.as_posix() == "/usr":
        roots.append(PurePath("/usr/local/lib"))
    return tuple(
        f"{root.as_posix()}/python3*/{kind}-packages/sglang-*.dist-info"
        for root in dict.fromkeys(roots)
        for kind in ("site", "dist")
    )


@cache
def _glob(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Looked at once: what is installed does not change under a run."""
    return tuple(path for pattern in patterns for path in sorted(glob(pattern)))  # noqa: PTH207 - absolute patterns
