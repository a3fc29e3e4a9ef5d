"""The seams to the world. Every side effect is behind one of these; fakes are in `draftmark.testing`."""

from draftmark.ports.clock import Clock
from draftmark.ports.engine import Engine, EngineClient, FitScene
from draftmark.ports.host import Completed, Host, Stream
from draftmark.ports.postmortem import Failure, PostMortem
from draftmark.ports.service import CpuSample, ForeignLoad, HostLoad, Supervisor

__all__ = [
    "Clock",
    "Completed",
    "CpuSample",
    "Engine",
    "EngineClient",
    "Failure",
    "FitScene",
    "ForeignLoad",
    "Host",
    "HostLoad",
    "PostMortem",
    "Stream",
    "Supervisor",
]
