"""The nouns of a post-mortem, from a line of a file to a verdict.

Source (lines of one file or command) → Event (a line that means something) → Verdict (a cause with its evidence)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from draftmark.model import Evidence

NO_FIELDS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Line:
    """One line as somebody wrote it, taken out of whatever carried it here.

    Attributes:
        source: Name of the source, as the user would look for it (`service.log`, `logs.tar:node1/service.log`,
            `journal of llm.service`).
        number: Counts from 1, as in an editor: parts between carriage returns share their line's number.
        text: What the writer said, without the prefixes of the carriers (journald, docker, compose, CRI, kubectl),
            of the engine's logger (date, level, process, rank), and without ANSI escapes, NULs and CR. At most 8000
            characters.
        raw: As it stands in the source, made printable; at most 2000 characters. What a user is shown.
        time: Seconds since the epoch as far as the line tells; None when it has no clock of its own. Zones that
            are not written are taken as UTC, years that are not written are guessed: good for order, not for
            absolute claims. On a relative clock (`clock`), seconds since its start.
        clock: `wall` (with a date), `relative` (dmesg seconds, llama.cpp's clock), or `` when there is no time.
        stamp: The time as written.
        ident: Who the carrier says wrote it: `systemd`, `kernel`, `python3`, a container's or pod's name; `` if it
            does not say.
        actor: Which process, rank or node of the engine wrote it, by its own prefix: `TP0`, `DP1 TP0`,
            `EngineCore_DP0 pid=882`, `Worker_TP1 pid=9`, `rank5`; `` if it does not say.
        pid: Of the writer, where the carrier says.
        level: `I`, `W`, `E`, `D`, `F` or ``, from the engine's own prefix.
        unit: The systemd unit it is about or from, where a structured field or the text says.
        host: Host name, where the carrier says.
        fields: Structured fields of the carrier (journald JSON: MESSAGE_ID, EXIT_CODE, UNIT_RESULT, …).
    """

    source: str
    number: int
    text: str
    raw: str
    time: float | None = None
    clock: str = ""
    stamp: str | None = None
    ident: str = ""
    actor: str = ""
    pid: int | None = None
    level: str = ""
    unit: str = ""
    host: str = ""
    fields: Mapping[str, str] = field(default_factory=lambda: NO_FIELDS)

    def evidence(self) -> Evidence:
        """The line as a proof to be shown."""
        return Evidence(file=self.source, line=self.number, time=self.stamp, text=self.raw)


class Kind(StrEnum):
    """What a source is, by its content."""

    LOG = "log"  # lines: a service's log, a journal, a kernel log, a client's log, or a mix of them
    SYSTEMCTL_SHOW = "systemctl-show"  # KEY=value
    DOCKER_INSPECT = "docker-inspect"  # JSON
    KUBECTL_JSON = "kubectl-json"  # JSON: pod, pod list or event list
    KUBECTL_DESCRIBE = "kubectl-describe"
    SACCT = "sacct"
    PROCESSES = "processes"  # ps, nvidia-smi
    METRICS = "metrics"  # Prometheus text
    UNUSABLE = "unusable"  # binary, empty, or JSON of something else


@dataclass(frozen=True, slots=True)
class Source:
    """One file, archive member or command's output.

    Attributes:
        name: As in `Line.source`.
        kind: By its content; the name is only a hint.
        lines: The lines that matter, in order: all of them for a small source; for a large one the head, the tail,
            those that hold one of the hints, and what belongs to them (tracebacks).
        total_lines: Of the whole source.
        size_bytes: After decompression.
        document: Parsed JSON, for the kinds that are JSON.
        notes: What the user should know: cut off, not text, a broken archive.
        command: What shows it to the user; `` where none does, as for a pipe or what was unpacked.
    """

    name: str
    kind: Kind
    lines: tuple[Line, ...] = ()
    total_lines: int = 0
    size_bytes: int = 0
    document: Any = None
    notes: tuple[str, ...] = ()
    command: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """A source that was not read.

    Attributes:
        source: `kernel log`, `unit journal`, `container state`.
        because: Why: not handed over, no permission, no such command.
        command: What would read it.
    """

    source: str
    because: str
    command: str


class Confidence(StrEnum):
    """How sure a verdict is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    UNSETTLED = "unsettled"


class Phase(StrEnum):
    """What the server was doing when it failed."""

    STARTUP = "startup"
    SERVING = "serving"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A cause that a hasty reader would name, and what speaks against it."""

    cause: str
    because: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Consequence:
    """A failure that followed from the cause."""

    what: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cause that is possible while nothing settles it."""

    cause: str
    because: str
    command: str


@dataclass(frozen=True, slots=True)
class Moment:
    """One entry of the timeline.

    Attributes:
        role: `cause`, `support`, `consequence`, `state`, `stop` or `exit`.
        at: Seconds since the epoch, where the line has a wall clock; a year or zone that is not written is guessed.
    """

    role: str
    what: str
    evidence: Evidence
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer.

    Attributes:
        cause: Name of the taxonomy, or `unsettled`.
        summary: One sentence with the figures that matter (requests, limits, signals).
        service: Unit, container or pod, where one is known.
        engine: `sglang`, `vllm`, `llama.cpp`, …; None when nothing tells.
        root_elsewhere: Where the first failure lies when it is in a log that was not handed over.
        died: Whether the service is gone; None when nothing tells.
        afterwards: What became of it then, where its supervisor's record tells: `runs again since …`.
    """

    cause: str
    confidence: Confidence
    summary: str
    phase: Phase | None
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    not_examined: tuple[Unread, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    advice: tuple[str, ...] = ()
    timeline: tuple[Moment, ...] = ()
    service: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    root_elsewhere: str | None = None
    died: bool | None = None
    afterwards: str | None = None
    examined: tuple[str, ...] = field(default=())
