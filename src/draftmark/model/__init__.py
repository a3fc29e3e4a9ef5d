"""The nouns: what Draftmark talks about. Frozen, with their invariants; no I/O, only the standard library.

Units are in the names: `_s` seconds, `_ms` milliseconds, `_tok_s` tokens per second. An unknown figure is None,
never 0. Times named `at_s` are seconds on one monotonic clock counted from the start of the measurement.
"""

from draftmark.model.arms import Arm, Refusal
from draftmark.model.fit import Fit, FitArm, FitFigures, Gpu
from draftmark.model.knobs import Knob, KnobKind, KnobSpec
from draftmark.model.load import Message, Prompt, RequestRecord, Workload
from draftmark.model.measurement import (
    Acceptance,
    Category,
    ClientHealth,
    Goodput,
    Interval,
    Measurement,
    Spread,
    Window,
)
from draftmark.model.nodes import Node, NodeEvent
from draftmark.model.server import (
    Activity,
    Counters,
    DrainFacts,
    Evidence,
    Foreign,
    Hand,
    Health,
    Identity,
    Intervention,
    ServerLimits,
    SpeculationState,
    StopOutcome,
    StopReport,
)
from draftmark.model.services import ServiceKind, ServiceRef
from draftmark.model.trial import Trial, TrialStatus

__all__ = [
    "Acceptance",
    "Activity",
    "Arm",
    "Category",
    "ClientHealth",
    "Counters",
    "DrainFacts",
    "Evidence",
    "Fit",
    "FitArm",
    "FitFigures",
    "Foreign",
    "Goodput",
    "Gpu",
    "Hand",
    "Health",
    "Identity",
    "Interval",
    "Intervention",
    "Knob",
    "KnobKind",
    "KnobSpec",
    "Measurement",
    "Message",
    "Node",
    "NodeEvent",
    "Prompt",
    "Refusal",
    "RequestRecord",
    "ServerLimits",
    "ServiceKind",
    "ServiceRef",
    "SpeculationState",
    "Spread",
    "StopOutcome",
    "StopReport",
    "Trial",
    "TrialStatus",
    "Window",
    "Workload",
]
