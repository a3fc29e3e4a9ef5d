"""What a supervisor did (systemd, Docker, the kubelet, Slurm): late stops, probes, limits, refusals."""

from __future__ import annotations

from collections.abc import Iterator

from draftmark.postmortem.claims import Claim, certain_if, unique
from draftmark.postmortem.ending import Ending
from draftmark.postmortem.events import Event
from draftmark.postmortem.model import Confidence, Line, Phase
from draftmark.postmortem.scene import Scene


def claims(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """Everything that a supervisor says it did."""
    yield from _stop_timeout(scene, ending)
    yield from _plain(scene)
    yield from _by_result(scene, ending)
    yield from _kubernetes(scene, ending)
    yield from _client_signal(scene, ending)


def _stop_timeout(scene: Scene, ending: Ending) -> Iterator[Claim]:
    said = scene.signs("systemd.stop-timeout", "docker.force")
    if not said:
        return
    state = said[0].values.get("state", "")
    if any(e.sign.id == "systemd.watchdog" for e in scene.all_events()) or state == "stop-watchdog":
        return
    start_timeouts = scene.signs("systemd.start-timeout", "systemd.runtime-max")
    if start_timeouts:
        return  # the stop itself was a consequence
    kills = [e.line for e in scene.signs("systemd.killing") if e.values["signal"] in ("SIGKILL", "SIGABRT")]
    results = [e.line for e in scene.signs("systemd.result") if e.values["result"] == "timeout"]
    drains = scene.events("drain")
    waited = _waited(ending.stops, said[0])
    remaining = drains[-1].values["remaining"] if drains else None
    limit = scene.records.unit.get("TimeoutStopUSec") if scene.records.unit else ""
    patience = f" after {waited:.0f} s" if waited is not None else ""
    patience += f" (TimeoutStopSec is {limit})" if limit else ", its TimeoutStopSec" if waited else ""
    inside = f", with {remaining} requests still running" if remaining not in (None, "0") else ""
    who = "Docker" if said[0].sign.id == "docker.force" else "systemd"
    action = "sent no SIGKILL" if "Skipping" in said[0].line.text else "killed it"
    yield Claim(
        cause="stop-timeout-sigkill",
        confidence=Confidence.CERTAIN,
        summary=f"It was asked to stop and did not end in time{inside}; {who} {action}{patience}.",
        lines=unique([said[0].line, *results[:1], *kills[:1], *(d.line for d in drains[-1:])]),
        phase=Phase.SHUTDOWN,
        asked_first=True,
    )


def _waited(stops: list[Event], timeout: Event) -> float | None:
    """Seconds from systemd's `Stopping` to the timeout."""
    times = [stop.line.time for stop in stops if stop.line.time is not None and stop.order <= timeout.order]
    if not times or timeout.line.time is None:
        return None
    waited = timeout.line.time - times[-1]
    return waited if 0 < waited < 86400 else None


_PLAIN: dict[str, tuple[str, str, Phase | None]] = {
    "systemd.watchdog": (
        "watchdog-timeout",
        "systemd ended it because it sent no keep-alive within WatchdogSec.",
        Phase.SERVING,
    ),
    "systemd.start-timeout": (
        "model-load-timeout",
        "It did not report readiness within TimeoutStartSec, so systemd ended it.",
        Phase.STARTUP,
    ),
    "systemd.runtime-max": (
        "user-or-supervisor-sigterm",
        "RuntimeMaxSec was over, so systemd stopped it.",
        Phase.SERVING,
    ),
    "slurm.time-limit": (
        "user-or-supervisor-sigterm",
        "The job's time limit was over, so Slurm ended it.",
        Phase.SERVING,
    ),
    "slurm.cancelled": ("user-or-supervisor-sigterm", "The job was cancelled.", Phase.SERVING),
    "slurm.preempted": (
        "user-or-supervisor-sigterm",
        "Slurm ended the job for another of higher priority.",
        Phase.SERVING,
    ),
    "systemd.pids-limit": (
        "pids-limit",
        "The service may not create another process: its pids limit is reached.",
        None,
    ),
}


def _plain(scene: Scene) -> Iterator[Claim]:
    for sign_id, (cause, summary, phase) in _PLAIN.items():
        said = scene.signs(sign_id)
        if said:
            more = scene.signs("systemd.result", "systemd.main-exited", "systemd.killing")
            yield Claim(
                cause=cause,
                confidence=certain_if(said[0].sign.strength == "certain"),
                summary=summary,
                lines=unique([*(e.line for e in said[:2]), *(e.line for e in more[:3])]),
                phase=phase,
            )
    step = scene.signs(
        "systemd.no-executable",
        "systemd.exec-step",
        "systemd.exec-status",
        "systemd.bad-setting",
        "systemd.resources",
    )
    if step:
        why = next((e.values["why"] for e in step if e.values.get("why")), step[0].line.text)
        certain = any(e.sign.strength == "certain" for e in step)
        yield Claim(
            cause="config-invalid",
            confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
            summary=f"systemd could not run the unit's command: {why}",
            lines=unique(e.line for e in step),
            phase=Phase.STARTUP,
        )
    elif _before_start(scene):
        control = _before_start(scene)
        yield Claim(
            cause="config-invalid",
            confidence=Confidence.LIKELY,
            summary="A command that the unit runs before the server (ExecStartPre= or the like) ended with status "
            f"{control[0].values['status']}, so the server was not started.",
            lines=unique([*(e.line for e in control[:1]), *_said_before(scene, control[0])]),
            phase=Phase.STARTUP,
        )
    elif scene.signs("systemd.dependency"):
        said = scene.signs("systemd.dependency")
        yield Claim(
            cause="config-invalid",
            confidence=Confidence.LIKELY,
            summary="A unit that it requires did not start, so it was not started either.",
            lines=unique(e.line for e in said),
            phase=Phase.STARTUP,
        )


def _before_start(scene: Scene) -> list[Event]:
    """Commands before the start that failed, when the server itself never ran."""
    failed = [e for e in scene.signs("systemd.control-exited") if e.values["status"] != "0"]
    return failed if failed and not scene.signs("systemd.main-exited") and not scene.events("ready") else []


def _said_before(scene: Scene, event: Event) -> list[Line]:
    """The last two lines of the unit's own before a line of systemd's."""
    for stream in scene.servers:
        if event in stream.events:
            own = [line for line in stream.lines[: event.order] if line.ident not in ("systemd", "kernel")]
            return own[-2:]
    return []


def _by_result(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """The unit's properties alone, where the journal could not be read: never sure."""
    unit = scene.records.unit
    if unit is None or scene.journal_read:
        return
    lines = [unit.lines[name] for name in ("Result", "ExecMainStatus") if name in unit.lines]
    if ending.result == "watchdog":
        yield Claim(
            cause="watchdog-timeout",
            confidence=Confidence.LIKELY,
            summary="systemd's result says that its watchdog ended the service; the journal was not read.",
            lines=lines,
            phase=Phase.SERVING,
        )
    elif ending.result == "timeout" and ending.signal in (9, 6):
        yield Claim(
            cause="stop-timeout-sigkill",
            confidence=Confidence.LIKELY,
            summary="systemd's result says that it lost patience and killed the service, as after a stop that "
            "took too long; "
            "the journal was not read.",
            lines=lines,
            phase=Phase.SHUTDOWN,
        )


def _kubernetes(scene: Scene, ending: Ending) -> Iterator[Claim]:
    evicted = [e for e in scene.all_events() if e.cause == "k8s-eviction"]
    if evicted:
        resource = next((e.values["resource"] for e in evicted if e.values.get("resource")), None)
        yield Claim(
            cause="k8s-eviction",
            confidence=Confidence.CERTAIN,
            summary=f"The kubelet evicted the pod{f': the node was low on {resource}' if resource else ''}.",
            lines=unique(sorted((e.line for e in evicted), key=lambda line: "low on resource" not in line.text)),
            asked_first=True,
        )
    probes = scene.signs("k8s.probe-kill")
    if probes:
        kind = probes[0].values.get("probe", "liveness")
        failed = [e.line for e in scene.events("probe-failed")]
        stopped = [e.line for e in scene.events("term")]
        yield Claim(
            cause="liveness-probe-kill",
            confidence=Confidence.CERTAIN,
            summary=f"The kubelet restarted the container because its {kind} probe failed.",
            lines=unique([probes[0].line, *failed[:1], *stopped[:1], *ending.lines[:1]]),
        )
    grace = scene.events("grace-exceeded")
    if grace and not evicted:
        drains = scene.events("drain")
        remaining = drains[-1].values["remaining"] if drains else None
        inside = f" with {remaining} requests still running" if remaining not in (None, "0") else ""
        yield Claim(
            cause="stop-timeout-sigkill",
            # Why it was stopped is told elsewhere, if at all: a probe, an eviction and a deletion look alike here.
            confidence=Confidence.LIKELY,
            summary=f"The pod was being stopped and outlived its grace period{inside}; the kubelet killed it.",
            lines=unique([grace[0].line, *(e.line for e in ending.stops[:1]), *(d.line for d in drains[-1:])]),
            phase=Phase.SHUTDOWN,
            asked_first=True,
        )


def _client_signal(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """Somebody used `systemctl kill` or `docker kill`: the sender is in a line."""
    said = [
        e
        for e in scene.events("client-signal", "container-kill")
        if e.values.get("signal", "").removeprefix("SIG") in ("KILL", "9", "ABRT", "6", "SEGV", "11")
    ]
    if said and not ending.stops:
        yield Claim(
            cause="user-or-supervisor-sigkill",
            confidence=Confidence.CERTAIN,
            summary="Somebody sent the signal through the supervisor (systemctl kill, docker kill).",
            lines=unique([said[0].line, *ending.lines[:2]]),
        )
    term = [
        e
        for e in scene.events("client-signal", "container-kill")
        if e.values.get("signal", "").removeprefix("SIG") in ("TERM", "15", "INT", "2", "HUP", "1", "QUIT", "3")
    ]
    if term and not ending.stops and term[0].role == "client-signal":
        yield Claim(
            cause="user-or-supervisor-sigterm",
            confidence=Confidence.CERTAIN,
            summary="Somebody sent the signal through systemctl kill.",
            lines=unique([term[0].line, *ending.lines[:2]]),
            asked_first=True,
        )
