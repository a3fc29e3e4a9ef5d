"""Who holds a unit, told on its host in one line of JSON, and whether that process is known to be gone."""

from __future__ import annotations

import getpass
import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from draftmark.errors import MeasuringError, RefusedError

from ..proc import read_stat
from .agent import Answer

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PIDS = Path("/proc/self/ns/pid")


def holder_line(what: str) -> str:
    """Who we are, for whoever comes second: in words, and so that this process can be told from a later one."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    words = {"who": f"{user}@{socket.gethostname()}", "pid": os.getpid(), "since": wall_time(), "what": what}
    return json.dumps({**words, **_here(), "started_ticks": _started(os.getpid())})


def wall_time() -> str:
    """Now, to the second, in UTC; 20 characters."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def is_gone(holder: str) -> bool:
    """Whether the holder ran on this very computer, in this boot, and is dead; False where it is not known."""
    found = _read(holder)
    here = _here()
    if not here or any(found.get(key) != value for key, value in here.items()):
        return False
    pid, started = found.get("pid"), found.get("started_ticks")
    return isinstance(pid, int) and isinstance(started, int) and _started(pid) != started


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a unit, as far as the line on its host tells.

    Attributes:
        who: `user@host`; `` where it is not told.
        pid: There; None where it is not told.
        since: UTC.
        what: What it does, such as `draftmark tune`.
    """

    who: str
    pid: int | None
    since: str
    what: str

    @classmethod
    def of(cls, line: str) -> Holder:
        """From the line; whatever it is."""
        found = _read(line)
        who, since, what = (str(found.get(key, "")) for key in ("who", "since", "what"))
        pid = found.get("pid")
        return cls(who, pid if isinstance(pid, int) else None, since, what)

    def __str__(self) -> str:
        """`root@gpu1, pid 230, since 2026-11-29T17:50:27Z (draftmark tune)`."""
        if not self.who:
            return "somebody who has not said who"
        parts = (self.who, f"pid {self.pid}" if self.pid else "", f"since {self.since}" if self.since else "")
        return ", ".join(filter(None, parts)) + (f" ({self.what})" if self.what else "")

    @property
    def how_to_end(self) -> str:
        """What to type to make it end, and put the unit back."""
        host = self.who.rpartition("@")[2]
        return "press Ctrl-C there" + (f", or type `kill {self.pid}` on {host}" if host and self.pid else "")


def held_error(unit: str, answer: Answer) -> RefusedError:
    """That somebody else holds the unit, and who."""
    holder = Holder.of(answer.get("holder"))
    return RefusedError(
        f"another Draftmark is at work on {unit}; nothing was changed",
        evidence=(f"held by {holder}", _last_sign(answer)),
        next_step=f"wait until it is done, or end it ({holder.how_to_end}), which puts the unit back; "
        f"`draftmark restore unit:{unit} --force` takes the unit from it",
    )


def measuring_error(unit: str, answer: Answer) -> MeasuringError:
    """That whoever holds the unit measures just now, so that nobody may stop or change it, not even by force."""
    holder = Holder.of(answer.get("holder"))
    return MeasuringError(
        f"a measurement runs on {unit}, which is neither stopped nor changed until it ends; nothing was changed",
        evidence=(f"held by {holder}", f"measuring since {answer.get('measuring')}; {_last_sign(answer)}"),
        next_step=f"wait until it is done, or end it ({holder.how_to_end}), which puts the unit back; then try "
        f"again. If that process is dead, the host puts the unit back by itself in {answer.get('left_s', '?')} s",
    )


def _last_sign(answer: Answer) -> str:
    return f"its last sign of life came {answer.get('last_sign_s', '?')} s ago"


def _read(holder: str) -> dict[str, Any]:
    try:
        found = json.loads(holder)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _here() -> dict[str, str]:
    """The boot of this computer, and whose process numbers these are; empty where it cannot be told."""
    try:
        return {"boot": _BOOT.read_text("ascii").strip(), "pids": os.readlink(_PIDS)}  # noqa: PTH115 - no path
    except OSError:
        return {}


def _started(pid: int) -> int | None:
    stat = read_stat(pid)
    return stat.started_ticks if stat is not None and stat.alive else None
