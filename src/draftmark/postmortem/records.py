"""State records: what `systemctl show`, `docker inspect`, `kubectl`, `sacct`, `ps` and metrics say. Pure.

A record is a snapshot, so it tells how things ended and what the limits were, not why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from draftmark.postmortem.model import Kind, Line, Source

_UNLIMITED = 1 << 60
_MOST_PODS = 300


@dataclass(slots=True)
class UnitRecord:
    """`systemctl show` of the unit: the properties, and the line of each."""

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """A property as text; `` when it was not shown."""
        return self.values.get(name, "")

    def number(self, name: str) -> int | None:
        """A size or count; None for `infinity`, `[not set]` and what is absent."""
        text = self.get(name)
        if not text.isdigit() or int(text) >= _UNLIMITED:
            return None
        return int(text)


@dataclass(slots=True)
class ContainerRecord:
    """One container's end, from Docker, Podman or Kubernetes.

    Attributes:
        reason: `OOMKilled`, `Error`, `Completed`, `Evicted`, …; `` where the engine gives none.
        lines: The lines that show `exit_code`, `oom_killed`, `reason`, `shm_bytes`, … by name.
        memory_limit: Bytes; None without a limit.
    """

    name: str = ""
    image: str = ""
    running: bool | None = None
    exit_code: int | None = None
    oom_killed: bool | None = None
    reason: str = ""
    memory_limit: int | None = None
    shm_bytes: int | None = None
    ipc_mode: str = ""
    restarts: int | None = None
    started: str = ""
    finished: str = ""
    health: str = ""
    lines: dict[str, Line] = field(default_factory=dict)


@dataclass(slots=True)
class Records:
    """All records handed over."""

    unit: UnitRecord | None = None
    containers: list[ContainerRecord] = field(default_factory=list)
    pod: str = ""
    pod_failed: bool = False
    working_set: tuple[float, Line] | None = None
    memory_limit: tuple[float, Line] | None = None
    processes: list[Line] = field(default_factory=list)
    jobs: list[tuple[str, str, Line]] = field(default_factory=list)  # state, exit code
    cgroup_kills: tuple[int, Line] | None = None


def read_records(sources: tuple[Source, ...]) -> Records:
    """Everything that the record sources tell."""
    found = Records()
    for source in sources:
        if source.kind is Kind.SYSTEMCTL_SHOW:
            found.unit = _unit(source, found.unit)
        elif source.kind is Kind.DOCKER_INSPECT:
            found.containers.extend(_docker(source))
        elif source.kind is Kind.KUBECTL_JSON:
            found.containers.extend(_pods(source, found))
        elif source.kind is Kind.KUBECTL_DESCRIBE:
            found.containers.extend(_describe(source, found))
        elif source.kind is Kind.METRICS:
            _metrics(source, found)
        elif source.kind is Kind.PROCESSES:
            found.processes.extend(source.lines)
        elif source.kind is Kind.SACCT:
            found.jobs.extend(_jobs(source))
        _cgroup(source, found)
    return found


def _unit(source: Source, sofar: UnitRecord | None) -> UnitRecord:
    record = sofar or UnitRecord()
    for line in source.lines:
        key, equals, value = line.text.strip().partition("=")
        if equals and key not in record.values:
            record.values[key], record.lines[key] = value, line
    return record


def _docker(source: Source) -> Iterator[ContainerRecord]:
    entries = source.document if isinstance(source.document, list) else [source.document]
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        state, host = _map(entry.get("State")), _map(entry.get("HostConfig"))
        record = ContainerRecord(
            name=str(entry.get("Name", "")).lstrip("/"),
            image=str(_map(entry.get("Config")).get("Image", "") or entry.get("ImageName", "")),
            running=_maybe(state.get("Running"), bool),
            exit_code=_maybe(state.get("ExitCode"), int),
            oom_killed=_maybe(state.get("OOMKilled"), bool),
            memory_limit=_maybe(host.get("Memory"), int) or None,
            shm_bytes=_maybe(host.get("ShmSize"), int),
            ipc_mode=str(host.get("IpcMode") or ""),
            restarts=_maybe(entry.get("RestartCount"), int),
            started=str(state.get("StartedAt") or ""),
            finished=str(state.get("FinishedAt") or ""),
            health=str(_map(state.get("Health")).get("Status") or ""),
        )
        record.lines = _found(
            source,
            exit_code='"ExitCode"',
            oom_killed='"OOMKilled"',
            shm_bytes='"ShmSize"',
            memory_limit='"Memory"',
            running='"Running"',
            finished='"FinishedAt"',
            health=f'"{record.health}"',
        )
        yield record


def _pods(source: Source, found: Records) -> Iterator[ContainerRecord]:
    document = _map(source.document)
    for pod in [document, *map(_map, _list(document.get("items"))[:_MOST_PODS])]:
        status = _map(pod.get("status"))
        if pod.get("kind", "Pod") != "Pod" or not status:
            continue
        found.pod = found.pod or str(_map(pod.get("metadata")).get("name", ""))
        found.pod_failed = status.get("phase") == "Failed"
        limits = {
            str(c.get("name")): _map(_map(c.get("resources")).get("limits")).get("memory")
            for c in map(_map, _list(_map(pod.get("spec")).get("containers")))
        }
        if status.get("reason"):
            yield ContainerRecord(
                name=found.pod,
                reason=str(status["reason"]),
                lines=_found(source, reason=f'"{status["reason"]}"'),
            )
        for entry in map(_map, _list(status.get("containerStatuses"))):
            yield from _pod_container(entry, limits, source)


def _pod_container(
    entry: Mapping[str, Any], limits: Mapping[str, Any], source: Source
) -> Iterator[ContainerRecord]:
    now, last = _map(entry.get("state")), _map(entry.get("lastState"))
    ended = _map(now.get("terminated")) or _map(last.get("terminated"))
    name = str(entry.get("name", ""))
    record = ContainerRecord(
        name=name,
        image=str(entry.get("image", "")),
        running="running" in now,
        exit_code=_maybe(ended.get("exitCode"), int),
        reason=str(ended.get("reason", "")),
        oom_killed=ended.get("reason") == "OOMKilled" or None,
        memory_limit=parse_quantity(str(limits.get(name) or "")),
        restarts=_maybe(entry.get("restartCount"), int),
        started=str(ended.get("startedAt") or ""),
        finished=str(ended.get("finishedAt") or ""),
    )
    record.lines = _found(source, exit_code='"exitCode"', reason=f'"reason": "{record.reason}"')
    yield record


def _found(source: Source, **wanted: str) -> dict[str, Line]:
    """The first line that holds each text, by the key."""
    found = {key: next((line for line in source.lines if text in line.text), None) for key, text in wanted.items()}
    return {key: line for key, line in found.items() if line is not None}


_KEY = re.compile(r"^(?P<blank>\s*)(?P<key>[A-Z][\w ]*?):\s*(?P<value>.*)$")


def _describe(source: Source, found: Records) -> Iterator[ContainerRecord]:
    record = ContainerRecord()
    section = ""
    for line in source.lines:
        match = _KEY.match(line.text)
        if match is None:
            limit = re.match(r"^\s+memory:\s+(\S+)", line.text)
            if limit and section == "Limits":
                record.memory_limit = parse_quantity(limit[1])
                record.lines["memory_limit"] = line
            continue
        key, value = match["key"], match["value"].strip()
        if key == "Name" and not match["blank"]:
            found.pod = found.pod or value
        elif key == "Status" and not match["blank"]:
            found.pod_failed = value == "Failed"
        elif key == "Container ID" and record.image:
            yield record
            record = ContainerRecord()
        section = _describe_key(record, key, value, section, line)
    yield record


def _describe_key(record: ContainerRecord, key: str, value: str, section: str, line: Line) -> str:
    """Take one `Key: value` in; the section that the following lines belong to."""
    if key in ("State", "Last State", "Limits", "Requests"):
        if key == "State":
            record.running = value == "Running"
        return key
    if key == "Exit Code" and value.isdigit():
        record.exit_code, record.lines["exit_code"] = int(value), line
    elif key == "Reason" and (section or value in ("Evicted", "OOMKilled")):
        if section != "State" or value not in ("CrashLoopBackOff", "ContainerCreating"):
            record.reason, record.lines["reason"] = value, line
            record.oom_killed = True if value == "OOMKilled" else record.oom_killed
    elif key == "Image":
        record.image = value
    elif key == "Restart Count" and value.isdigit():
        record.restarts = int(value)
    elif key in ("Started", "Finished"):
        setattr(record, key.lower(), value)
    else:
        return section if key in ("Started", "Finished") else ""
    return section


def _metrics(source: Source, found: Records) -> None:
    for line in source.lines:
        match = re.match(r"^(\w+)(?:\{[^}]*\})?\s+([0-9.eE+-]+)", line.text)
        if match is None:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if match[1] == "container_memory_working_set_bytes" and (
            found.working_set is None or value > found.working_set[0]
        ):
            found.working_set = (value, line)
        elif match[1] in ("container_spec_memory_limit_bytes", "kube_pod_container_resource_limits") and value > 0:
            found.memory_limit = (value, line)


def _jobs(source: Source) -> Iterator[tuple[str, str, Line]]:
    for line in source.lines:
        match = re.search(
            r"(?:^|[\s|])(OUT_OF_ME\S*?|TIMEOUT|NODE_FAIL|CANCELLED(?: by \d+|\+)?|PREEMPTED|FAILED|COMPLETED|"
            r"BOOT_FAIL|DEADLINE)(?=[\s|]|$)",
            line.text,
        )
        if match:
            code = re.search(r"(?:^|[\s|])(\d+:\d+)(?=[\s|]|$)", line.text)
            yield match[1], code[1] if code else "", line


def _cgroup(source: Source, found: Records) -> None:
    if "memory.events" not in source.name and "oom_control" not in source.name:
        return
    for line in source.lines:
        match = re.match(r"^oom_kill (\d+)$", line.text.strip())
        if match and (found.cgroup_kills is None or int(match[1]) > found.cgroup_kills[0]):
            found.cgroup_kills = (int(match[1]), line)


_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def parse_quantity(text: str) -> int | None:
    """Bytes of a Kubernetes quantity such as `64Gi`; None for none and for 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMGT]i?|)", text.strip())
    return int(float(match[1]) * _UNITS[match[2]]) or None if match and match[2] in _UNITS else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maybe(value: object, kind: type) -> Any:
    return value if isinstance(value, kind) else None
