"""Computers of a cluster, and what comes from them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One computer of a cluster, as the cluster has it.

    Attributes:
        id: The cluster's own name for it.
        name: For people and records: its host name, with a part of `id` where several share one.
        address: By which it is reached inside the cluster.
        cpus: That the cluster may use.
        gpus: Likewise.
        index: Among those that share a computer, from 0: their servers cannot share a port.
        shared: Several share its computer.
    """

    id: str
    name: str
    address: str
    cpus: float
    gpus: float
    index: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """What came from a node that runs something.

    Attributes:
        node: Its name.
        said: A line of what it runs.
        over: That ended; its files are here.
        lost: The node is gone, or does not answer any more: why, in words.
        evidence: Lines that show it.
    """

    node: str
    said: bytes | None = None
    over: bool = False
    lost: str | None = None
    evidence: tuple[str, ...] = field(default=())
