"""Adds a watch to a unit, and takes it away without a trace: over a Host, with commands that any host has."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from draftmark.errors import BadInputError, DraftmarkError, FailedError, HostError, RefusedError, StorageError
from draftmark.ports import Host
from draftmark.service.elevation import check_elevation, elevated
from draftmark.service.systemd.remote_files import write_file
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
from draftmark.service.watch.program import candidate_pythons, systemctl_path, usable_python
from draftmark.service.watch.units import DROP_IN, Programs, drop_in, instance, is_ours, slices, started, template

# Tells each folder that is not there, the outermost first.
_MISSING = 'd=$1; l=""; while [ ! -d "$d" ]; do l="$d\n$l"; d=$(dirname "$d"); done; printf "%s" "$l"'
_MAKE = '[ -d "$2" ] || { umask 022; mkdir -p "$2" && chmod "$1" "$2"; }'
_OTHERS = f'for f in "$1"/*.d/{DROP_IN}; do [ -e "$f" ] && echo "$f"; done; :'
_UNIT_MODE = 0o644
_SECRET_MODE = 0o600


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
        installed: The unit has the drop-in.
        settings: None when nothing is installed, or when only root may read them.
        effective: systemd has it, so that the next failure is seen.
        missing: Files of it that are not there.
        reports: Names of its reports, oldest first, without their form.
    """

    watched: Watched
    installed: bool
    settings: Settings | None
    effective: bool
    missing: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()


def install(
    host: Host, name: str, wanted: Wanted, *, python: str | None, now: Callable[[], float] = time.time
) -> Status:
    """Watch a unit, or change how it is watched. When it fails, nothing of it is left.

    Args:
        host: The unit's, as the user reaches it: root's rights are got where they are needed.
        name: The unit.
        wanted: How.
        python: Absolute path, on that host, of an interpreter that has Draftmark; None to look for one.
        now: The wall clock, seconds since the epoch.

    Raises:
        BadInputError: There is no such unit, or no systemd.
        RefusedError: It would not work there.
        StorageError: Something could not be written.
    """
    watched = find(host, name)
    places, unit = watched.places, watched.unit
    _check_unit(host, watched)
    candidates = candidate_pythons(host) if python is None else [python]
    host = _as_manager(host, places)
    _check_files(host, watched)
    programs = Programs(python=usable_python(host, candidates), systemctl=systemctl_path(host))
    before = read_settings(host, places, unit)
    reports = f"{wanted.reports.rstrip('/')}/{unit}" if wanted.reports else places.folder(unit)
    settings = Settings(
        unit=unit,
        reports=reports,
        keep=wanted.keep,
        form=wanted.form,
        webhook=wanted.webhook,
        python=programs.python,
        since_s=before.since_s if before else now(),
        made=list(before.made) if before else [],
    )
    try:
        status = _written(host, watched, settings, programs, new=before is None)
    except BaseException:  # Ctrl-C, too
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
    there = _state(_as_manager(host, watched.places, must=False), watched)
    if there.settings is None and not there.installed:
        return None
    host = _as_manager(host, watched.places)
    settings = there.settings or Settings(  # lost: the one folder that may be ours goes if it is empty
        watched.unit,
        watched.places.folder(watched.unit),
        made=[watched.places.drop_in_folder(watched.unit)],
    )
    _undo(host, watched.places, settings, reports=not keep_reports)
    return there


def status(host: Host, name: str) -> Status:
    """What there is.

    Raises:
        BadInputError: There is no such unit, or no systemd.
    """
    watched = find(host, name)
    there = _state(_as_manager(host, watched.places, must=False), watched)
    if not watched.loaded and there.settings is None and not there.installed:
        raise _no_unit(host, watched.unit)
    return there


def _state(host: Host, watched: Watched) -> Status:
    places, unit = watched.places, watched.unit
    settings = read_settings(host, places, unit)
    installed = _exists(host, places.drop_in(unit))
    wanted = [places.drop_in(unit), *places.templates]
    if settings is None and (host.is_root or places.user):  # others cannot tell whether they are there
        wanted.append(places.settings(unit))
    missing = tuple(path for path in wanted if not _exists(host, path)) if installed or settings else ()
    names = _report_names(host, settings.reports) if settings else ()
    return Status(watched, installed, settings, _effective(watched), missing, names)


def _effective(watched: Watched) -> bool:
    calls = _plain(watched.properties.get("OnFailure", ""))
    return instance(watched.unit) in calls.split() and "draftmark-watch@" in watched.properties.get(
        "ExecStopPost", ""
    )


def _plain(words: str) -> str:
    """A list of names as systemctl prints it: those with a backslash are in quotes, and it is doubled."""
    return words.replace('"', " ").replace("\\\\", "\\")


def _as_manager(host: Host, places: Places, *, must: bool = True) -> Host:
    """The host with the rights that its manager's files need; as it is where they cannot be had and need not."""
    if places.user or host.is_root:
        return host
    try:
        check_elevation(host)
    except RefusedError:
        if must:
            raise
        return host
    return elevated(host)


def _check_unit(host: Host, watched: Watched) -> None:
    """Whether a drop-in would do anything."""
    if not watched.loaded:
        raise _no_unit(host, watched.unit)
    if watched.properties.get("LoadState") == "masked":
        raise RefusedError(
            f"{watched.unit} is masked: it never runs",
            evidence=("LoadState=masked",),
            next_step=f"systemctl unmask {watched.unit}",
        )
    canonical(watched.unit)  # the name that was given may have been another's alias


def _check_files(host: Host, watched: Watched) -> None:
    for each in (watched.places.drop_in(watched.unit), *watched.places.templates):
        with suppress(FileNotFoundError, NotADirectoryError):
            if not is_ours(host.read(each).decode("utf-8", "replace")):
                raise RefusedError(
                    f"{each} is there and is not Draftmark's", next_step="look at it, and move it out of the way"
                )


def _no_unit(host: Host, unit: str) -> BadInputError:
    return BadInputError(
        f"there is no unit {unit} on {host.name}",
        evidence=("LoadState=not-found",),
        next_step="systemctl list-units --all --type=service",
    )


def _written(host: Host, watched: Watched, settings: Settings, programs: Programs, *, new: bool) -> Status:
    """Settings first and the drop-in last: from then on the watcher may be called."""
    places, unit = watched.places, watched.unit
    folders = (
        (places.folder(unit), "0750"),
        (settings.reports, "0750"),
        (places.units, "0755"),
        (places.drop_in_folder(unit), "0755"),
    )
    for folder, _ in folders:  # before any is made: whatever happens next, `remove` has to know
        settings.made.extend(each for each in _missing_folders(host, folder) if each not in settings.made)
    for folder, mode in folders:
        _make_folder(host, folder, mode)
        _write(host, places.settings(unit), settings.dump(), _SECRET_MODE)
    if new and (ended := _ended(watched)):  # systemd would hand it over, however long ago it was
        _write(host, f"{places.folder(unit)}/{SEEN}", f"{ended}\n".encode(), _SECRET_MODE)
    for path, render in zip(places.templates, (template, started), strict=True):
        _write(host, path, render(programs, user=places.user).encode(), _UNIT_MODE)
    _write(host, places.drop_in(unit), drop_in(unit, programs, user=places.user).encode(), _UNIT_MODE)
    _reload(host, places)
    after = show(host, places, unit)
    if not _effective(after):
        raise FailedError(
            f"systemd did not take over the drop-in of {unit}",
            evidence=(f"OnFailure={after.properties.get('OnFailure', '')}", after.properties.get("LoadError", "")),
            next_step=f"systemctl cat {unit}: a later drop-in may take it back",
        )
    return _state(host, after)


def _ended(watched: Watched) -> str:
    """Id of the unit's last run where that has ended; `` while it runs, or when there was none."""
    found = watched.properties
    over = found.get("ActiveState") in ("inactive", "failed") or "auto-restart" in found.get("SubState", "")
    return found.get("InvocationID", "") if over else ""


def _undo(host: Host, places: Places, settings: Settings, *, reports: bool) -> None:
    unit = settings.unit
    _remove_files(host, places.drop_in(unit))
    last = not _others(host, places)
    if last:
        _remove_files(host, *places.templates)
    _reload(host, places)
    # Only now: a death until here would have called it again.
    host.run(places.systemctl("stop", "--", instance(unit)), timeout_s=60.0)
    host.run(places.systemctl("reset-failed", "--", instance(unit)))
    if last:  # systemd keeps a slice that it has made for instances until it is told
        host.run(places.systemctl("stop", "--", *slices(user=places.user)), timeout_s=60.0)
    _sh(host, 'rm -rf -- "$@"; rmdir -- "${1%/*}" 2>/dev/null; :', places.spool(unit), places.pace(unit))
    if reports:
        _remove_reports(host, settings.reports)
    _remove_files(host, *(f"{places.folder(unit)}/{name}" for name in (SEEN, f".{SEEN}.part", SETTINGS)))
    own = [places.state.rpartition("/")[0], places.state]  # whoever made them: they have no other use
    for folder in reversed([*own, *settings.made]):
        _sh(host, 'rmdir -- "$1" 2>/dev/null; :', folder)


def _remove_files(host: Host, *paths: str) -> None:
    """With what an interrupted write left beside each."""
    _sh(host, 'for f; do rm -f -- "$f" "$f.new" || exit; done', *paths)


def _listed(host: Host, folder: str) -> list[str]:
    return host.run(("ls", "-A", "--", folder)).stdout.decode("utf-8", "replace").splitlines()


def _report_names(host: Host, folder: str) -> tuple[str, ...]:
    found = [match for name in _listed(host, folder) if (match := REPORT.fullmatch(name))]
    return tuple(sorted(match[1] for match in found if match[2] == FORMS[0]))


def _remove_reports(host: Host, folder: str) -> None:
    names = [
        name for name in _listed(host, folder) if REPORT.fullmatch(name) or re.fullmatch(r"\..*Z-.*\.part", name)
    ]
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


def _missing_folders(host: Host, path: str) -> list[str]:
    listed = host.run(("sh", "-c", _MISSING, "sh", path)).stdout.decode("utf-8", "surrogateescape")
    return listed.splitlines()


def _make_folder(host: Host, path: str, mode: str) -> None:
    ended = host.run(("sh", "-c", _MAKE, "sh", mode, path))
    if not ended.ok:
        raise _unwritten(host, path, reason(ended))


def _write(host: Host, path: str, data: bytes, mode: int) -> None:
    try:
        write_file(host, path, data, mode)
    except HostError:
        raise
    except FailedError as error:
        raise _unwritten(host, path, error.evidence[0] if error.evidence else error.what) from error


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
