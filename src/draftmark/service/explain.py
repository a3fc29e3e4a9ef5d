"""Why a program could not be started, in words, with the next step. Looks at the file system, changes nothing."""

from __future__ import annotations

import difflib
import errno
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftmark.errors import DraftmarkError, StartError, StorageError
from draftmark.service.guarded import LaunchFailure

_WORDS = {
    errno.ENOENT: "no such file",
    errno.EACCES: "permission denied",
    errno.ENOEXEC: "not a program that this machine can run",
    errno.ENOTDIR: "a part of its path is not a directory",
    errno.E2BIG: "arguments and environment are too long",
}


def launch_error(
    failure: LaunchFailure, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, log: Path
) -> DraftmarkError:
    """The error for a launch that failed: StorageError if the log cannot be written, else StartError."""
    reason = _WORDS.get(failure.number, os.strerror(failure.number) if failure.number else failure.detail)
    evidence = (_errno_line(failure), f"command: {shlex.join(argv)}")
    match failure.stage:
        case "log":
            return StorageError(
                f'cannot write the log "{log}": {reason}', evidence=evidence[:1], next_step=_log_step(failure, log)
            )
        case "chdir":
            return StartError(
                f'cannot enter the working directory "{cwd}": {reason}',
                evidence=evidence,
                next_step="check the path",
            )
        case "exec":
            return _exec_error(failure, argv, env, cwd, evidence)
        case "guard":
            return StartError(
                f"cannot start the guard process: {reason}",
                evidence=evidence,
                next_step="see whether `python3 -I -S -c 'import ctypes, json'` works with Draftmark's Python",
            )
        case _:
            return StartError(
                f'cannot run "{argv[0]}": {reason}',
                evidence=(*evidence, f"stage: {failure.stage}"),
                next_step="see `ulimit -u` and `free -m`: the system refused a new process",
            )


def _errno_line(failure: LaunchFailure) -> str:
    if not failure.number:
        return failure.detail
    return f"{errno.errorcode.get(failure.number, failure.number)}: {os.strerror(failure.number)}"


def _log_step(failure: LaunchFailure, log: Path) -> str:
    if failure.number in (errno.ENOSPC, errno.EDQUOT):
        return f"make room on the file system of {log.parent}"
    if failure.number == errno.ENOENT:
        return f"create the directory {log.parent}"
    return f"check the permissions of {log.parent}"


def _exec_error(
    failure: LaunchFailure, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, evidence: tuple[str, ...]
) -> StartError:
    program = argv[0]
    found = _located(program, env, cwd)
    reason = _WORDS.get(failure.number, os.strerror(failure.number))
    step = "check the name, or give its full path"
    if failure.number == errno.ENOENT and found is not None:
        reason = "the interpreter or loader that it asks for does not exist"
        evidence = (*evidence, f"{found}: {_first_line(found)}")
        step = "correct its first line, or install what it names"
    elif failure.number == errno.ENOENT:
        close = _close_names(program, env, cwd)
        if close:
            step = f"did you mean {' or '.join(close)}?"
        if "/" not in program:
            evidence = (*evidence, f"PATH={env.get('PATH', os.defpath)}")
    elif failure.number == errno.EACCES and found is not None:
        reason = "it is a directory" if found.is_dir() else "it is not executable"
        step = f"name a program in {found}" if found.is_dir() else f"chmod +x {shlex.quote(str(found))}"
    elif failure.number == errno.ENOEXEC:
        step = 'give a script a first line such as "#!/bin/sh", and a binary the right architecture'
    elif failure.number == errno.E2BIG:
        step = "shorten the command line or the environment"
    return StartError(f'cannot run "{program}": {reason}', evidence=evidence, next_step=step)


def _directories(env: Mapping[str, str], cwd: Path | None) -> list[Path]:
    base = cwd if cwd is not None else Path()
    return [base / part for part in env.get("PATH", os.defpath).split(os.pathsep)]


def _located(program: str, env: Mapping[str, str], cwd: Path | None) -> Path | None:
    base = cwd if cwd is not None else Path()
    places = [base / program] if "/" in program else [part / program for part in _directories(env, cwd)]
    return next((place for place in places if place.exists()), None)


def _close_names(program: str, env: Mapping[str, str], cwd: Path | None) -> list[str]:
    """Executables that are spelt nearly like it: on the PATH, or beside it where a path was given."""
    path = Path(program)
    folders = [(cwd or Path()) / path.parent] if "/" in program else _directories(env, cwd)
    names: set[str] = set()
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                names.update(entry.name for entry in entries if os.access(entry.path, os.X_OK))
        except OSError:
            continue
    close = difflib.get_close_matches(path.name, sorted(names), n=2, cutoff=0.75)
    return [str(path.parent / name) if "/" in program else name for name in close]


def _first_line(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            line = stream.readline(120)
    except OSError as error:
        return error.strerror or "not readable"
    return line.decode("utf-8", "replace").strip() if line.startswith(b"#!") else "not a script"
