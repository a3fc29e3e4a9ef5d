"""Whose death it is: which lines of a shared journal are the server's, and which a neighbour's. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from draftmark.postmortem.events import Standing, unit_of, voice
from draftmark.postmortem.model import Line
from draftmark.postmortem.tables import Tables

_LIKELY = re.compile(
    r"(?i)sglang|vllm|llama|llm|ollama|tgi|text-generation|trt|triton|lmdeploy|aphrodite|infer|qwen|deepseek|mistral|"
    r"gemma|gpt|granite|phi-?\d|mixtral|glm|kimi|draftmark"
)
_FOREIGN = re.compile(
    r"(?i)^(?:nginx|httpd|apache2?|haproxy|caddy|traefik|envoy|postgres\S*|mysqld?|mariadbd?|redis\S*|mongod|etcd|"
    r"crond?|anacron|atd|sshd\S*|rsyslogd?|chronyd|ntpd|systemd-(?:timesyncd|resolved|networkd|udevd|logind|journald)|"
    r"dbus\S*|polkitd?|snapd|cupsd|avahi\S*|NetworkManager|node_exporter|prometheus|grafana|alertmanager|"
    r"dcgm-exporter|nvidia-persistenced|fluent\S*|filebeat|vector|promtail|telegraf|collectd|zabbix\S*|"
    r"containerd|kernel|rabbitmq\S*|memcached|smartd|unattended-upgr\S*|apt\S*|dnf\S*|CRON|postfix\S*|dhclient|"
    r"open-webui\S*|litellm\S*|minio|loki|tempo|jaeger|consul|vault|nats\S*|kafka\S*|zookeeper)$"
)
_SERVER_COMM = re.compile(
    r"(?i)^(?:python[\d.]*|sglang\S*|vllm\S*|VLLM\S*|ray\S*|llama\S*|ollama\S*|text-generatio\S*|tritonserver\S*|"
    r"trtllm\S*|lmdeploy\S*|aphrodite\S*|pt_main_thread|EngineCore\S*|APIServer\S*|koboldcpp\S*|mpirun|uvicorn|"
    r"gunicorn\S*|torchrun|server|api_server\S*)"
)
_CONTAINER = re.compile(r"(?:^|[-/])[0-9a-f]{12,64}\b")
_KILLING = re.compile(r"Killing process (\d+) \(([^)]*)\)")
_COMPOSE_EXIT = re.compile(r"^(\S+) exited with code \d+$")
_JOB = re.compile(r"^(?:Starting|Started|Stopping|Stopped|Finished|Failed to start|Dependency failed for) ")
_HOUSEKEEPING = re.compile(r"(?i)\b(?:session \d+|target|timer|mount|slice|socket|cleanup|rotate|daily|update)\b")
_SUPERVISORS = ("systemd", "kernel", "oomd", "earlyoom", "nohang", "coredump", "sudo", "docker", "kubelet")


@dataclass(slots=True)
class Subject:
    """The service whose death is examined.

    Attributes:
        unit: Its systemd unit; `` when none is known.
        others: Units that the lines name and that are not ours.
        idents: What journald or compose calls the writer of its lines; empty when lines bear no name.
        pods: Names of its pods, as far as known.
        containers: Ids or names of its containers, as far as known.
        pids: Processes that are known to be its own.
        comms: Names of its processes that lines have told.
    """

    unit: str = ""
    others: frozenset[str] = frozenset()
    idents: frozenset[str] = frozenset()
    containers: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    pids: set[int] = field(default_factory=set)
    comms: set[str] = field(default_factory=set)

    def owns(self, line: Line) -> bool:
        """Whether a line is the service's own, or about it, or of a voice that may speak about it."""
        speaker = voice(line)
        if speaker == "systemd":
            return self._about_us(line)
        gone = _COMPOSE_EXIT.match(line.text)
        if gone and self.idents and gone[1] not in self.idents:
            return False
        if speaker in _SUPERVISORS:
            return True
        if line.unit and self.unit and line.unit.endswith(".service") and not _same_unit(line.unit, self.unit):
            return False
        return not line.ident or not self.idents or line.ident in self.idents

    def _about_us(self, line: Line) -> bool:
        unit = unit_of(line)
        if unit.startswith("user@"):
            return True  # the session manager that owns user services
        if unit:
            if unit in self.others:
                return unit.endswith((".slice", ".scope")) and "user" not in unit and unit != "init.scope"
            return not self.unit or _same_unit(unit, self.unit)
        if not _JOB.match(line.text):
            return True
        if self.unit and _stem(self.unit).lower() in line.text.lower():
            return True
        return not self.others and not _HOUSEKEEPING.search(line.text)

    def is_pod(self, name: str) -> bool:
        """Whether a pod that an event names can be the service's."""
        return name in self.pods or (not self.pods and bool(_LIKELY.search(name)))

    def killed(self, *, comm: str = "", cgroup: str = "", pid: int | None = None) -> bool | None:
        """Whether a victim that the kernel or a daemon names is ours; None when it cannot be told.

        Process ids of the kernel's can belong to another namespace, so a cgroup decides before a pid.
        """
        if cgroup:
            if self.unit and (cgroup.rstrip("/").endswith("/" + self.unit) or f"/{self.unit}/" in cgroup):
                return True
            if any(container and container[:12] in cgroup for container in self.containers):
                return True
            if _CONTAINER.search(cgroup) and any(_CONTAINER.search(name) for name in self.containers):
                return False  # another container's
            other = re.search(r"/([^/]+\.service)(?:/|$)", cgroup)
            if other and not other[1].startswith("user@"):
                return not self.unit and (bool(_LIKELY.search(_stem(other[1]))) or _stem(other[1]) in self.idents)
        if pid is not None and pid in self.pids:
            return True
        if comm:
            return comm in self.comms or bool(_SERVER_COMM.match(comm)) or bool(_LIKELY.search(comm))
        return None


def _same_unit(one: str, other: str) -> bool:
    return one == other or one.partition(".service")[0] == other.partition(".service")[0]


def is_likely(name: str) -> bool:
    """Whether a name sounds like a language model's server."""
    return bool(_LIKELY.search(name))


def find_subject(
    lines: Sequence[Line], tables: Tables, standing: Standing, *, unit: str = "", named: Sequence[str] = ()
) -> Subject:
    """Who it is, by the lines themselves.

    Args:
        lines: Of all logs.
        tables: For the words by which an engine is known.
        standing: The hints in each line.
        unit: Where the user or a record names it.
        named: Containers that records name.
    """
    marks = _Marks()
    subject = Subject(containers=frozenset(named))
    for place, line in enumerate(lines):
        speaker = voice(line)
        if speaker == "systemd":
            marks.systemd(place, line, unit_of(line))
            _processes(line, subject, unit_of(line), unit)
        elif speaker == "app":
            marks.app(place, line, _engine_roles(line, tables, standing))
    subject.unit = unit or _pick_unit(marks)
    subject.others = frozenset(name for name in marks.units if name and not _same_unit(name, subject.unit))
    subject.idents = _pick_idents(marks, subject.unit)
    return subject


def _engine_roles(line: Line, tables: Tables, standing: Standing) -> set[str]:
    """In which roles an engine speaks in a line: `engine`, `start`, `traffic`."""
    signs = {sign.id: sign for hint in standing.get(id(line), ()) for sign in tables.by_hint[hint] if sign.engine}
    return {s.role for s in signs.values() if s.role in ("engine", "start", "traffic") and s.search(line.text)}


@dataclass(slots=True)
class _Marks:
    """What the lines tell about units and writers."""

    units: Counter[str] = field(default_factory=Counter)
    idents: Counter[str] = field(default_factory=Counter)
    engine: Counter[str] = field(default_factory=Counter)
    own_units: Counter[str] = field(default_factory=Counter)
    app_units: Counter[str] = field(default_factory=Counter)
    app_lines: list[int] = field(default_factory=list)
    comms: dict[str, set[str]] = field(default_factory=dict)
    started: dict[str, list[int]] = field(default_factory=dict)
    exited: dict[str, list[int]] = field(default_factory=dict)
    engine_lines: list[int] = field(default_factory=list)
    engine_starts: list[int] = field(default_factory=list)

    def systemd(self, place: int, line: Line, about: str) -> None:
        if not about:
            return
        self.units[about] += 1
        killed = _KILLING.search(line.text)
        if killed:
            self.comms.setdefault(about, set()).add(killed[2])
        if line.text.startswith(("Started", "Starting")):
            self.started.setdefault(about, []).append(place)
        if "Main process exited" in line.text or "Failed with" in line.text or "timed out" in line.text:
            self.exited.setdefault(about, []).append(place)

    def app(self, place: int, line: Line, roles: set[str]) -> None:
        if line.ident:
            self.idents[line.ident] += 1
        if _FOREIGN.match(re.sub(r"[-_.]\d+$", "", line.ident)):
            return
        self.app_lines.append(place)
        if line.unit:
            self.app_units[line.unit] += 1
        if roles:
            self.engine[line.ident] += 1
            self.engine_lines.append(place)
            if line.unit:
                self.own_units[line.unit] += 1
            if "start" in roles:
                self.engine_starts.append(place)


def _processes(line: Line, subject: Subject, about: str, unit: str) -> None:
    """Note which processes systemd names as the unit's."""
    if unit and about and not _same_unit(about, unit):
        return
    match = _KILLING.search(line.text)
    if match and (unit or not _FOREIGN.match(match[2])):
        subject.pids.add(int(match[1]))
        subject.comms.add(match[2])


def _pick_unit(marks: _Marks) -> str:
    """The unit whose server this is; `` when the units named in the lines are others'."""
    services = [name for name in marks.units if name.endswith((".service", ".scope"))]
    for counted in (marks.own_units, marks.app_units):
        named = [name for name in counted if not _FOREIGN.match(_stem(name))]
        if named:
            return max(named, key=lambda name: counted[name])
    linked = [name for name in services if _linked(name, marks)]
    if not linked and marks.app_lines:
        return ""  # a server speaks in these lines, and no unit named in them is tied to it
    candidates = linked or [name for name in services if not _FOREIGN.match(_stem(name))] or services

    def weight(name: str) -> tuple[bool, bool, int]:
        known = name in marks.exited or _stem(name) in marks.idents
        return (bool(_LIKELY.search(_stem(name))), known, marks.units[name])

    return max(candidates, key=weight, default="")


def _linked(name: str, marks: _Marks) -> bool:
    """Whether a unit belongs to the server: by its name, or because it starts and ends with the server's lines."""
    stem = _stem(name)
    if _FOREIGN.match(stem):
        return False
    if _LIKELY.search(stem) or marks.engine[stem]:
        return True
    comms = marks.comms.get(name)
    if comms and not any(_SERVER_COMM.match(comm) or _LIKELY.search(comm) for comm in comms):
        return False  # its processes are no language model's server
    starts = marks.engine_starts or marks.app_lines[:1]
    for begun in marks.started.get(name, []):
        if any(begun < start <= begun + _SOON_LINES for start in starts):
            return True
    spoken = marks.engine_lines or marks.app_lines
    return bool(spoken) and any(end > spoken[-1] >= end - _SOON_LINES for end in marks.exited.get(name, []))


_SOON_LINES = 20


def _stem(unit: str) -> str:
    return unit.rpartition(".")[0].partition("@")[0]


def _pick_idents(marks: _Marks, unit: str) -> frozenset[str]:
    idents = marks.idents
    if len(idents) <= 1:
        return frozenset(idents)
    ours = {name for name in idents if marks.engine[name]}
    if not ours:
        ours = {name for name in idents if _LIKELY.search(name) or (unit and name == _stem(unit))}
    if not ours:
        ours = {name for name in idents if not _FOREIGN.match(re.sub(r"[-_.]\d+$", "", name))}
    return frozenset(ours or idents)
