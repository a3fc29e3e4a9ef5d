"""Whose death it is: which lines of a shared journal are the server's, and which a neighbour's. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from draftmark.postmortem.events import unit_of, voice
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
_SUPERVISORS = ("systemd", "kernel", "oomd", "earlyoom", "nohang", "coredump", "sudo", "docker", "kubelet")


@dataclass(slots=True)
class Subject:
    """The service whose death is examined.

    Attributes:
        unit: Its systemd unit; `` when none is known.
        idents: What journald or compose calls the writer of its lines; empty when lines bear no name.
        containers: Ids or names of its containers, as far as known.
        pids: Processes that are known to be its own.
        comms: Names of its processes that lines have told.
    """

    unit: str = ""
    idents: frozenset[str] = frozenset()
    containers: frozenset[str] = frozenset()
    pids: set[int] = field(default_factory=set)
    comms: set[str] = field(default_factory=set)

    def owns(self, line: Line) -> bool:
        """Whether a line is the service's own, or about it, or of a voice that may speak about it."""
        speaker = voice(line)
        if speaker == "systemd":
            unit = unit_of(line)
            return not unit or not self.unit or _same_unit(unit, self.unit) or unit.endswith((".slice", ".scope"))
        if speaker in _SUPERVISORS:
            return True
        if line.unit and self.unit and line.unit.endswith(".service") and not _same_unit(line.unit, self.unit):
            return False
        return not line.ident or not self.idents or line.ident in self.idents

    def killed(self, *, comm: str = "", cgroup: str = "", pid: int | None = None) -> bool | None:
        """Whether a victim that the kernel or a daemon names is ours; None when it cannot be told.

        Process ids of the kernel's can belong to another namespace, so a cgroup decides before a pid.
        """
        if cgroup:
            if self.unit and (cgroup.rstrip("/").endswith("/" + self.unit) or f"/{self.unit}/" in cgroup):
                return True
            if any(container and container[:12] in cgroup for container in self.containers):
                return True
            other = re.search(r"/([^/]+\.service)(?:/|$)", cgroup)
            if other and self.unit and not other[1].startswith("user@"):
                return False
        if pid is not None and pid in self.pids:
            return True
        if comm:
            if comm in self.comms or _SERVER_COMM.match(comm) or _LIKELY.search(comm):
                return True
            if _FOREIGN.match(comm) or not self.comms:
                return False if _FOREIGN.match(comm) else None
        return None


def _same_unit(one: str, other: str) -> bool:
    return one == other or one.partition(".service")[0] == other.partition(".service")[0]


def find_subject(lines: Iterable[Line], tables: Tables, *, unit: str = "", named: Sequence[str] = ()) -> Subject:
    """Who it is, by the lines themselves.

    Args:
        lines: Of all logs.
        unit: Where the user or a record names it.
        named: Containers that records name.
    """
    units: Counter[str] = Counter()
    idents: Counter[str] = Counter()
    engine: Counter[str] = Counter()
    failed: set[str] = set()
    subject = Subject(containers=frozenset(named))
    engine_signs = [sign for sign in tables.signs if sign.role in ("engine", "start", "traffic") and sign.engine]
    for line in lines:
        speaker = voice(line)
        if speaker == "systemd":
            about = unit_of(line)
            units[about] += bool(about)
            if about and ("exited" in line.text or "Failed with" in line.text or "timed out" in line.text):
                failed.add(about)
            _processes(line, subject, about, unit)
        elif speaker == "app" and line.ident:
            idents[line.ident] += 1
            if engine[line.ident] < 3 and any(
                any(hint in line.text for hint in sign.hints) and sign.search(line.text) for sign in engine_signs
            ):
                engine[line.ident] += 1
    subject.unit = unit or _pick_unit(units, failed, idents)
    subject.idents = _pick_idents(idents, engine, subject.unit)
    return subject


def _processes(line: Line, subject: Subject, about: str, unit: str) -> None:
    if unit and about and not _same_unit(about, unit):
        return
    match = re.search(r"Killing process (\d+) \(([^)]*)\)", line.text)
    if match and (unit or not _FOREIGN.match(match[2])):
        subject.pids.add(int(match[1]))
        subject.comms.add(match[2])


def _pick_unit(units: Counter[str], failed: set[str], idents: Counter[str]) -> str:
    services = [name for name in units if name.endswith((".service", ".scope"))]
    if len(services) <= 1:
        return services[0] if services else ""

    def weight(name: str) -> tuple[bool, bool, bool, int]:
        stem = name.rpartition(".")[0].partition("@")[0]
        return (
            bool(_LIKELY.search(stem)),
            not _FOREIGN.match(stem),
            name in failed or stem in idents,
            units[name],
        )

    return max(services, key=weight)


def _pick_idents(idents: Counter[str], engine: Counter[str], unit: str) -> frozenset[str]:
    if len(idents) <= 1:
        return frozenset(idents)
    ours = {name for name in idents if engine[name]}
    if not ours:
        stem = unit.rpartition(".")[0]
        ours = {name for name in idents if _LIKELY.search(name) or (stem and name == stem)}
    if not ours:
        ours = {name for name in idents if not _FOREIGN.match(re.sub(r"[-_.]\d+$", "", name))}
    return frozenset(ours or idents)
