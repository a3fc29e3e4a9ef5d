"""What is known before judging: the streams with their last ended life, the records, who is who. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from draftmark.postmortem.events import Event, Standing, read_events, standing_hints, traces_of, voice
from draftmark.postmortem.faults import Fault, Stage, find_faults, mark_survived
from draftmark.postmortem.lives import last_ended, split_lives
from draftmark.postmortem.model import Kind, Line, Source, Unread
from draftmark.postmortem.prose import is_prose
from draftmark.postmortem.records import ContainerRecord, Records, read_records
from draftmark.postmortem.subject import Subject, find_subject, is_likely
from draftmark.postmortem.tables import Tables
from draftmark.postmortem.times import covers, death_of, one_clock, within

_ROTATION = re.compile(r"(?:[.-](?:\d{1,3}|\d{8}(?:-\d+)?))?(?:\.(?:gz|zst|xz|bz2))?$")
_RECORD_KINDS = (
    Kind.KUBECTL_DESCRIBE,
    Kind.KUBECTL_JSON,
    Kind.SYSTEMCTL_SHOW,
    Kind.DOCKER_INSPECT,
    Kind.SACCT,
    Kind.METRICS,
    Kind.PROCESSES,
)
_CLIENT_NAME = re.compile(r"(?i)(?:^|[/:._-])(?:client|bench|benchmark|loadgen|locust)[^/]*$")


@dataclass(slots=True)
class Stream:
    """One log, its rotated parts joined.

    Attributes:
        lines: Those of the service, all lives.
        events: Of the life that is examined.
        faults: Of that life.
        later_alive: A later life of the same log is up.
        complete: The examined life reaches to the log's end.
        client: It is a client's log.
    """

    name: str
    lines: list[Line]
    events: list[Event]
    faults: list[Fault]
    stage: Stage
    engine: str | None = None
    later_alive: bool = False
    complete: bool = True
    client: bool = False
    first: Line | None = None
    last: Line | None = None

    @property
    def speaks(self) -> bool:
        """Whether the server or its supervisor speaks in it, not the kernel alone."""
        return any(voice(line) != "kernel" for line in self.lines[:50])


@dataclass
class Scene:
    """What the judge looks at."""

    tables: Tables
    subject: Subject
    streams: list[Stream]
    records: Records
    record_events: list[Event]
    unread: list[Unread]
    engine: str | None = None
    engine_version: str | None = None
    examined: tuple[str, ...] = ()
    foreign_oom: list[Event] = field(default_factory=list)

    def events(self, *roles: str) -> list[Event]:
        """Events of these roles, from all streams and records, in their order."""
        return [event for event in self.telling if event.role in roles]

    def signs(self, *ids: str) -> list[Event]:
        """Events of these signs."""
        return [event for event in self.telling if event.sign.id in ids]

    def all_events(self) -> list[Event]:
        """Every event of the examined lives but ordinary traffic."""
        return self.telling

    @cached_property
    def telling(self) -> list[Event]:
        """The events that rules look at, in order: traffic, of which there may be much, is left to the streams."""
        served = [event for stream in self.streams if not stream.client for event in stream.events]
        return [event for event in (*served, *self.record_events) if event.role not in ("traffic", "engine")]

    @property
    def faults(self) -> list[Fault]:
        """Faults of the server's streams."""
        return [fault for stream in self.streams if not stream.client for fault in stream.faults]

    @property
    def servers(self) -> list[Stream]:
        """Streams that are the server's, not a client's."""
        return [stream for stream in self.streams if not stream.client]

    @cached_property
    def voices(self) -> frozenset[str]:
        """Who speaks in the logs that were handed over."""
        return frozenset(voice(line) for stream in self.streams for line in stream.lines)

    @property
    def kernel_read(self) -> bool:
        """Whether a kernel log was handed over that can show what happened when the server died."""
        if any(name == "kernel log" for name in self.examined):
            return True  # read from the host, for that time
        return "kernel" in self.voices and covers(self.kernel_times, self.death)

    @cached_property
    def kernel_times(self) -> tuple[float, float] | None:
        """First and last dated line of the kernel's."""
        times = [
            line.time
            for stream in self.streams
            for line in stream.lines
            if line.ident == "kernel" and line.clock == "wall" and line.time is not None
        ]
        return (min(times), max(times)) if times else None

    @cached_property
    def death(self) -> float | None:
        """When the examined life ended, by the wall clock, as far as the logs tell."""
        return death_of([stream for stream in self.servers if stream.speaks])

    @property
    def journal_read(self) -> bool:
        """Whether systemd's own lines were handed over."""
        return "systemd" in self.voices


def build_scene(
    sources: Sequence[Source], tables: Tables, *, unit: str | None = None, unread: Sequence[Unread] = ()
) -> Scene:
    """Join the sources into a scene."""
    records = read_records(tuple(sources))
    named = unit or (records.unit.get("Id") if records.unit else "") or ""
    groups = _groups(sources)
    everything = [line for lines in groups.values() for line in lines]
    containers = [c.name for c in records.containers if c.name] + _container_ids(sources)
    standing = standing_hints(everything, tables)
    subject = find_subject(everything, tables, standing, unit=named, named=containers)
    subject.pods = frozenset([records.pod] if records.pod else [])
    records.containers = _of_the_server(records.containers)
    if records.unit and records.unit.get("ExecMainPID").isdigit():
        subject.pids.add(int(records.unit.get("ExecMainPID")))
    streams = [_stream(name, lines, tables, subject, standing) for name, lines in groups.items() if lines]
    record_events = [
        event
        for source in sources
        if source.kind in _RECORD_KINDS
        for event in read_events(source.lines, tables, records=True)
        if _about_us(event, subject)
    ]
    scene = Scene(
        tables=tables,
        subject=subject,
        streams=streams,
        records=records,
        record_events=record_events,
        unread=[*unread, *_half_read(sources)],
        examined=tuple(source.name for source in sources if source.kind is not Kind.UNUSABLE),
    )
    _drop_other_times(scene)
    for stream in scene.streams:
        stream.client = _is_client(stream, scene)
    _identify(scene)
    return scene


def _half_read(sources: Sequence[Source]) -> list[Unread]:
    """Sources that were of no use, or not read in full, and why."""
    return [Unread(source.name, "; ".join(source.notes), source.command) for source in sources if source.notes] + [
        Unread(source.name, "a text for people, not a log: it only quotes", source.command)
        for source in sources
        if is_prose(source)
    ]


def _drop_other_times(scene: Scene) -> None:
    """Forget what the kernel said long before or after the examined life: it is about something else."""
    speaking = [stream for stream in scene.streams if stream.speaks]
    end = death_of(speaking)
    begins = [s.first.time for s in speaking if s.first is not None and s.first.clock == "wall" and s.first.time]
    if end is None or not begins:
        return
    span = (min(begins), end)
    edges = [line for s in speaking for line in (s.first, s.last) if line is not None and line.time in span]

    def keep(line: Line) -> bool:
        same = any(one_clock(line, edge) for edge in edges)
        return voice(line) != "kernel" or within(line, span, same_clock=same)

    for stream in scene.streams:
        stream.events = [e for e in stream.events if keep(e.line)]
        stream.faults = [f for f in stream.faults if keep(f.line)]


def _groups(sources: Sequence[Source]) -> dict[str, list[Line]]:
    """Lines by log; parts of a rotated log are joined in the order in which the intake gives them: oldest first."""
    groups: dict[str, list[Line]] = {}
    for source in sources:
        if source.kind is Kind.LOG and not is_prose(source):
            groups.setdefault(_base(source.name), []).extend(source.lines)
    return groups


def _base(name: str) -> str:
    previous = None
    while previous != name:
        previous, name = name, _ROTATION.sub("", name)
    return name


_POD = re.compile(r"\bpods?/([\w.-]+)")
_MOST_CONTAINERS = 100


def _of_the_server(containers: list[ContainerRecord]) -> list[ContainerRecord]:
    """Of several containers, those that run a language model's server: a sidecar's end is its own."""
    likely = [c for c in containers if is_likely(c.name) or is_likely(c.image)]
    return (likely if likely and len(containers) > 1 else containers)[:_MOST_CONTAINERS]


def _container_ids(sources: Sequence[Source]) -> list[str]:
    ids = []
    for source in sources:
        entries = source.document if isinstance(source.document, list) else [source.document]
        ids += [str(entry["Id"]) for entry in entries if isinstance(entry, dict) and entry.get("Id")]
        if source.kind is Kind.KUBECTL_DESCRIBE:
            ids += [
                match[1] for line in source.lines if (match := re.search(r"Container ID:\s+\w+://(\w+)", line.text))
            ]
    return ids


def _stream(name: str, lines: list[Line], tables: Tables, subject: Subject, standing: Standing) -> Stream:
    ours = [line for line in lines if subject.owns(line)]
    events = [event for event in read_events(ours, tables, standing) if _about_us(event, subject)]
    burst = any(event.role == "start-limit" for event in events)
    life, later = last_ended(split_lives(events, len(ours)), first_of_burst=burst)
    chosen = [event for event in events if life.begin <= event.order < life.end]
    if burst:
        chosen += [event for event in events if event.role == "start-limit" and event not in chosen]
    engine = _engine(events)
    chosen = [event for event in chosen if _of_engine(event, engine)]
    stage = Stage(chosen, engine)
    traces = traces_of(ours[life.begin : life.end])
    faults = find_faults(chosen, traces, tables, stage, first=life.begin)
    mark_survived(faults, chosen)
    return Stream(
        name=name,
        lines=ours,
        events=chosen,
        faults=faults,
        stage=stage,
        engine=engine,
        later_alive=later,
        complete=life.end == len(ours),
        first=ours[life.begin] if life.end > life.begin else None,
        last=next((line for line in reversed(ours[life.begin : life.end]) if voice(line) != "kernel"), None),
    )


def _engine(events: Sequence[Event]) -> str | None:
    """The engine that most lines speak for."""
    votes: dict[str, int] = {}
    for event in events:
        if event.sign.engine and event.role in ("engine", "start", "version", "traffic", "starting"):
            votes[event.sign.engine] = votes.get(event.sign.engine, 0) + (1 if event.role == "engine" else 3)
    return max(votes, key=lambda name: votes[name]) if votes else None


_KIN = {"ollama": "llama.cpp", "llama.cpp": "ollama"}
_SPOKEN = frozenset(("fault", "noise", "echo", "fatal", "child-exit", "version", "engine"))


def _of_engine(event: Event, engine: str | None) -> bool:
    """Drop marks of progress that only look like another engine's: uvicorn's lines stand in several."""
    own = event.sign.engine
    return engine is None or own in ("", engine, _KIN.get(engine, "")) or event.role in _SPOKEN


def _about_us(event: Event, subject: Subject) -> bool:
    """Drop what a daemon, a supervisor or the kernel did to somebody else."""
    pod = _POD.search(event.line.text) if event.sign.id.startswith("k8s.") else None
    if pod and not subject.is_pod(pod[1]):
        return False
    if event.sign.target == "cgroup":
        return subject.killed(cgroup=event.values.get("cgroup", "")) is not False
    if event.sign.target == "comm":
        comm = next((event.values[key] for key in ("comm", "comm2", "comm3") if event.values.get(key)), "")
        pid = next((event.values[key] for key in ("pid", "pid2", "pid3") if event.values.get(key)), "")
        return subject.killed(comm=comm.strip(), pid=int(pid) if pid.isdigit() else None) is not False
    return True


def _identify(scene: Scene) -> None:
    """Engine and version: the engine that most lines speak for."""
    scene.engine = next((stream.engine for stream in scene.streams if stream.engine), None)
    versions = [e for e in scene.events("version") if e.sign.engine == scene.engine]
    scene.engine_version = versions[-1].values.get("version") if versions else None
    for container in scene.records.containers:
        match = re.search(
            r"(sglang|vllm|llama\.cpp|text-generation-inference|ollama)\S*:v?(\d[\w.]*)", container.image
        )
        if match:
            scene.engine = scene.engine or match[1]
            scene.engine_version = scene.engine_version or match[2]


def _is_client(stream: Stream, scene: Scene) -> bool:
    """A log in which a client's libraries fail and no engine speaks for itself."""
    if any(event.sign.engine and event.role not in ("fault", "engine") for event in stream.events):
        return False
    failing = any(fault.client for fault in stream.faults)
    named = bool(_CLIENT_NAME.search(stream.name)) and len(scene.streams) > 1
    return named or (failing and (len(scene.streams) > 1 or _benchmark(stream)))


def _benchmark(stream: Stream) -> bool:
    return any("bench" in line.text.lower() or "aiohttp" in line.text for line in stream.lines)
