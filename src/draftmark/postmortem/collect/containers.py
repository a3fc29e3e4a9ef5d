"""A container of docker or podman: its state, its log, what happened to it, and what its daemon and kernel said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from draftmark.errors import BadInputError
from draftmark.ports import Completed, Host
from draftmark.postmortem.collect.cgroups import collect_group
from draftmark.postmortem.collect.devices import collect_devices
from draftmark.postmortem.collect.gathering import (
    Collected,
    Gathering,
    Reader,
    close_names,
    denied,
    reason,
)
from draftmark.postmortem.collect.journal import Sight, entries, for_people, sight
from draftmark.postmortem.collect.kernel import Span, collect_kernel
from draftmark.postmortem.collect.merged import merged_log
from draftmark.postmortem.collect.streams import Output, peeked

_PROGRAMS = ("docker", "podman")
_UNKNOWN = ("no such", "no container with name", "not found")
_BEFORE, _AFTER = timedelta(minutes=10), timedelta(minutes=1)
_MAX_LINES = 400_000
_LEAD_S = 10
_AFTERMATH_S = 600.0


@dataclass(frozen=True, slots=True)
class Container:
    """What `inspect` said of it.

    Attributes:
        program: `docker` or `podman`.
        name: As its engine has it, without the slash.
        id: 64 hex digits; `` when unknown.
        state: The `State` object.
    """

    program: str
    name: str
    id: str
    state: dict[str, Any]

    def time(self, key: str) -> datetime | None:
        """A time of the state; None for the year 1, which stands for never."""
        match = re.match(
            r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:\.\d+)?\s*(Z|[+-]\d\d:?\d\d)?", str(self.state.get(key))
        )
        if match is None or match[1].startswith("0001"):
            return None
        zone = "+00:00" if match[2] in (None, "Z") else match[2]
        try:
            return datetime.fromisoformat(match[1] + zone).astimezone(UTC)
        except ValueError:
            return None


def collect_container(
    host: Host,
    name: str,
    *,
    read: Reader,
    runs: int = 3,  # noqa: ARG001 - a container has one log for all its runs; every collector takes the same
    since: str | None = None,
) -> Collected:
    """Read all that this user may read of a container.

    Args:
        host: Where it runs.
        name: Name or id.
        read: Makes a source of a name and of bytes.
        runs: For units.
        since: Beginning of the log, as `docker logs` takes it.

    Raises:
        BadInputError: There is neither docker nor podman, or no such container.
    """
    gathering = Gathering(host, read)
    container = _inspect(gathering, name)
    seen, _ = sight(host)
    if container is None:
        collect_kernel(gathering, seen, Span())
        return gathering.done(name)
    argv = [container.program, "logs", "--timestamps", f"--tail={_MAX_LINES}"]
    argv += [f"--since={since}"] if since else []
    merged_log(gathering, f"log of {container.name}", [*argv, container.name], "container log", limit=_MAX_LINES)
    _events(gathering, container)
    _around(gathering, container, seen)
    return gathering.done(container.name)


def collect_container_of_unit(gathering: Gathering, program: str, name: str) -> None:
    """Keep the state and the events of a container that a unit runs. Its log is the unit's."""
    argv = (program, "inspect", "--type", "container", "--", name)
    ended = gathering.host.run(argv)
    container = _container(program, name, ended.stdout) if ended.ok else None
    if container is None:
        because = "it is gone, as with --rm when it ends" if _says_unknown(ended) else reason(ended, argv)
        gathering.miss("container state", because, argv, as_root=denied(ended.stderr))
        return
    gathering.add(f"{program} inspect {container.name}", ended.stdout)
    _events(gathering, container)


def _around(gathering: Gathering, container: Container, seen: Sight) -> None:
    """The daemon's and the kernel's word, the control group, and the GPUs."""
    began, ended = container.time("StartedAt"), container.time("FinishedAt")
    times = [when.timestamp() for when in (began, ended - _BEFORE if ended else None) if when]
    since = f"@{int(min(times)) - _LEAD_S}" if times else None
    _daemon(gathering, container, seen, since)
    death = ended.timestamp() if ended else None
    until = death + _AFTERMATH_S if death is not None and not container.state.get("Running") else None
    collect_kernel(gathering, seen, Span(since, min(times, default=None), death, until_s=until))
    pid = container.state.get("Pid")
    if isinstance(pid, int) and pid > 0:
        _group(gathering, container, pid)
    collect_devices(gathering)


def _inspect(gathering: Gathering, name: str) -> Container | None:
    """Its state; None when nobody may be asked.

    Raises:
        BadInputError: See `collect_container`.
    """
    answers: list[tuple[tuple[str, ...], Completed]] = []
    for program in _PROGRAMS:
        argv: tuple[str, ...] = (program, "inspect", "--type", "container", "--", name)
        ended = gathering.host.run(argv)
        if ended.missing:
            continue
        if ended.ok and (container := _container(program, name, ended.stdout)) is not None:
            gathering.add(f"{program} inspect {container.name}", ended.stdout)
            return container
        answers.append((argv, ended))
    if not answers:
        raise BadInputError(
            "there is neither docker nor podman here",
            next_step="run this on the container's host, or hand over what was saved: draftmark why FILES…",
        )
    silent = [(argv, ended) for argv, ended in answers if not _says_unknown(ended)]
    if not silent:
        raise _no_such_container(gathering.host, name, [argv[0] for argv, _ in answers])
    argv, ended = silent[0]
    gathering.failed("container state", ended, argv)
    as_root = gathering.unread[-1].command.startswith("sudo ")
    gathering.miss("container log", reason(ended, argv), f"{argv[0]} logs --timestamps {name}", as_root=as_root)
    return None


def _says_unknown(ended: Completed) -> bool:
    said = ended.stderr.lower()
    return ended.ok or ("daemon is running" not in said and any(words in said for words in _UNKNOWN))


def _container(program: str, name: str, output: bytes) -> Container | None:
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        return None
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        return None
    state = first.get("State")
    return Container(
        program,
        str(first.get("Name") or name).lstrip("/"),
        str(first.get("Id") or ""),
        state if isinstance(state, dict) else {},
    )


def _no_such_container(host: Host, name: str, programs: list[str]) -> BadInputError:
    names: list[str] = []
    for program in programs:
        listed = host.run((program, "ps", "--all", "--format", "{{.Names}}"))
        names += listed.stdout.decode("utf-8", "replace").split()
    close = close_names(name, names)
    return BadInputError(
        f'there is no container "{name}" here',
        evidence=(
            f"{' and '.join(programs)} knows none of that name; one started with --rm is gone when it ends",
            *((f"names like it: {', '.join(close)}",) if close else ()),
        ),
        next_step=f"draftmark why docker:{close[0]}" if close else f"{programs[0]} ps --all",
    )


def _events(gathering: Gathering, container: Container) -> None:
    """Its events around its last end; the engine remembers only some hundred."""
    ended = container.time("FinishedAt")
    if ended is None:
        return
    argv = [
        container.program,
        "events",
        f"--since={_rfc3339(ended - _BEFORE)}",
        f"--until={_rfc3339(ended + _AFTER)}",
    ]
    argv += [f"--filter=container={container.id or container.name}"]
    gathering.command(f"{container.program} events of {container.name}", argv, unread="container events")


def _rfc3339(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _daemon(gathering: Gathering, container: Container, seen: Sight, since: str | None) -> None:
    """What the daemon wrote about it: `Container failed to exit within 10s of signal 15 - using the force`."""
    if container.program != "docker":
        return  # podman has no daemon: what it does is in the journal of whoever called it
    units = ("--unit=docker.service", "--unit=containerd.service")
    if seen in (Sight.NOTHING, Sight.OWN):
        because = "this user may not read the daemon's journal"
        gathering.miss("docker's journal", because, for_people(units[0], since=since), as_root=True)
        return
    marks = tuple(mark.encode() for mark in (container.id[:12], container.name) if mark)
    chunks = peeked(_about(Output(gathering.host, entries(*units, since=since)), marks))
    if chunks is not None:
        gathering.add("journal of docker", chunks)


def _about(output: Output, marks: tuple[bytes, ...]) -> Iterator[bytes]:
    """Lines that name the container, but not its own log, which the journald driver keeps in the same place."""
    for line in output.lines():
        if any(mark in line for mark in marks) and b'"CONTAINER_ID"' not in line:
            yield line + b"\n"


def _group(gathering: Gathering, container: Container, pid: int) -> None:
    """The control group of a container that runs."""
    try:
        groups = gathering.host.read(f"/proc/{pid}/cgroup", 1 << 16).decode("utf-8", "replace")
    except OSError:
        return
    match = re.search(r"^\d+:(?:memory|[\w,]*,memory[\w,]*)?:(/\S+)$", groups, re.MULTILINE)
    if match:
        collect_group(gathering, match[1], container.name)
