"""Variables that a command line sets for its server: `env NAME=VALUE …`, and a container's `-e`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from draftmark.engines.sglang.flags import first_argument

_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"(?:-e|--env)=?(.*)", re.DOTALL)


def in_force(command: Sequence[str], around: Mapping[str, str]) -> dict[str, str]:
    """What is set around the service, and over it what its command line sets."""
    found = dict(around)
    before, end = list(command), first_argument(command)
    words = before[: end or 0]
    for index, word in enumerate(words):
        given = word if _at_env(words[:index]) else _of_option(words, index)
        assigned = _ASSIGNED.fullmatch(given or "")
        if assigned is not None:
            found[assigned[1]] = assigned[2]
    return found


def _at_env(before: Sequence[str]) -> bool:
    """Whether only `env`, its options and assignments stand since the last program."""
    for word in reversed(before):
        if PurePath(word).name == "env":
            return True
        if _ASSIGNED.fullmatch(word) is None and not word.startswith("-"):
            return False
    return True  # assignments at the beginning


def _of_option(words: Sequence[str], index: int) -> str | None:
    if index and words[index - 1] in ("-e", "--env"):
        return words[index]
    option = _OPTION.fullmatch(words[index])
    return option[1] if option is not None else None
