"""Deaths that wait for their report: what the hook wrote down, what systemd hands over, what the journal knows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from draftmark.ports import Host
from draftmark.service.watch.places import SEEN, Places

_FAILED = "d9b373ed55a64feb8242e02dbe79a49c"  # `Failed with result '…'.`
_INVOCATION = re.compile(r"[0-9a-f]{32}")
_FINE = ("", "success", "exec-condition")
_REMEMBERED = 200
_SETTLE_S = 1.2
_LOOK_S = 0.05
_ENDING = ("deactivating", "reloading")


@dataclass(frozen=True, slots=True)
class Death:
    """One end of a unit that was a failure, as systemd told it.

    Attributes:
        invocation: Id of the run that ended; `` when nothing tells.
        result: `signal`, `timeout`, `oom-kill`, …; `` when nothing tells.
        code: `exited`, `killed` or `dumped`.
        status: Exit status, or name of the signal.
    """

    invocation: str
    result: str = ""
    code: str = ""
    status: str = ""


def spooled(spool: Path) -> list[Death]:
    """Deaths that the hook wrote down, oldest first, taken out of the folder with whatever else is in it."""
    try:
        entries = sorted(spool.iterdir(), key=_written)
    except OSError:
        return []
    found = []
    for entry in entries:
        words: list[str] = []
        with suppress(OSError):
            words = entry.read_text("ascii", "replace").split()[:3]
        with suppress(OSError):
            entry.unlink()
        if _INVOCATION.fullmatch(entry.name):
            found.append(Death(entry.name, *words))
    return found


def _written(entry: Path) -> float:
    try:
        return entry.lstat().st_mtime
    except OSError:
        return 0.0


def handed_over(environ: Mapping[str, str]) -> Death | None:
    """The death for which `OnFailure=` called (systemd 251 and later); None when it was something else."""
    result, invocation = environ.get("MONITOR_SERVICE_RESULT", ""), environ.get("MONITOR_INVOCATION_ID", "")
    if result in _FINE or not _INVOCATION.fullmatch(invocation):
        return None
    return Death(invocation, result, environ.get("MONITOR_EXIT_CODE", ""), environ.get("MONITOR_EXIT_STATUS", ""))


def journalled(host: Host, places: Places, unit: str, since_s: float) -> Death | None:
    """The unit's last failure by the journal, since the watch began; None when there was none."""
    who = (f"USER_UNIT={unit}",) if places.user else ("_PID=1", f"UNIT={unit}")
    argv = ("journalctl", "--quiet", "--no-pager", "--output=json", "--lines=1", f"--since=@{since_s:.6f}")
    asked = host.run((*argv, f"MESSAGE_ID={_FAILED}", *who), timeout_s=5.0)
    lines = asked.stdout.splitlines()
    with suppress(ValueError, AttributeError, IndexError):
        entry = json.loads(lines[-1])
        invocation = entry.get("INVOCATION_ID") or entry.get("USER_INVOCATION_ID")
        if isinstance(invocation, str) and _INVOCATION.fullmatch(invocation):
            return Death(invocation, str(entry.get("UNIT_RESULT") or ""))
    return None


class Seen:
    """Which deaths have been dealt with: the last of them, in a file.

    On a full disk the file stays as it was; this object remembers all the same.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / SEEN
        self._own: list[str] = []

    def __contains__(self, death: Death) -> bool:
        return death.invocation in self._all()

    def add(self, deaths: list[Death]) -> None:
        """Remember them."""
        self._own += [death.invocation for death in deaths if death.invocation]
        kept = self._own = list(dict.fromkeys(self._all()))[-_REMEMBERED:]
        part = self._path.with_name(f".{SEEN}.part")
        with suppress(OSError):
            part.write_text("".join(f"{each}\n" for each in kept), "ascii")
            part.replace(self._path)

    def _all(self) -> list[str]:
        kept: list[str] = []
        with suppress(OSError):
            kept = self._path.read_text("ascii", "replace").split()
        return kept + self._own


def settle(
    host: Host,
    places: Places,
    unit: str,
    death: Death,
    *,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Wait, shortly, until systemd has said its last word of that run and the journal has written it down.

    The hook is called before systemd says `Failed with result …`.
    """
    deadline = monotonic() + _SETTLE_S
    while _ending(host, places, unit, death) and monotonic() < deadline:
        sleep(_LOOK_S)
    host.run(("journalctl", "--sync"), timeout_s=1.0)  # root only; others see what is there


def _ending(host: Host, places: Places, unit: str, death: Death) -> bool:
    argv = places.systemctl("show", "-p", "ActiveState,InvocationID", "--", unit)
    lines = host.run(argv, timeout_s=1.0).stdout.decode("ascii", "replace").splitlines()
    shown = dict(line.partition("=")[::2] for line in lines)
    if death.invocation and shown.get("InvocationID") not in (death.invocation, None):
        return False  # it runs again
    return shown.get("ActiveState") in _ENDING
