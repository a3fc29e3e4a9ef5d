"""Makes a death in a lab and writes down what it left, and what `draftmark why` says about it to whom."""

from __future__ import annotations

import importlib.util
import json
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cgroups import Version
from .deaths import Death
from .machine import Machine, Mode
from .root import USER

DRAFTMARK = Path(sys.prefix) / "bin/draftmark"
USERS = ("root", USER)
# `journalctl -u` alone misses last words of a process that ended before journald could look up its unit.
ABOUT = ("_SYSTEMD_UNIT", "UNIT", "OBJECT_SYSTEMD_UNIT", "COREDUMP_UNIT")


@dataclass(frozen=True, slots=True)
class Answer:
    """What `draftmark why` said.

    Attributes:
        document: None where standard output is no JSON document.
    """

    status: int
    document: dict[str, Any] | None
    errors: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Played:
    """One death, and what it left.

    Attributes:
        journal: Messages about and from the unit, oldest first.
        kernel: Messages of the kernel.
        everything: All messages since the death began, of the kernel and of whatever else runs there.
        answers: By user, of those who asked.
    """

    death: Death
    mode: Mode
    cgroups: Version
    unit: str
    properties: Mapping[str, str]
    journal: tuple[str, ...]
    kernel: tuple[str, ...]
    everything: tuple[str, ...]
    answers: Mapping[str, Answer]
    seconds: float


def play(machine: Machine, death: Death, *, users: Sequence[str]) -> Played:
    """Make the death, look at what is left, ask why as each user, and clean up."""
    began = time.monotonic()
    # a name of its own each time: the kernel log of a shared kernel remembers earlier sessions
    token = secrets.token_hex(3)
    unit = f"llm-{death.name}-{token}.service"
    mark, since_s = f"the lab begins {token}", int(time.time()) - 2
    machine.write("/dev/kmsg", mark + "\n")
    files = death.files(unit)
    for name, text in files.items():
        machine.write(f"/etc/systemd/system/{name}", text)
    machine.check(["systemctl", "daemon-reload"])
    try:
        death.kill(machine, unit)
        machine.check(["journalctl", "--sync"])
        properties = machine.show(unit)
        entries = _since(machine.journal(f"--since=@{since_s}"), mark)
        answers = {user: ask_why(machine, unit, user) for user in users}
    finally:
        _remove(machine, unit, files)
    seconds = time.monotonic() - began
    return Played(
        death,
        machine.mode,
        machine.cgroups,
        unit,
        properties,
        journal=tuple(_text(entry) for entry in entries if unit in (entry.get(key) for key in ABOUT)),
        kernel=tuple(_text(entry) for entry in entries if entry.get("_TRANSPORT") == "kernel"),
        everything=tuple(map(_text, entries)),
        answers=answers,
        seconds=seconds,
    )


def ask_why(machine: Machine, unit: str, user: str) -> Answer:
    """`draftmark why unit:… --json`, in the lab."""
    began = time.monotonic()
    ended = machine.run([DRAFTMARK, "why", f"unit:{unit}", "--json"], user=user)
    seconds = time.monotonic() - began
    try:
        document = json.loads(ended.out)
    except ValueError:
        document = None
    return Answer(ended.status, document if isinstance(document, dict) else None, ended.err, seconds)


def has_judge() -> bool:
    """Whether this Draftmark can be asked."""
    return importlib.util.find_spec("draftmark.postmortem.diagnose") is not None


def _remove(machine: Machine, unit: str, files: Mapping[str, str]) -> None:
    if not files:
        return
    lines = [f"systemctl stop {unit}", *(f"rm -f /etc/systemd/system/{name}" for name in files)]
    machine.run(["sh", "-c", "\n".join([*lines, f"systemctl reset-failed {unit}"])])


def _since(entries: list[dict[str, Any]], mark: str) -> list[dict[str, Any]]:
    """Those after the mark in the kernel log; the journal's clock alone is too coarse."""
    return entries[next(number for number, entry in enumerate(entries) if _text(entry) == mark) + 1 :]


def _text(entry: Mapping[str, Any]) -> str:
    message = entry.get("MESSAGE")
    if isinstance(message, list):  # bytes that are no text
        return bytes(message).decode(errors="replace")
    return message or ""
