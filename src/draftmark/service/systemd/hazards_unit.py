"""Hazards of the unit itself: how it is started, by whom it is changed, and where its output goes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from draftmark.service.systemd.dropin import TRIAL
from draftmark.service.systemd.hazard import Hazard, Seen, Severity
from draftmark.service.systemd.kept import KEPT, outdated
from draftmark.service.systemd.timespan import span
from draftmark.service.systemd.unitfile import Unit

OURS = (KEPT, TRIAL, "zz-draftmark-watch.conf")
"""File names of Draftmark's drop-ins."""


def _states(seen: Seen) -> Iterator[Hazard]:
    masked = seen.value("LoadState") == "masked" or seen.value("UnitFileState").startswith("masked")
    checks = (
        (masked, "masked", "the unit is masked: it cannot be started", "UnitFileState", "systemctl unmask it"),
        (
            seen.value("Transient") == "yes",
            "transient",
            "the unit was made by a command and is gone when it is stopped",
            "Transient",
            "write a unit file for it",
        ),
        (
            seen.value("NeedDaemonReload") == "yes",
            "needs-reload",
            "unit files were changed and not loaded: the next start would bring changes that are not Draftmark's",
            "NeedDaemonReload",
            "systemctl daemon-reload, and see that the service is as you want it",
        ),
        (
            seen.value("PrivateNetwork") == "yes",
            "private-network",
            "the service has a network of its own: it cannot be reached to be measured",
            "PrivateNetwork",
            "tune it without PrivateNetwork=",
        ),
        (
            seen.value("Type") == "oneshot",
            "oneshot",
            "the unit runs commands to their end: it is no server",
            "Type",
            "name the unit of the server",
        ),
    )
    for there, code, what, name, step in checks:
        if there:
            yield Hazard(code, what, seen.evidence(name), step, Severity.STOPS)
    for name in ("RefuseManualStart", "RefuseManualStop"):
        if seen.value(name) == "yes":
            yield Hazard(
                "refuses-manual",
                "systemd does not let anybody start or stop this unit by itself",
                seen.evidence(name, section="Unit"),
                f"remove {name}=yes",
                Severity.STOPS,
            )


def _origin(seen: Seen) -> Iterator[Hazard]:
    if seen.value("UnitFileState") == "generated":
        yield Hazard(
            "generated",
            "a program writes this unit file at each boot and daemon-reload",
            f"FragmentPath={seen.value('FragmentPath')}",
            "keep a choice where that program takes its settings from",
        )
    for trigger in seen.triggers:
        yield Hazard(
            "started-by-others",
            trigger.what
            if trigger.active
            else f"{trigger.name} is not active; if it were, it would start the unit",
            trigger.line,
            f"see that {trigger.name} is stopped while it is tuned",
            Severity.STOPS if trigger.active else Severity.WARNING,
        )
    starts = seen.unit.all("ExecStart")
    if len(starts) > 1:
        yield Hazard(
            "several-commands",
            "the unit starts several commands, one after the other",
            "; ".join(map(str, starts)),
            "put the server into a unit of its own",
            Severity.STOPS,
        )


def _kept(seen: Seen) -> Iterator[Hazard]:
    if (own := outdated(seen.files)) is not None:
        yield Hazard(
            "kept-outdated",
            "the unit's own ExecStart= has changed since a choice was kept, and has no effect: the kept "
            "drop-in has all of the line before",
            str(own),
            "draftmark restore takes the drop-in away; then tune and keep anew",
        )


def _drop_ins(seen: Seen) -> Iterator[Hazard]:
    for file in seen.files[1:]:
        name = file.path.rpartition("/")[2]
        if name in OURS:
            continue
        lines = [line for line in Unit.parse([file]).assignments if line.key == "ExecStart"]
        if name > TRIAL:
            yield Hazard(
                "drop-in-after",
                "another drop-in is read after Draftmark's and may take its settings back",
                str(lines[-1]) if lines else file.path,
                f"give it a name that sorts before {OURS[0]}",
                Severity.STOPS if lines else Severity.WARNING,
            )
        elif lines:
            yield Hazard(
                "drop-in-command",
                "another drop-in sets the command line; whoever wrote it may write it again",
                str(lines[-1]),
                "see that its tool does not run while the service is tuned",
            )


def _supervision(seen: Seen) -> Iterator[Hazard]:
    watchdog = seen.span("WatchdogUSec")
    if watchdog and not math.isinf(watchdog):
        yield Hazard(
            "watchdog",
            f"systemd kills it when it is silent for {span(watchdog)}; model servers send no keep-alives",
            seen.evidence("WatchdogUSec", "WatchdogSec"),
            "remove WatchdogSec=, unless a wrapper sends them",
        )
    kind, start = seen.value("Type"), seen.span("TimeoutStartUSec")
    waits = kind in ("notify", "notify-reload", "forking")
    if waits and seen.value("ActiveState") == "activating" and seen.value("SubState") == "start":
        yield Hazard(
            "never-ready",
            "systemd waits for a word from the server that has not come: it is not told that the server is ready",
            f"{seen.evidence('Type')}; ActiveState=activating, SubState=start",
            "Type=exec, unless the server calls sd_notify",
        )
    if waits and start is not None and not math.isinf(start):
        yield Hazard(
            "start-timeout",
            f"a start that takes longer than {span(start)} is ended, and an arm may load longer than the original",
            seen.evidence("TimeoutStartUSec", "TimeoutStartSec"),
            "TimeoutStartSec=infinity while it is tuned",
        )
    if kind == "forking" and not seen.value("PIDFile"):
        yield Hazard(
            "forking",
            "systemd guesses which of the processes is the server",
            seen.evidence("Type"),
            "start it in the foreground, with Type=exec",
        )
    limit = seen.span("RuntimeMaxUSec")
    if limit is not None and not math.isinf(limit):
        yield Hazard(
            "runtime-limit",
            f"systemd ends it {span(limit)} after its start, whatever it does then",
            seen.evidence("RuntimeMaxUSec", "RuntimeMaxSec"),
            "tune lifts it for its trials",
        )


def _output(seen: Seen) -> Iterator[Hazard]:
    for name in ("StandardOutput", "StandardError"):
        where = seen.value(name)
        if where == "inherit" and name == "StandardError":
            continue  # told by StandardOutput
        if where == "null":
            yield Hazard(
                "output-discarded",
                "what the server says is thrown away: a death cannot be explained",
                seen.evidence(name),
                f"{name}=journal",
            )
        elif where in ("truncate", "file"):
            yield Hazard(
                "output-overwritten",
                "the server writes over its old log: the lines of a death are gone at the next start",
                seen.evidence(name),
                f"{name}=journal, or append:",
            )
        elif where in ("append", "tty", "socket", "fd", "kmsg"):
            yield Hazard(
                "output-elsewhere",
                "the server's lines are not in the journal",
                seen.evidence(name),
                f"{name}=journal",
            )


UNIT = (_states, _origin, _kept, _drop_ins, _supervision, _output)
