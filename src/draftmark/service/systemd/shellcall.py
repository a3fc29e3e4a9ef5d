"""Whether a command line hands a script to a shell, and where in it the script stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from draftmark.service.systemd.shellwords import names

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SU = frozenset({"su", "runuser"})
# Programs that run the rest of their words as a command.
WRAPPERS = names(
    "authbind busybox capsh catatonit choom chroot chrt conda cset dbus-run-session doas dumb-init env flock gosu "
    "hatch ionice linux64 mamba micromamba mpirun nice nix nix-shell nohup nsenter numactl pdm pixi poetry "
    "prlimit runuser script setarch setpriv setsid srun stdbuf su su-exec sudo systemd-inhibit taskset time "
    "timeout tini unshare uv xvfb-run"
)
_CLEANING = frozenset({"sudo", "doas", "gosu", "su-exec"})
_WITH_VALUE = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """A shell that is given a script as a word.

    Attributes:
        shell: `bash`.
        script: Index of the script among the words.
        login: Whether it reads the user's profile before.
        clean: Whether the environment does not reach it as it is.
        variables: Set for it by `env NAME=value`.
    """

    shell: str
    script: int
    login: bool
    clean: bool
    variables: tuple[tuple[str, str], ...]


def shell_call(words: Sequence[str]) -> Call | None:
    """The shell that a command line starts with `-c`, directly or behind wrappers; None when it starts none."""
    if not words or _name(words[0]) not in SHELLS | WRAPPERS:
        return None
    for index, word in enumerate(words):
        name = _name(word)
        if name not in SHELLS | _SU:
            continue
        options = _options(words, index + 1, su=name in _SU)
        if options is None:
            continue
        script, flags = options
        before = words[:index]
        login = "--login" in flags or "-" in flags or any(re.match(r"-[a-zA-Z]*l", flag) for flag in flags)
        clean = any(_name(w) in _CLEANING for w in before) or ("env" in map(_name, before) and "-i" in before)
        variables = tuple((m[1], m[2]) for w in before if (m := _VARIABLE.fullmatch(w)))
        shell = "sh" if name in _SU else name
        return Call(shell, script, login, clean or (name in _SU and login), variables)
    return None


def _name(word: str) -> str:
    return PurePosixPath(word).name


def _options(words: Sequence[str], at: int, *, su: bool) -> tuple[int, list[str]] | None:
    """Index of the script behind `-c`, and the options before it; None where there is no `-c`."""
    return _su_options(words, at) if su else _shell_options(words, at)


def _su_options(words: Sequence[str], at: int) -> tuple[int, list[str]] | None:
    flags: list[str] = []
    while at < len(words) - 1:
        word = words[at]
        if word in {"-c", "--command"}:
            return at + 1, flags
        if word in {"--", "-u", "--user"}:
            return None  # a command follows, whose own flags these are
        flags.append(word)
        at += 1
    return None


def _shell_options(words: Sequence[str], at: int) -> tuple[int, list[str]] | None:
    flags: list[str] = []
    found_c = False
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
        if word == "--" or word[:1] not in {"-", "+"}:
            return (at, flags) if found_c and at < len(words) else None
        found_c = found_c or re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) is not None
        flags.append(word)
        at += 2 if word in _WITH_VALUE else 1
    return None
