"""The GPU itself: what its driver reports, and what of the server's own failures that explains."""

from __future__ import annotations

from collections.abc import Iterator

from draftmark.postmortem.claims import Claim, unique
from draftmark.postmortem.ending import Ending
from draftmark.postmortem.model import Confidence
from draftmark.postmortem.scene import Scene

HARDWARE_XIDS = frozenset(
    (32, 46, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 140, 143, *range(144, 151), 171, 172)
)
"""NVIDIA's catalogue: the card, its memory, its link or its firmware."""
SOFTWARE_XIDS = frozenset((13, 31, 43, 69))
"""A kernel's own fault as a rule."""
_MILD_XIDS = frozenset((63, 92))  # a row was remapped, corrected errors: not deadly by themselves

SYMPTOMS = frozenset(
    (
        "illegal-memory-access", "illegal-instruction-cuda", "nccl-timeout", "nccl-init-error",
        "engine-rpc-timeout", "watchdog-timeout", "peer-rank-died", "hang-not-crash", "segfault-or-abort",
        "python-exception-scheduler", "python-exception-startup", "gpu-hardware-xid", "device-side-assert",
        "liveness-probe-kill", "user-or-supervisor-sigkill", "stop-timeout-sigkill",
        "unsupported-model-feature",
    )
)  # fmt: skip
"""Failures that broken hardware can bring about."""


def claims(scene: Scene, _ending: Ending) -> Iterator[Claim]:
    """Hardware faults, and software faults that only the driver reports."""
    xids = [e for e in scene.events("xid") if e.values["xid"].isdigit()]
    hard = [e for e in xids if int(e.values["xid"]) in HARDWARE_XIDS]
    soft = [e for e in xids if int(e.values["xid"]) in SOFTWARE_XIDS]
    other = [f for f in scene.faults if f.cause == "gpu-hardware-xid" and not f.survived]
    grave = [e for e in hard if int(e.values["xid"]) not in _MILD_XIDS]
    if grave or other or (hard and _gpu_trouble(scene)):
        numbers = sorted({int(e.values["xid"]) for e in hard})
        said = ", ".join(f"Xid {number}" for number in numbers) or "a hardware fault"
        certain = bool(grave) or any(f.certain for f in other)
        yield Claim(
            cause="gpu-hardware-xid",
            confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
            summary=f"The GPU or its link failed ({said}); what the server logged is the consequence.",
            lines=unique([*(e.line for e in grave or hard), *(f.line for f in other), *(e.line for e in hard)]),
            phase=next((f.phase for f in scene.faults if f.phase), None),
        )
    elif soft and not any(f for f in scene.faults if not f.survived and not f.wrapper):
        numbers = sorted({int(e.values["xid"]) for e in soft})
        yield Claim(
            cause="illegal-memory-access",
            confidence=Confidence.LIKELY,
            summary=f"The GPU's driver reports Xid {', '.join(map(str, numbers))}: a kernel used a bad address. "
            "The server's log has no line of its own for it.",
            lines=unique(e.line for e in soft),
        )


def _gpu_trouble(scene: Scene) -> bool:
    return any(fault.cause in SYMPTOMS for fault in scene.faults)
