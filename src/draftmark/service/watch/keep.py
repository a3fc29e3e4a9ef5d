"""Reports on disk: written whole or not at all, named by time and cause, the oldest removed beyond a number."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

FORMS = ("json", "md", "html")
REPORT = re.compile(r"(\d{8}T\d{6}\.\d{3}Z-[a-z0-9-]{1,80})\.(json|md|html)")
"""File name of a report."""

_PART = re.compile(r"\.\d{8}T\d{6}\.\d{3}Z-[a-z0-9-]{1,80}\.(?:json|md|html)\.part")
_FOLDER_MODE = 0o750
_FILE_MODE = 0o640  # they quote logs, which not everybody may read


def name_of(when_s: float, cause: str) -> str:
    """Name of a report without its form: `20261129T175027.123Z-cgroup-oom`."""
    stamp = datetime.fromtimestamp(when_s, UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    return f"{stamp}Z-{re.sub(r'[^a-z0-9-]+', '-', cause.lower())[:80] or 'unsettled'}"


def time_of(name: str) -> float:
    """When a report was written, seconds since the epoch."""
    return datetime.strptime(name.partition("Z-")[0], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC).timestamp()


def write_report(folder: Path, name: str, forms: Mapping[str, bytes]) -> None:
    """Write every form of a report; one of the same name is replaced.

    Raises:
        OSError: The disk is full, or the folder may not be written. What of it was half written is removed.
    """
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    for form, content in forms.items():
        _write(folder, f"{name}.{form}", content)


def _write(folder: Path, name: str, content: bytes) -> None:
    part = folder / f".{name}.part"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / name)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def reports(folder: Path) -> list[str]:
    """Names of the reports, oldest first; none where there is no folder."""
    try:
        found = {match[1] for entry in folder.iterdir() if (match := REPORT.fullmatch(entry.name))}
    except OSError:
        return []
    return sorted(found)


def remove_report(folder: Path, name: str) -> None:
    """Remove every form of a report. What cannot be removed stays: the next rotation tries again."""
    for form in FORMS:
        with suppress(OSError):
            (folder / f"{name}.{form}").unlink()


def rotate(folder: Path, keep: int) -> list[str]:
    """Remove the oldest reports beyond `keep`, and what a run that was killed left half written.

    Returns:
        Names of the reports that were removed.
    """
    gone = reports(folder)[: -keep or None]
    for name in gone:
        remove_report(folder, name)
    with suppress(OSError):
        for entry in folder.iterdir():
            if _PART.fullmatch(entry.name):
                entry.unlink(missing_ok=True)
    return gone


PACE = ((3, 60.0), (10, 3600.0))
"""At most so many reports in so many seconds: a unit that dies in a loop is not worth a processor."""


def pause(written: list[float], now_s: float) -> float:
    """Seconds until the next report may be made.

    Args:
        written: Times of the reports so far, in order.
        now_s: The time now, on the same clock.
    """
    waits = [0.0]
    for most, span_s in PACE:
        recent = [when for when in written if now_s - span_s < when <= now_s]
        if len(recent) >= most:
            waits.append(recent[-most] + span_s - now_s)
    return max(waits)


class Pace:
    """When reports were made lately, whether they are still there or not.

    Args:
        path: Where that is kept from one run of the watcher to the next.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: list[float] = []
        with suppress(OSError, ValueError):
            self._times = sorted(map(float, path.read_text("ascii", "replace").split()))

    def wait(self, now_s: float) -> float:
        """Seconds until the next report may be made."""
        return pause(self._times, now_s)

    def note(self, when_s: float) -> None:
        """A report is made. Where that cannot be written down, this object knows it all the same."""
        self._times = sorted([*self._times, when_s])[-max(most for most, _ in PACE) :]
        part = self._path.with_name(f"{self._path.name}.part")
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            part.write_text("".join(f"{each:.3f}\n" for each in self._times), "ascii")
            part.replace(self._path)
