"""What the server was doing when the cause struck. Pure."""

from __future__ import annotations

from draftmark.postmortem.claims import Claim
from draftmark.postmortem.model import Phase
from draftmark.postmortem.scene import Scene

_AT_START = frozenset(
    (
        "config-invalid", "model-load-error", "missing-shared-library", "driver-cuda-mismatch",
        "mpi-init-error", "port-in-use", "model-load-timeout", "nccl-init-error", "python-exception-startup",
        "cuda-oom-weights-load", "cuda-oom-kv-pool-init", "cuda-oom-cuda-graph-capture",
        "gpu-memory-busy-at-start", "unsupported-model-feature", "sigbus-mmap-weights", "start-limit-hit",
    )
)  # fmt: skip
_SHORT = 8  # lines: fewer tell nothing of a phase
_AT_STOP = frozenset(("stop-timeout-sigkill", "healthy-exit"))
_STRUCK = frozenset(
    (
        "k8s-eviction",
        "earlyoom",
        "liveness-probe-kill",
        "user-or-supervisor-sigterm",
        "systemd-oomd",
    )
)
"""Causes that ask the server to stop: the phase is what it did until then."""


def phase_of(scene: Scene, claim: Claim) -> Phase | None:
    """The phase: by the cause where it has but one, else by how far the log had come."""
    if claim.cause in _AT_START:
        return Phase.STARTUP
    if claim.cause in _AT_STOP:
        return Phase.SHUTDOWN
    found = claim.phase
    if claim.cause in _STRUCK or found is None:
        found = last_phase(scene, before_stop=claim.cause in _STRUCK) or found
    if scene.engine == "ollama" and found in (Phase.STARTUP, None) and not scene.signs("ollama.runner-gone"):
        return Phase.SERVING  # the server itself was up; only a runner is started for each model
    if (
        found is None
        and claim.died
        and claim.cause != "unsettled"
        and any(len(s.lines) > _SHORT for s in scene.servers)
    ):
        return Phase.STARTUP  # a log without one line of service
    return found


def last_phase(scene: Scene, *, before_stop: bool = False) -> Phase | None:
    """What the server was doing at the end of its log."""
    for stream in scene.servers:
        if stream.events:
            phase = stream.stage.phase(stream.events[-1].order, before_stop=before_stop)
            if phase:
                return phase
    return None
