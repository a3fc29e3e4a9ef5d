"""Around the verdict: what is ruled out and why, what was not read, and what would settle an open case. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from draftmark.model import Evidence
from draftmark.postmortem.claims import unique
from draftmark.postmortem.judge import Judgement
from draftmark.postmortem.model import Candidate, Line, RuledOut, Unread
from draftmark.postmortem.scene import Scene
from draftmark.postmortem.subject import is_likely

_KILLED = frozenset(
    (
        "stop-timeout-sigkill", "user-or-supervisor-sigkill", "healthy-exit", "unsettled", "systemd-oomd",
        "liveness-probe-kill", "k8s-eviction", "python-exception-scheduler", "cuda-oom-kv-pool-init",
        "python-exception-startup", "host-ram-oom-kernel", "cgroup-oom", "container-oomkilled",
    )
)  # fmt: skip


def ruled_out(scene: Scene, judgement: Judgement) -> Iterator[RuledOut]:
    """The causes that a hasty reader would name here, with what speaks against each."""
    claim = judgement.claim
    killed = 9 in (judgement.ending.signal, judgement.ending.child_signal)
    if (killed or claim.cause in _KILLED) and claim.cause not in ("host-ram-oom-kernel", "cgroup-oom"):
        yield from _memory(scene, judgement)
    if scene.foreign_oom and claim.cause not in ("host-ram-oom-kernel", "cgroup-oom"):
        yield RuledOut(
            "host-ram-oom-kernel",
            "the kernel's OOM killer took another process, not the server's",
            _shown([e.line for e in scene.foreign_oom], 2),
        )
    if claim.cause != "stop-timeout-sigkill" and killed and scene.journal_read and not judgement.ending.stops:
        exits = [e.line for e in scene.signs("systemd.main-exited")]
        if exits and claim.cause != "unsettled":
            yield RuledOut("stop-timeout-sigkill", "systemd had not been asked to stop it", _shown(exits, 1))
    if claim.fault is not None and killed:
        yield RuledOut(
            "user-or-supervisor-sigkill",
            "the server had failed by itself before: the SIGKILL is its own teardown, or came after",
            _shown(judgement.ending.lines or judgement.ending.child_lines, 1),
        )


def _memory(scene: Scene, judgement: Judgement) -> Iterator[RuledOut]:
    """An out-of-memory kill, ruled out by sources that were read; never by ones that were not."""
    if scene.kernel_read and not scene.foreign_oom and not scene.events("oom-kill", "oom-record"):
        lines = [
            line for s in scene.streams for line in s.lines if line.ident == "kernel" or line.clock == "relative"
        ]
        yield RuledOut(
            "host-ram-oom-kernel", "the kernel log was read and holds no OOM kill", _shown(lines[-1:], 1)
        )
    for container in scene.records.containers:
        if (
            container.oom_killed is False
            and "oom_killed" in container.lines
            and judgement.claim.cause != "container-oomkilled"
        ):
            yield RuledOut(
                "container-oomkilled",
                "the container engine says OOMKilled: false (weak: it can miss a killed child)",
                _shown([container.lines["oom_killed"]], 1),
            )
    results = [
        e.line for e in scene.signs("systemd.result") if e.values["result"] in ("timeout", "signal", "exit-code")
    ]
    if results and not scene.events("oom-record") and judgement.claim.cause == "stop-timeout-sigkill":
        yield RuledOut("cgroup-oom", "systemd's own result is not oom-kill", _shown(results, 1))


def _shown(lines: list[Line], count: int) -> tuple[Evidence, ...]:
    return tuple(line.evidence() for line in unique(lines, count))


def not_examined(scene: Scene, judgement: Judgement) -> Iterator[Unread]:
    """What was not read and could change or deepen the verdict."""
    yield from scene.unread
    named = {unread.source for unread in scene.unread}
    unit = scene.subject.unit or "UNIT"
    in_pod = bool(scene.records.pod)
    in_container = bool(scene.records.containers) and not in_pod
    if not scene.kernel_read and "kernel log" not in named:
        command = f"{'on the node: ' if in_pod else ''}sudo journalctl -k {_window(scene)}"
        yield Unread("kernel log", "not handed over", command)
    if not scene.journal_read and not (in_pod or in_container) and "unit journal" not in named:
        yield Unread(
            "unit journal",
            "not handed over: systemd's own lines tell who stopped or killed it",
            f"journalctl -u {unit}",
        )
    if not scene.records.unit and scene.journal_read and "unit properties" not in named:
        yield Unread("unit properties", "not handed over", f"systemctl show {unit}")
    others = [name for name in sorted(scene.subject.others) if is_likely(name)]
    if others:
        shown = ", ".join(others[:4])
        yield Unread(
            f"other services: {shown}",
            "named in the same logs; this verdict is not about them",
            f"draftmark why … --service {others[0]}",
        )
    if judgement.claim.root_elsewhere:
        yield Unread(
            "the other ranks' logs",
            "not handed over: the first failure is there",
            "draftmark why NODE0.log NODE1.log …",
        )


def _window(scene: Scene) -> str:
    """Options of journalctl for the days around the death: whole days, so that a zone does not matter."""
    if scene.death is None:
        return "--since -1d"
    day = datetime.fromtimestamp(scene.death, UTC)
    return f"--since {day - timedelta(days=1):%Y-%m-%d} --until {day + timedelta(days=2):%Y-%m-%d}"


def candidates(scene: Scene, judgement: Judgement) -> Iterator[Candidate]:
    """Causes that are possible, and the command that would settle each."""
    ending = judgement.ending
    unit = scene.subject.unit or "UNIT"
    kernel = f"sudo journalctl -k {_window(scene)} | grep -nE 'oom-kill:|Killed process'"
    stopping = bool(ending.stops or ending.asked)
    killed = 9 in (ending.signal, ending.child_signal)
    oom = bool(scene.events("oom-record")) or ending.result == "oom-kill"
    if oom:
        yield Candidate(
            "cgroup-oom",
            "the unit or a slice above it has a memory limit",
            f"systemctl show {unit} -p MemoryMax -p MemoryPeak",
        )
        yield Candidate("host-ram-oom-kernel", "the whole host ran out", kernel)
        return
    if stopping:
        yield Candidate(
            "stop-timeout-sigkill",
            "a stop was under way: the supervisor kills what does not end in time",
            f"journalctl -u {unit} | grep -n 'timed out. Killing'",
        )
    if killed or not ending.known:
        if not stopping:
            yield Candidate(
                "user-or-supervisor-sigkill",
                "somebody or something sent SIGKILL",
                "sudo ausearch -sc kill -i; journalctl _COMM=sudo",
            )
        if not scene.kernel_read:
            yield Candidate("host-ram-oom-kernel", "the kernel log was not read", kernel)
            yield Candidate("cgroup-oom", "a memory limit of the unit, slice or container", kernel)
    elif not stopping:
        yield Candidate(
            "python-exception-startup",
            "a process that exits by itself usually says why on stderr",
            f"journalctl -u {unit} -n 200",
        )
        yield Candidate("config-invalid", "a refused setting ends a server within seconds", f"systemctl cat {unit}")
