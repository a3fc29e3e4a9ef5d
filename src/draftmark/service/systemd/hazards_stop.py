"""Hazards of stopping: time, signals, and what else a stop or a death sets off."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from draftmark.service.systemd.hazard import Hazard, Seen, Severity
from draftmark.service.systemd.timespan import span

_TERM = ("15", "SIGTERM", "TERM")
_KILL = ("9", "SIGKILL", "KILL")
_HARD = r"(?:9|SIGKILL|KILL)\b"
_KILLS = re.compile(
    rf"\b(?:kill|pkill|killall|skill)\b.*?\s-(?:s\s*|-signal[= ])?{_HARD}"
    r"|\bfuser\b.*?\s-[a-zA-Z]*k"
    r"|\b(?:docker|podman)\s+(?:container\s+)?kill\b(?!.*\s(?:-s|--signal))"
)
_OURS = "draftmark-watch"


def kills_hard(command: str) -> bool:
    """Whether a command sends SIGKILL."""
    return _KILLS.search(command) is not None


def _timeout(seen: Seen) -> Iterator[Hazard]:
    given, worst = seen.span("TimeoutStopUSec"), seen.drain.worst_s
    if given is None:
        return
    line = seen.evidence("TimeoutStopUSec", "TimeoutStopSec")
    if math.isinf(given):
        yield Hazard(
            "stop-timeout-infinite",
            "a stop may last for ever: systemd never kills a server that hangs",
            line,
            "set TimeoutStopSec= to somewhat more than the server needs",
        )
    elif worst is not None and worst > given:
        yield Hazard(
            "stop-timeout-short",
            f"systemd kills the server after {span(given)}, and it may need {span(worst)} to end",
            f"{line}; {seen.drain.source}",
            f"TimeoutStopSec={span(worst)} or more; tune raises it for its trials",
        )
    elif worst is None:
        yield Hazard(
            "stop-unbounded",
            f"the server's end has no bound, and systemd kills it after {span(given)}",
            f"{line}; {seen.drain.source}",
            "give the server a limit for its shutdown",
            Severity.STOPS,
        )


def _kill_mode(seen: Seen) -> Iterator[Hazard]:
    mode, line = seen.value("KillMode"), seen.evidence("KillMode")
    if mode == "control-group" and seen.drain.children_need_main_only:
        yield Hazard(
            "kill-mode-defeats-drain",
            "a stop signals all processes at once: the workers die first, and requests in flight are cut",
            f"{line}; {seen.drain.source}",
            "KillMode=mixed; tune sets it for its trials",
        )
    if mode in ("process", "none"):
        yield Hazard(
            "kill-mode-leaves-processes",
            "a stop leaves the workers running: they keep the GPU's memory and perhaps the port",
            line,
            "KillMode=mixed; tune sets it for its trials",
        )


def _signals(seen: Seen) -> Iterator[Hazard]:
    if seen.value("SendSIGKILL") == "no":
        yield Hazard(
            "no-sigkill",
            "a server that does not end is left running, and the next start finds its port and memory taken",
            seen.evidence("SendSIGKILL"),
            "remove SendSIGKILL=no",
            Severity.STOPS,
        )
    signal = seen.value("KillSignal")
    if signal in _KILL:
        yield Hazard(
            "kill-signal-kills",
            "a stop is a SIGKILL: nothing is drained",
            seen.evidence("KillSignal"),
            "KillSignal=SIGTERM; tune sets it for its trials",
        )
    elif signal and signal not in _TERM:
        yield Hazard(
            "kill-signal",
            "a stop does not begin with SIGTERM, the signal at which servers drain",
            seen.evidence("KillSignal"),
            "KillSignal=SIGTERM, unless the server wants another",
        )
    if seen.value("TimeoutStopFailureMode") == "abort":
        yield Hazard(
            "stop-abort",
            "a stop that takes too long ends in SIGABRT, and perhaps a core dump as large as the server's memory",
            seen.evidence("TimeoutStopFailureMode"),
            "TimeoutStopFailureMode=terminate",
        )
    if seen.drain.exits_with_sigkill and not {"SIGKILL", "9"} & set(seen.words("SuccessExitStatus")):
        yield Hazard(
            "clean-stop-looks-failed",
            "this server ends a clean stop by killing itself, so systemd calls it failed",
            f"{seen.evidence('SuccessExitStatus')}; {seen.drain.source}",
            "go by Draftmark's classification of a stop, not by the unit's Result",
        )


def _stop_commands(seen: Seen) -> Iterator[Hazard]:
    for line in seen.unit.all("ExecStop"):
        if kills_hard(line.value):
            yield Hazard(
                "exec-stop-kills",
                "ExecStop= kills the server before it could drain",
                str(line),
                "remove the line: systemd sends SIGTERM itself",
                Severity.STOPS,
            )
        else:
            yield Hazard(
                "exec-stop",
                "a command is run before the server is asked to end; it has its own time, and may end it itself",
                str(line),
                "see that it does not cut requests",
            )


def _around(seen: Seen) -> Iterator[Hazard]:
    for key in ("ExecStartPre", "ExecStartPost", "ExecStopPost", "ExecCondition"):
        for line in seen.unit.all(key):
            if _OURS not in line.value:
                yield Hazard(
                    "command-around",
                    f"{key}= is run at each start and stop, so with every arm",
                    str(line),
                    "see that it may be run often",
                )


def _restart(seen: Seen) -> Iterator[Hazard]:
    if seen.value("Restart") in ("always", "on-failure", "on-abnormal", "on-abort"):
        restarts = seen.value("NRestarts")
        since = f"; NRestarts={restarts}" if restarts.isdecimal() and int(restarts) else ""
        yield Hazard(
            "restart-hides-deaths",
            "systemd starts it again by itself: a death shows only in the journal, and a bad arm would loop",
            seen.evidence("Restart") + since,
            "draftmark watch install; tune turns it off for its trials",
        )
    interval, burst = seen.span("StartLimitIntervalUSec"), seen.value("StartLimitBurst")
    if interval and burst.isdecimal() and int(burst) and interval / int(burst) > START_PACE_S:
        yield Hazard(
            "start-limit",
            f"systemd refuses more than {burst} starts in {span(interval)}, and tuning starts it often",
            seen.evidence("StartLimitIntervalUSec", "StartLimitIntervalSec", "Unit"),
            "tune lifts it for its trials",
        )
    if seen.value("RemainAfterExit") == "yes":
        yield Hazard(
            "remain-after-exit",
            "the unit stays active when its server is gone",
            seen.evidence("RemainAfterExit"),
            "remove RemainAfterExit=yes",
        )


START_PACE_S = 5.0
"""A tuning does not start a server more often than this."""


def _actions(seen: Seen) -> Iterator[Hazard]:
    for name in ("FailureAction", "SuccessAction", "StartLimitAction", "JobTimeoutAction"):
        if seen.value(name) not in ("", "none"):
            yield Hazard(
                "host-action",
                "the end of this unit may reboot or power off the host",
                seen.evidence(name, section="Unit"),
                f"{name}=none",
                Severity.STOPS,
            )
    others = [unit for unit in seen.words("OnFailure") if _OURS not in unit]
    if others:
        yield Hazard(
            "on-failure",
            "an arm that does not start sets off other units",
            f"OnFailure={' '.join(others)}",
            "see that they may be started: an alarm, a fail-over",
        )


def _others(seen: Seen) -> Iterator[Hazard]:
    for name in ("BoundBy", "RequiredBy", "ConsistsOf", "PropagatesStopTo"):
        units = [unit for unit in seen.words(name) if not unit.endswith(".target")]
        if units:
            yield Hazard(
                "stop-stops-others",
                "a stop of this unit stops others, too",
                f"{name}={' '.join(units)}",
                "stop depending on it so strictly (Wants= and After=), or tune a copy",
                Severity.STOPS,
            )
    for name in ("BindsTo", "PartOf", "StopPropagatedFrom"):
        if seen.words(name):
            yield Hazard(
                "stopped-with-others",
                "other units take this one down with them",
                seen.evidence(name, section="Unit"),
                "leave them alone while it is tuned",
            )


STOP = (_timeout, _kill_mode, _signals, _stop_commands, _around, _restart, _actions, _others)
