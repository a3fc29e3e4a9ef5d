"""Adds a watch to a unit, and takes it away without a trace: over a Host, with commands that any host has."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from draftmark.errors import BadInputError, DraftmarkError, FailedError, RefusedError, StorageError
from draftmark.ports import Host
from draftmark.service.watch.keep import FORMS, REPORT
from draftmark.service.watch.places import (
    KEEP,
    SEEN,
    SETTINGS,
    Places,
    Settings,
    Watched,
    canonical,
    find,
    read_settings,
    reason,
    show,
)
from draftmark.service.watch.units import DROP_IN, Programs, drop_in, instance, is_ours, started, template

_PUT = (
    'umask 077; t="$1.$$.part"; cat >"$t" && chmod "$2" "$t" && mv -f "$t" "$1" && exit; '
    's=$?; rm -f "$t"; exit "$s"'
)
# Tells each folder that was not there, the outermost first.
_FOLDERS = (
    'm=$1; d=$2; l=""; while [ ! -d "$d" ]; do l="$d\n$l"; d=$(dirname "$d"); done; '
    'umask 022; mkdir -p "$2" && { [ -z "$l" ] || { chmod "$m" "$2"; printf "%s" "$l"; }; }'
)
_OTHERS = f'for f in "$1"/*.d/{DROP_IN}; do [ -e "$f" ] && echo "$f"; done; :'
_UNIT_MODE = "0644"
_SECRET_MODE = "0600"  # noqa: S105 - a file mode


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for.

    Attributes:
        reports: Folder for the reports of all units, a folder each below it; None is the usual place.
        keep: How many reports of the unit are kept.
        webhook: URL to tell of each.
        form: What the webhook understands.
    """

    reports: str | None = None
    keep: int = KEEP
    webhook: str | None = None
    form: str = "json"


@dataclass(frozen=True, slots=True)
class Status:
    """What is there of a watch.

    Attributes:
        watched: The unit.
        settings: None when nothing is installed.
        effective: systemd has it, so that the next failure is seen.
        missing: What of it is not there.
    """

    watched: Watched
    settings: Settings | None
    effective: bool
    missing: tuple[str, ...] = ()


def install(host: Host, name: str, wanted: Wanted, *, python: str, now: Callable[[], float] = time.time) -> Status:
    """Watch a unit, or change how it is watched. When it fails, nothing of it is left.

    Args:
        host: The unit's.
        name: The unit.
        wanted: How.
        python: Absolute path, on that host, of an interpreter that has Draftmark.
        now: The wall clock, seconds since the epoch.

    Raises:
        BadInputError: There is no such unit, or no systemd.
        RefusedError: It would not work there.
        StorageError: Something could not be written.
    """
    watched = find(host, name)
    places, unit = watched.places, watched.unit
    _check(host, watched)
    programs = Programs(python=python, systemctl=_systemctl(host))
    _check_python(host, python)
    before = read_settings(host, places, unit)
    reports = f"{wanted.reports.rstrip('/')}/{unit}" if wanted.reports else places.folder(unit)
    settings = Settings(
        unit=unit,
        reports=reports,
        keep=wanted.keep,
        form=wanted.form,
        webhook=wanted.webhook,
        python=python,
        since_s=before.since_s if before else now(),
        made=list(before.made) if before else [],
    )
    try:
        status = _written(host, watched, settings, programs)
    except DraftmarkError:
        if before is None:
            with suppress(DraftmarkError):
                _undo(host, places, settings, reports=True)
        raise
    return status


def remove(host: Host, name: str, *, keep_reports: bool = False) -> Status | None:
    """Take everything away that `install` brought.

    Returns:
        What there was; None when the unit was not watched.

    Raises:
        BadInputError: There is no systemd.
        FailedError: Something could not be removed.
    """
    watched = find(host, name)
    there = _state(host, watched)
    if there.settings is None and not _exists(host, watched.places.drop_in(watched.unit)):
        return None
    _check_rights(host, watched.places)
    settings = there.settings or Settings(watched.unit, watched.places.folder(watched.unit))
    _undo(host, watched.places, settings, reports=not keep_reports)
    return there


def status(host: Host, name: str) -> Status:
    """What there is.

    Raises:
        BadInputError: There is no such unit, or no systemd.
    """
    watched = find(host, name)
    there = _state(host, watched)
    if not watched.loaded and there.settings is None:
        raise _no_unit(host, watched.unit)
    return there


def _state(host: Host, watched: Watched) -> Status:
    places, unit = watched.places, watched.unit
    settings = read_settings(host, places, unit)
    wanted = (places.drop_in(unit), *places.templates, places.settings(unit))
    missing = tuple(path for path in wanted if not _exists(host, path))
    return Status(watched, settings, _effective(watched), missing)


def _effective(watched: Watched) -> bool:
    calls = _plain(watched.properties.get("OnFailure", ""))
    return instance(watched.unit) in calls.split() and "draftmark-watch@" in watched.properties.get(
        "ExecStopPost", ""
    )


def _plain(words: str) -> str:
    """A list of names as systemctl prints it: those with a backslash are in quotes, and it is doubled."""
    return words.replace('"', " ").replace("\\\\", "\\")


def _check(host: Host, watched: Watched) -> None:
    """Whether a drop-in can be added, and would do anything."""
    if not watched.loaded:
        raise _no_unit(host, watched.unit)
    if watched.properties.get("LoadState") == "masked":
        raise RefusedError(
            f"{watched.unit} is masked: it never runs",
            evidence=("LoadState=masked",),
            next_step=f"systemctl unmask {watched.unit}",
        )
    canonical(watched.unit)  # the name that was given may have been another's alias
    _check_rights(host, watched.places)
    for each in (watched.places.drop_in(watched.unit), *watched.places.templates):
        with suppress(FileNotFoundError, NotADirectoryError):
            if not is_ours(host.read(each).decode("utf-8", "replace")):
                raise RefusedError(
                    f"{each} is there and is not Draftmark's", next_step="look at it, and move it out of the way"
                )


def _check_rights(host: Host, places: Places) -> None:
    if not places.user and not host.is_root:
        raise RefusedError(
            "a unit of the system can be watched by root only",
            evidence=(f"commands on {host.name} do not run as root",),
            next_step="sudo draftmark watch …",
        )


def _no_unit(host: Host, unit: str) -> BadInputError:
    return BadInputError(
        f"there is no unit {unit} on {host.name}",
        evidence=("LoadState=not-found",),
        next_step="systemctl list-units --all --type=service",
    )


def _systemctl(host: Host) -> str:
    found = host.run(("sh", "-c", "command -v systemctl"))
    path = found.stdout.decode("utf-8", "replace").strip()
    return path if found.ok and path.startswith("/") else "/usr/bin/systemctl"


def _check_python(host: Host, python: str) -> None:
    """As the watcher will run it: with next to no environment."""
    argv = ("env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", python)
    said = host.run((*argv, "-P", "-m", "draftmark", "--version"), timeout_s=60.0)
    if not python.startswith("/") or not said.ok or not said.stdout.startswith(b"draftmark "):
        raise RefusedError(
            f"no Draftmark is installed for {python} on {host.name}: it has to write the post-mortem there",
            evidence=(reason(said),),
            next_step="install draftmark there for an interpreter that root may run, and name it: --python PATH",
        )


def _written(host: Host, watched: Watched, settings: Settings, programs: Programs) -> Status:
    """Settings first and the drop-in last: from then on the watcher may be called."""
    places, unit = watched.places, watched.unit
    for folder, mode in (
        (places.folder(unit), "0750"),
        (settings.reports, "0750"),
        (places.units, "0755"),
        (places.drop_in_folder(unit), "0755"),
    ):
        settings.made.extend(each for each in _folders(host, folder, mode) if each not in settings.made)
        # Kept at once: whatever happens next, `remove` has to know.
        _put(host, places.settings(unit), settings.dump(), _SECRET_MODE)
    for path, render in zip(places.templates, (template, started), strict=True):
        _put(host, path, render(programs, user=places.user).encode(), _UNIT_MODE)
    _put(host, places.drop_in(unit), drop_in(unit, programs, user=places.user).encode(), _UNIT_MODE)
    _reload(host, places)
    after = show(host, places, unit)
    if not _effective(after):
        raise FailedError(
            f"systemd did not take over the drop-in of {unit}",
            evidence=(f"OnFailure={after.properties.get('OnFailure', '')}", after.properties.get("LoadError", "")),
            next_step=f"systemctl cat {unit}: a later drop-in may take it back",
        )
    return _state(host, after)


def _undo(host: Host, places: Places, settings: Settings, *, reports: bool) -> None:
    unit = settings.unit
    _sh(host, 'rm -f -- "$1"', places.drop_in(unit))
    if not _others(host, places):
        _sh(host, 'rm -f -- "$@"', *places.templates)
    _reload(host, places)
    # Only now: a death until here would have called it again.
    host.run(places.systemctl("stop", "--", instance(unit)), timeout_s=60.0)
    host.run(places.systemctl("reset-failed", "--", instance(unit)))
    _sh(host, 'rm -rf -- "$1"; rmdir -- "${1%/*}" 2>/dev/null; :', places.spool(unit))
    if reports:
        _remove_reports(host, settings.reports)
    for name in (SEEN, SETTINGS):
        _sh(host, 'rm -f -- "$1"', f"{places.folder(unit)}/{name}")
    own = [places.state.rpartition("/")[0], places.state]  # whoever made them: they have no other use
    for folder in reversed([*own, *settings.made]):
        _sh(host, 'rmdir -- "$1" 2>/dev/null; :', folder)


def _remove_reports(host: Host, folder: str) -> None:
    listed = host.run(("ls", "-A", "--", folder)).stdout.decode("utf-8", "replace").splitlines()
    names = [name for name in listed if REPORT.fullmatch(name) or re.fullmatch(r"\..*Z-.*\.part", name)]
    for start in range(0, len(names), 100):
        _sh(host, 'cd -- "$1" && shift && rm -f -- "$@"', folder, *names[start : start + 100])


def _others(host: Host, places: Places) -> list[str]:
    """Drop-ins of other units that are watched."""
    listed = host.run(("sh", "-c", _OTHERS, "sh", places.units))
    return listed.stdout.decode("utf-8", "surrogateescape").splitlines()


def _reload(host: Host, places: Places) -> None:
    """Systemd does not always know that it must: it is told every time."""
    ended = host.run(places.systemctl("daemon-reload"), timeout_s=90.0)
    if not ended.ok:
        raise FailedError(
            "systemd could not be made to read its unit files again",
            evidence=(reason(ended),),
            next_step=" ".join(places.systemctl("daemon-reload")),
        )


def _folders(host: Host, path: str, mode: str) -> list[str]:
    """Make a folder; which ones were made for it, the outermost first."""
    ended = host.run(("sh", "-c", _FOLDERS, "sh", mode, path))
    if not ended.ok:
        raise _unwritten(host, path, reason(ended))
    return ended.stdout.decode("utf-8", "surrogateescape").splitlines()


def _put(host: Host, path: str, data: bytes, mode: str) -> None:
    """Write a file whole, or not at all."""
    ended = host.run(("sh", "-c", _PUT, "sh", path, mode), input=data)
    if not ended.ok:
        raise _unwritten(host, path, reason(ended))


def _unwritten(host: Host, path: str, because: str) -> StorageError:
    return StorageError(
        f"{path} could not be written on {host.name}; nothing was changed",
        evidence=(because,),
        next_step="make room there, or make it writable, and try again",
    )


def _sh(host: Host, script: str, *words: str) -> None:
    ended = host.run(("sh", "-c", script, "sh", *words))
    if not ended.ok:
        raise FailedError(
            f"{words[0]} could not be removed on {host.name}",
            evidence=(reason(ended),),
            next_step="remove it by hand, then: systemctl daemon-reload",
        )


def _exists(host: Host, path: str) -> bool:
    return host.run(("test", "-e", path)).ok


def report_names(host: Host, folder: str) -> list[str]:
    """Names of the reports, oldest first, without their form."""
    listed = host.run(("ls", "-A", "--", folder)).stdout.decode("utf-8", "replace").splitlines()
    return sorted({match[1] for name in listed if (match := REPORT.fullmatch(name)) and match[2] == FORMS[0]})
