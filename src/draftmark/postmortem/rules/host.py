"""Killers of the host: the kernel's OOM killer, systemd-oomd, earlyoom, and limits that were hit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftmark.postmortem.claims import Claim, certain_if, unique
from draftmark.postmortem.ending import Ending
from draftmark.postmortem.events import Event
from draftmark.postmortem.model import Confidence, Line
from draftmark.postmortem.scene import Scene
from draftmark.postmortem.times import SLACK_S, one_clock, zone_apart

_ON_THE_LIMIT = 0.98  # of the limit: the next page would have been over it


def claims(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """Everything that a killer of the host, or a limit, says for itself."""
    yield from _kernel_oom(scene, ending)
    yield from _container(scene, ending)
    yield from _jobs(scene)
    yield from _daemons(scene)
    yield from _unit_result(scene, ending)


def _tied(scene: Scene, kills: list[Event]) -> bool:
    """Whether a kill is tied to the server by its cgroup or a process id, not by a program's name alone."""
    return any(
        scene.subject.killed(cgroup=kill.values.get("task_memcg", ""))
        or int(kill.values["pid"]) in scene.subject.pids
        for kill in kills
    )


def _goes_on(scene: Scene, kills: list[Event]) -> bool:
    """Whether the server's log ends in service, after the kill as far as clocks tell."""
    for stream in scene.servers:
        last = stream.events[-1] if stream.events else None
        if stream.engine and last is not None and last.role == "traffic":
            times = [kill.line.time for kill in kills if kill.line.time is not None and kill.line.clock == "wall"]
            return not times or last.line.time is None or last.line.time > min(times)
    return False


def _alike(scene: Scene, kills: list[Event]) -> list[Event]:
    """The only kill of the log, of a program like ours, in a container of another id than the one handed over.

    A container that was created anew has another id, so this is not proof against it; nor is it proof.
    """
    comms = [k for k in kills if scene.subject.killed(comm=k.values.get("comm", ""))]
    one = len({kill.values.get("pid") for kill in kills}) == 1
    return [k for k in comms if _of_this_death(scene, k)] if one and scene.subject.containers else []


def _kernel_oom(scene: Scene, ending: Ending) -> Iterator[Claim]:
    kills = scene.events("oom-kill")
    ours = [kill for kill in kills if _is_ours(scene, kill, kills) and _of_this_death(scene, kill)]
    if ours and not _tied(scene, ours) and not ending.known and _goes_on(scene, ours):
        ours = []
    scene.foreign_oom = [kill for kill in kills if kill not in ours]
    killed = 9 in (ending.signal, ending.child_signal) or any(c.oom_killed for c in scene.records.containers)
    alike = _alike(scene, kills) if killed and not ours else []
    if alike:
        scene.foreign_oom = []
    if not ours and not alike:
        return
    confidence = certain_if(bool(ours))
    ours = ours or alike
    limited = [k for k in ours if _of_a_limit(k)]
    details = [
        e.line
        for e in scene.events("oom-detail")
        if e.sign.id in ("kernel.oom-limit", "kernel.oom-group") and any(_together(scene, e, kill) for kill in ours)
    ]
    records = [e.line for e in scene.events("oom-record")]
    victim = next((k.values["comm"] for k in ours if k.values.get("comm")), "a process")
    if limited:
        group = next((k.values.get("oom_memcg") for k in limited if k.values.get("oom_memcg")), None)
        where = f" of {group}" if group else ""
        near = [e for e in scene.signs("kernel.oom-limit") if any(_together(scene, e, kill) for kill in ours)]
        limit = next((e.values["limit"] for e in near), None)
        size = f" ({_gib(int(limit) << 10)})" if limit else ""
        yield Claim(
            cause="cgroup-oom",
            confidence=confidence,
            summary=f"The memory limit{where}{size} was hit and the kernel killed {victim} in it.",
            lines=unique([k.line for k in limited] + records + details),
        )
    else:
        yield Claim(
            cause="host-ram-oom-kernel",
            confidence=confidence,
            summary=f"The whole host ran out of memory and the kernel's OOM killer chose {victim}.",
            lines=unique([k.line for k in ours] + records),
        )


def _together(scene: Scene, detail: Event, kill: Event) -> bool:
    """Whether a detail belongs to the report of a kill: it precedes it, and no other kill stands between."""
    if detail.line.source != kill.line.source or detail.order > kill.order:
        return False
    return not any(
        detail.order < other.order < kill.order and other.values.get("pid") != kill.values.get("pid")
        for other in scene.events("oom-kill")
        if other.line.source == kill.line.source
    )


def _of_a_limit(kill: Event) -> bool:
    return kill.values.get("constraint") == "CONSTRAINT_MEMCG" or kill.values.get("scope", "").startswith(
        "Memory cg"
    )


def _is_ours(scene: Scene, kill: Event, kills: list[Event]) -> bool:
    """Whether the victim is the server. The two lines of one kill speak for each other: one has the cgroup."""
    pid = kill.values.get("pid", "")
    if pid in _client_pids(scene):
        return False
    answers = [
        scene.subject.killed(
            comm=other.values.get("comm", ""),
            cgroup=other.values.get("task_memcg", ""),
            pid=int(pid) if pid.isdigit() else None,
        )
        for other in kills
        if other.values.get("pid") == pid
    ]
    if False in answers and True in answers:
        cgroups = [o.values.get("task_memcg", "") for o in kills if o.values.get("pid") == pid]
        return any(scene.subject.killed(cgroup=cgroup) for cgroup in cgroups if cgroup)
    return True in answers or (False not in answers and len({k.values.get("pid") for k in kills}) == 1)


def _of_this_death(scene: Scene, kill: Event) -> bool:
    """Whether a kill is no older than the last things that the server did."""
    served = [s.last for s in scene.servers if s.engine and s.last is not None and s.last.clock == "wall"]
    last = max((line for line in served if line.time is not None), key=lambda line: line.time or 0.0, default=None)
    if kill.line.time is None or kill.line.clock != "wall" or last is None or last.time is None:
        return True
    if last.time - kill.line.time < SLACK_S:
        return True
    return not one_clock(last, kill.line) and zone_apart(last.time, kill.line.time)


def _client_pids(scene: Scene) -> set[str]:
    """Processes that a shell in a client's log says were killed: `line 9: 55123 Killed`."""
    lines = [line.text for stream in scene.streams if stream.client for line in stream.lines]
    return {match[1] for text in lines if (match := re.search(r"\b(\d+) Killed\b", text))}


_SPOKEN = {
    "systemd-oomd": "systemd-oomd killed the service because of memory pressure; the kernel's OOM killer did not "
    "act.",
    "earlyoom": "A user-space memory guard ended the server with SIGTERM, so the exit looks tidy.",
    "ray-memory-monitor-kill": "Ray's memory monitor killed a worker of the server.",
    "cgroup-oom": "The job hit its memory limit and the kernel killed in it.",
    "host-ram-oom-kernel": "The node ran out of memory and the kernel killed the server.",
    "container-oomkilled": "The container hit its memory limit and was killed.",
}


def _daemons(scene: Scene) -> Iterator[Claim]:
    """Guards and supervisors that say themselves that memory was the reason."""
    for cause, summary in _SPOKEN.items():
        said = [e for e in scene.telling if e.cause == cause]
        if scene.records.containers:  # which container it is about is in the record that was read as one
            said = [e for e in said if e.sign.id != "k8s.oomkilled"]
        if said:
            confidence = certain_if(any(e.sign.strength == "certain" for e in said))
            yield Claim(cause=cause, confidence=confidence, summary=summary, lines=unique(e.line for e in said))


def _unit_result(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """Systemd's `oom-kill` without a kernel log: that the OOM killer acted is sure, whose limit it was is not."""
    said = [e.line for e in scene.events("oom-record")]
    result = [e.line for e in scene.signs("systemd.result") if e.values["result"] == "oom-kill"]
    unit = scene.records.unit
    if unit is not None and unit.get("Result") == "oom-kill":
        result.append(unit.lines["Result"])
    limit = unit.number("MemoryMax") if unit else None
    peak = unit.number("MemoryPeak") if unit else None
    at_limit = limit is not None and peak is not None and peak >= _ON_THE_LIMIT * limit
    known = unit is not None and "MemoryMax" in unit.values
    if said or result:
        proof = unique([*said, *result, *_limit_lines(scene)])
        if known and limit is None and scene.journal_read:
            yield Claim(
                cause="host-ram-oom-kernel",
                confidence=Confidence.LIKELY,
                summary="systemd saw the kernel's OOM killer take a process of the unit, which has no memory "
                "limit of its own: "
                "the host ran out of memory.",
                lines=proof,
            )
        elif limit is not None:
            yield Claim(
                cause="cgroup-oom",
                confidence=Confidence.LIKELY,
                summary=f"systemd saw the kernel's OOM killer take a process of the unit, whose limit is "
                f"{_gib(limit)}.",
                lines=proof,
            )
        else:
            yield Claim(
                cause="unsettled",
                confidence=Confidence.UNSETTLED,
                summary="The kernel's OOM killer took a process of the unit. Whether the unit's limit or the "
                "whole host ran "
                "out is not in what was read.",
                lines=proof,
            )
    elif at_limit and 9 in (ending.signal, ending.child_signal) and not ending.stops:
        yield Claim(
            cause="cgroup-oom",
            confidence=Confidence.LIKELY,
            summary=f"It was killed by SIGKILL with its peak memory on the unit's limit ({_gib(limit)}).",
            lines=unique([*_limit_lines(scene), *ending.lines]),
        )


def _limit_lines(scene: Scene) -> list[Line]:
    unit = scene.records.unit
    if unit is None:
        return []
    return [unit.lines[name] for name in ("MemoryPeak", "MemoryMax") if name in unit.lines]


def _gib(size: int | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / 2**30:.1f} GiB" if size >= 1 << 30 else f"{size / 2**20:.0f} MiB"


def _container(scene: Scene, ending: Ending) -> Iterator[Claim]:
    for container in scene.records.containers:
        if container.oom_killed and not (container.running and scene.events("oom-kill")):
            limit = f" of {_gib(container.memory_limit)}" if container.memory_limit else ""
            yield Claim(
                cause="container-oomkilled",
                confidence=Confidence.CERTAIN,
                summary=f"The container hit its memory limit{limit} and was killed.",
                lines=unique(
                    [container.lines[k] for k in ("reason", "oom_killed", "exit_code") if k in container.lines]
                    + [e.line for e in scene.events("oom-kill")]
                ),
            )
            return
    used, limit_seen = scene.records.working_set, scene.records.memory_limit
    if (
        used
        and limit_seen
        and used[0] >= _ON_THE_LIMIT * limit_seen[0]
        and 9 in (ending.signal, ending.child_signal)
    ):
        yield Claim(
            cause="container-oomkilled",
            confidence=Confidence.LIKELY,
            summary=f"It was killed by SIGKILL while its working set ({_gib(int(used[0]))}) stood on the "
            f"container's limit.",
            lines=unique([used[1], limit_seen[1], *ending.lines]),
        )
    kills = scene.records.cgroup_kills
    if kills and kills[0] > 0 and 9 in (ending.signal, ending.child_signal):
        yield Claim(
            cause="cgroup-oom",
            confidence=Confidence.LIKELY,
            summary=f"The cgroup counts {kills[0]} kill(s) by the OOM killer.",
            lines=unique([kills[1], *ending.lines]),
        )


def _jobs(scene: Scene) -> Iterator[Claim]:
    for state, code, line in scene.records.jobs:
        if state.startswith("OUT_OF_ME"):
            yield Claim(
                cause="cgroup-oom",
                confidence=Confidence.CERTAIN,
                summary=f"The job hit its memory limit (Slurm: {state}, exit {code or 'unknown'}).",
                lines=unique([line, *(e.line for e in scene.signs("slurm.oom"))]),
            )
            return
