"""A whole sweep over the unit of an `LlmLab`, with and without `--keep`, and what must be so afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .llm_unit import SWEEP, UNIT, LlmLab

FULL = (
    *("--depth", "off,4,8,16", "--rounds", "2", "--workload", "copy", "--concurrency", "1"),
    *("--requests", "3", "--max-tokens", "32", "--max-foreign-cpu", "1000"),
)
"""Enough to see that drafting pays on this workload."""
CLEAR = (
    *("--depth", "off,16", "--rounds", "1", "--workload", "copy", "--concurrency", "1"),
    *("--requests", "2", "--max-tokens", "32", "--max-foreign-cpu", "1000"),
)
"""The least that mostly names a winner."""
KEPT = f"etc/systemd/system/{UNIT}.d/zz-draftmark.conf"
_VERDICTS = (0, 10, 40)


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one.

    Attributes:
        name: In words.
        seconds: It took.
        note: What was seen, in a line.
        faults: What is not as it must be, a line each.
    """

    name: str
    seconds: float
    note: str
    faults: tuple[str, ...]


def where(host: str | None) -> str:
    """A kind of host, in a word."""
    return "local" if host is None else "ssh"


def sweep(lab: LlmLab, host: str | None, words: tuple[str, ...] = SWEEP) -> Played:
    """Tune, and look whether all is as it was."""
    before = lab.state()
    controller = lab.controller(host=host, sweep=words)
    ended = controller.wait(600)
    faults = list(lab.faults(before))
    if ended.status not in _VERDICTS or "Traceback" in ended.err:
        faults.append(f"exit status {ended.status}: {ended.err[-800:]}")
        return Played(f"tune {where(host)}", _since(controller.began), "", tuple(faults))
    result = json.loads((controller.run / "result.json").read_text())
    faults += _wrong_verdict(result) if ended.status != 40 else ()
    return Played(
        f"tune {where(host)}", _since(controller.began), f"exit {ended.status}: {result['verdict']}", tuple(faults)
    )


def _wrong_verdict(result: dict[str, Any]) -> Iterator[str]:
    if result["choice"]["recommended"] == result["baseline"]["arm"]:
        yield f"on text that is copied no depth is said to pay: {result['verdict']}"
    if not result["restored"]:
        yield "the result says that the service was not put back"


def keep(lab: LlmLab, host: str | None, words: tuple[str, ...] = CLEAR) -> Played:
    """Tune with `--keep`, look at what is kept, undo it by `restore`."""
    before, began, tries = lab.state(), time.monotonic(), 0
    while not lab.root(KEPT).exists() and tries < 4:  # noise may leave nothing to be kept
        tries += 1
        ended = lab.controller("--keep", host=host, sweep=words).wait(600)
        if ended.status not in _VERDICTS:
            return Played(f"keep {where(host)}", _since(began), "", (f"exit status {ended.status}: {ended.err}",))
    if not lab.root(KEPT).exists():
        return Played(f"keep {where(host)}", _since(began), f"nothing to keep in {tries} tries", ("not seen",))
    text = lab.root(KEPT).read_text()
    faults = [*_kept_wrong(lab, text)]
    undone = lab.draftmark("restore", host=host)
    if undone.status != 0:
        faults.append(f"restore: exit status {undone.status}: {undone.err}")
    faults += lab.faults(before)
    return Played(f"keep {where(host)}", _since(began), f"kept in try {tries}:\n{text.strip()}", tuple(faults))


def _kept_wrong(lab: LlmLab, text: str) -> Iterator[str]:
    now = lab.state()
    found = [path for path in now.files if path.endswith(".conf") and UNIT in path and "var/lib" not in path]
    if found != [KEPT]:
        yield f"drop-ins: {found}"
    if not {"Written by draftmark", f"draftmark restore unit:{UNIT}", "ExecStart="} <= _shown(text):
        yield f"it does not say what wrote it and how to undo it: {text}"
    if KEPT not in now.drop_ins or now.active != "active" or now.units or lab.held():
        yield f"after --keep: {now.drop_ins}, {now.active}, {now.units}"
    running = lab.machine.show(UNIT)["MainPID"]
    words = lab.machine.check(["cat", f"/proc/{running}/cmdline"]).split("\0")
    if not any(word.startswith("--spec") for word in words):
        yield f"what runs is not what is kept: {words}"


def _shown(text: str) -> set[str]:
    wanted = ("Written by draftmark", f"draftmark restore unit:{UNIT}", "ExecStart=")
    return {each for each in wanted if each in text}


def _since(began: float) -> float:
    return time.monotonic() - began
