"""Who holds a unit, told on its host in one line of JSON, and whether that process is known to be gone."""

from __future__ import annotations

import getpass
import json
import os
import socket
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


def held_error(unit: str, answer: Answer) -> RefusedError:
    """That somebody else holds the unit, and who."""
    return RefusedError(
        f"another Draftmark is at work on {unit}",
        evidence=(f"held by {_who(answer)}", _last_sign(answer)),
        next_step=f"wait for it, or end it; `draftmark restore unit:{unit} --force` takes the unit from it",
    )


def measuring_error(unit: str, answer: Answer) -> MeasuringError:
    """That whoever holds the unit measures just now, so that nobody may stop it, not even by force."""
    found = _read(answer.get("holder"))
    where, pid = str(found.get("who", "")).rpartition("@")[2], found.get("pid")
    end = "press Ctrl-C there" + (f" (or, on {where}, `kill {pid}`)" if where and pid else "")
    return MeasuringError(
        f"a measurement runs on {unit}: what was asked for would cut its requests; nothing was changed",
        evidence=(f"measured since {answer.get('measuring')} by {_who(answer)}", _last_sign(answer)),
        next_step=f"{end}, which puts the unit back, or wait until it is done; should that process be dead, "
        f"the host puts the unit back by itself in {answer.get('left_s', '?')} s",
    )


def _who(answer: Answer) -> str:
    found = _read(answer.get("holder"))
    try:
        return f"{found['who']}, pid {found['pid']}, since {found['since']} ({found['what']})"
    except KeyError:
        return answer.get("holder") or "somebody who has not said who"


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
