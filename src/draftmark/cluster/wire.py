"""What controller and bridge say to each other: JSON, a line each. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from draftmark.model import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """To the bridge.

    Attributes:
        do: `look`, `begin`, `release`, `end`.
        node: The node's id.
        question: What the Draftmark there is asked.
        gpus: To be reserved there; of the first command for a node.
        cpus: Likewise.
        into: Where the trial's files are to be.
    """

    do: str
    node: str = ""
    question: bytes = b""
    gpus: float = 0.0
    cpus: float = 0.0
    into: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """From the bridge.

    Attributes:
        nodes: Once, when it is connected.
        failed: Once, when it cannot be; the kind of error and its words.
        node: Which one the rest is about.
        seen: Exit status, stdout and stderr of a look.
        said: A line of a trial.
        over: A trial is over.
        lost: Why a node does no more.
        evidence: Lines that show it.
        ended: All is ended, nothing is left on any node.
    """

    nodes: tuple[Node, ...] | None = None
    failed: tuple[str, str] | None = None
    node: str = ""
    seen: tuple[int, bytes, bytes] | None = None
    said: bytes | None = None
    over: bool = False
    lost: str | None = None
    evidence: tuple[str, ...] = field(default=())
    ended: bool = False


def line(message: Command | Report) -> bytes:
    """As it is sent."""
    return msgspec.json.encode(message) + b"\n"
