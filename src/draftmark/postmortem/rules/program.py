"""The server's own failures: the first independent one, over all its logs; and who only noticed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftmark.postmortem.claims import Claim, certain_if, unique
from draftmark.postmortem.ending import Ending
from draftmark.postmortem.events import Event
from draftmark.postmortem.faults import Fault
from draftmark.postmortem.model import Confidence, Line, Phase
from draftmark.postmortem.phases import last_phase
from draftmark.postmortem.scene import Scene, Stream

_SUPERVISED = frozenset(
    (
        "stop-timeout-sigkill", "systemd-oomd", "earlyoom", "k8s-eviction", "liveness-probe-kill",
        "container-oomkilled", "pids-limit", "user-or-supervisor-sigterm", "cgroup-oom", "host-ram-oom-kernel",
        "gpu-hardware-xid", "ray-memory-monitor-kill",
    )
)  # fmt: skip
"""Causes that other rules claim."""

_SHM_SMALL = 256 << 20  # Docker's default is 64 MiB; less than this is too small for any NCCL or Ray


def claims(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """At most one claim for a failure of its own, one for messages about others' failures, and crashes."""
    yield from _sigbus(scene, ending)
    own = [fault for s in scene.servers for fault in s.faults if _counts(fault, s) and _fits(fault, scene, ending)]
    roots = [fault for fault in own if not fault.wrapper]
    wrappers = [fault for fault in own if fault.wrapper]
    if roots:
        yield _claim(scene, _first(roots), ending)
    if wrappers:
        fault = _first(wrappers)
        if not roots:
            yield _claim(scene, fault, ending)
    yield from _crash(scene, ending)
    yield from _start_limit(scene, ending)
    yield from _vanished_worker(scene, ending)


def _counts(fault: Fault, stream: Stream) -> bool:
    """Whether a fault can have ended the server."""
    if fault.cause in _SUPERVISED or fault.survived or fault.client:
        return False
    return not (fault.request and _only_requests(fault, stream))


def _fits(fault: Fault, scene: Scene, ending: Ending) -> bool:
    """Whether a crash that the kernel reports can be the server's: another process may have crashed instead."""
    if fault.sign is None or fault.sign.id != "kernel.segfault":
        return True
    ends = {ending.signal, ending.child_signal}
    near = [
        line.time for line in ending.lines if line.time is not None and line.clock == fault.line.clock == "wall"
    ]
    if near and fault.line.time is not None and min(abs(t - fault.line.time) for t in near) > _SAME_CRASH_S:
        return False
    if ends & _CRASHES.keys() or ending.child_status == 1:
        return True
    last = scene.death
    if last is not None and fault.line.clock == "wall" and fault.line.time is not None:
        near = [last]
    if near and abs(near[0] - (fault.line.time or 0.0)) > _SAME_CRASH_S:
        return False
    return not (ending.known or ending.running or scene.journal_read or scene.events("clean-exit", "down"))


_SAME_CRASH_S = 15.0  # a core dump of a large process takes its time


def _only_requests(fault: Fault, stream: Stream) -> bool:
    """A request's error ends nothing, unless it is of a kind that hits them all."""
    if fault.cause in ("fd-limit", "disk-full"):
        return False
    return not any(event.role in ("teardown", "child-exit", "fatal") for event in stream.events)


def _first(faults: Sequence[Fault]) -> Fault:
    """The first one: by the clock where all have one, else by place; a certain one before a guess close by."""
    streams = {fault.line.source for fault in faults}
    clocked = all(fault.line.time is not None and fault.line.clock == "wall" for fault in faults)
    if len(streams) > 1 and clocked:
        ordered = sorted(faults, key=lambda fault: (fault.line.time or 0.0, fault.order))
    else:
        ordered = list(faults)
    first = ordered[0]
    if not first.certain:
        # A guess gives way to a sure sign of the same burst, such as an abort to what it aborted for.
        near = [
            f
            for f in ordered[1:]
            if f.certain and f.order - first.order < _BURST_LINES and f.cause != "segfault-or-abort"
        ]
        if near:
            return near[0]
    return first


_BURST_LINES = 60
_QUOTED = 200  # characters of a message in the sentence


def _claim(scene: Scene, fault: Fault, ending: Ending) -> Claim:
    cause = scene.tables.causes.get(fault.cause)
    text = fault.line.text.strip()
    phase = fault.phase
    if phase is Phase.SHUTDOWN and not _asked_before(scene, fault):
        phase = Phase.SERVING
    elsewhere = None
    if fault.cause == "peer-rank-died":
        elsewhere = "the log of the rank or node that closed first"
    certain = fault.certain and not fault.wrapper
    proof = []
    if fault.cause == "segfault-or-abort" and {ending.signal, ending.child_signal} & _CRASHES.keys():
        certain, proof = True, [*ending.lines[:1], *ending.child_lines[:1]]
    lines = [fault.line, *proof, *fault.support, *_same(scene, fault)]
    title = cause.title if cause else fault.cause
    quoted = text if len(text) <= _QUOTED else text[:_QUOTED].rpartition(" ")[0] + " …"
    said = f"{title[0].upper()}{title[1:]}: {quoted}"
    died = None if fault.cause == "fd-limit" and not ending.known else True
    return Claim(
        cause=fault.cause,
        confidence=certain_if(certain),
        summary=said if said.endswith((".", "!", "…")) else said + ".",
        lines=unique(lines),
        phase=phase,
        fault=fault,
        root_elsewhere=elsewhere,
        asked_first=_asked_before(scene, fault),
        died=died,
    )


def _same(scene: Scene, fault: Fault) -> list[Line]:
    """Other lines that say the same, in the order of the logs, and the driver's."""
    others = [
        other
        for other in scene.faults
        if other is not fault and not (other.sign and other.sign.id == "kernel.segfault")
    ]
    same = [other.line for other in others if other.cause == fault.cause]
    if fault.cause in ("illegal-memory-access", "illegal-instruction-cuda", "device-side-assert"):
        same += [event.line for event in scene.events("xid")]
    return same


def _asked_before(scene: Scene, fault: Fault) -> bool:
    """Whether the server had been asked to stop before it failed, in its own log."""
    for stream in scene.servers:
        if fault in stream.faults:
            return any(event.role in ("stop", "drain") and event.order < fault.order for event in stream.events)
    return False


def _sigbus(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """A bus error: shared memory that is too small, or weights that cannot be mapped, or cannot be told."""
    said = scene.events("sigbus")
    attach = scene.events("shm-attach")
    tight = [c for c in scene.records.containers if c.shm_bytes is not None and c.shm_bytes < _SHM_SMALL]
    if attach and tight and "host" not in tight[0].ipc_mode:
        yield Claim(
            cause="shared-memory-too-small",
            confidence=Confidence.LIKELY,
            summary=f"NCCL cannot use /dev/shm: it holds {(tight[0].shm_bytes or 0) >> 20} MiB in this container.",
            lines=unique([attach[0].line, *(c.lines["shm_bytes"] for c in tight if "shm_bytes" in c.lines)]),
            phase=_phase(scene, attach),
        )
        return
    if not said and ending.signal != _SIGBUS:  # an exit status of 7 is systemd's NOTRUNNING
        return
    lines = [event.line for event in said] or ending.lines
    small = [c for c in scene.records.containers if c.shm_bytes is not None and c.shm_bytes < _SHM_SMALL]
    words = " ".join(line.text for stream in scene.servers for line in stream.lines[-400:])
    shared = any(
        needle in words for needle in ("dev/shm", "RayWorker", "plasma", "object store", "shm_open", "nccl-")
    )
    loading = any(n in words for n in ("weight_loader", "weight_utils", "safetensors", "load_weights", "mmap"))
    if (small and "host" not in small[0].ipc_mode) or shared:
        proof = [c.lines["shm_bytes"] for c in small if "shm_bytes" in c.lines]
        yield Claim(
            cause="shared-memory-too-small",
            confidence=certain_if(bool(small)),
            summary="SIGBUS on shared memory"
            + (f": /dev/shm holds {small[0].shm_bytes // 2**20} MiB." if small and small[0].shm_bytes else "."),
            lines=unique([*lines, *proof]),
            phase=_phase(scene, said),
        )
    elif loading:
        yield Claim(
            cause="sigbus-mmap-weights",
            confidence=Confidence.LIKELY,
            summary="SIGBUS while weights were read from a mapped file: a truncated file, a failing disk or "
            "network mount, or "
            "memory pressure.",
            lines=unique(lines),
            phase=_phase(scene, said) or Phase.STARTUP,
        )
    else:
        yield Claim(
            cause="segfault-or-abort",
            confidence=Confidence.LIKELY,
            summary="The process crashed on a mapped page that could not be delivered (SIGBUS).",
            lines=unique(lines),
            phase=_phase(scene, said),
        )


def _phase(scene: Scene, said: Sequence[Event]) -> Phase | None:
    for stream in scene.servers:
        for event in said:
            if event in stream.events:
                return stream.stage.phase(event.order)
    return None


_SIGBUS = 7
_CRASHES = {
    11: ("segfault-or-abort", "crashed on an invalid memory address (SIGSEGV)"),
    6: ("segfault-or-abort", "aborted itself (SIGABRT)"),
    4: ("cpu-illegal-instruction", "used an instruction that this CPU does not have (SIGILL)"),
    8: ("segfault-or-abort", "crashed on an arithmetic fault (SIGFPE)"),
    5: ("segfault-or-abort", "crashed on a trap (SIGTRAP)"),
}


def _crash(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """A crash by the records alone."""
    for signal, lines in ((ending.signal, ending.lines), (ending.child_signal, ending.child_lines)):
        if signal in _CRASHES and lines:
            if signal == 6 and (ending.result in ("watchdog", "timeout") or scene.signs("systemd.watchdog")):
                return  # systemd's own signal
            cause, did = _CRASHES[signal]
            dumps = [e.line for e in scene.signs("coredump")]
            yield Claim(
                cause=cause,
                # An abort is what something else ends in: what it was is not told. The other signals are the crash.
                confidence=certain_if(signal != 6),
                summary=f"A process of the server {did}; no line says why.",
                lines=unique([*lines, *dumps]),
                phase=last_phase(scene),
            )
            return


def _start_limit(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """Systemd gave up, and no line says what the first failure was: it exits at once, cleanly or not."""
    limits = scene.events("start-limit")
    named = any(not fault.survived and not fault.client for fault in scene.faults)
    if not limits or named or ending.signal is not None:
        return
    status = f"exits with status {ending.status}" if ending.status is not None else "ends"
    yield Claim(
        cause="start-limit-hit",
        confidence=certain_if(ending.status == 0),
        summary=f"It {status} soon after each start, without a word why, until systemd gave up restarting it.",
        lines=unique([*(event.line for event in limits[:2]), *ending.lines[:3]]),
        phase=Phase.STARTUP,
        root_elsewhere=None if ending.status == 0 else "the first failure, in the server's own output",
    )


def _vanished_worker(scene: Scene, ending: Ending) -> Iterator[Claim]:
    """VLLM's worker is gone without a word, with drafts of -1 in the dump: the mark of a family of MTP faults."""
    marks = scene.events("draft-minus-one")
    gone = scene.signs("vllm.worker-gone")
    if (
        marks
        and gone
        and ending.child_signal is None
        and not any(not f.wrapper for f in scene.faults if not f.survived)
    ):
        yield Claim(
            cause="illegal-memory-access",
            confidence=Confidence.LIKELY,
            summary="A worker vanished in mid-decode and the scheduler's dump shows draft tokens of -1, as a "
            "known family of GPU "
            "faults of MTP does. No line names the fault itself.",
            lines=unique([gone[0].line, marks[0].line]),
            phase=Phase.SERVING,
        )
