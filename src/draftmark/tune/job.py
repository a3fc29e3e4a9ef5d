"""What a node of a cluster is told to run, and what it says meanwhile: JSON, a line each. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from draftmark.model import Arm, Fit
from draftmark.run.records import Slot
from draftmark.tune.measuring import Axis, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The service, as the node puts it together by itself.

    Attributes:
        reference: `cmd:…` or `embedded:`, secrets included.
        engine: As `--engine` has it.
        method: As `--method` has it.
        port_step: Added to the port, where several nodes share a computer.
        cwd: Where relative paths mean something, if there is such a directory.
    """

    reference: str
    engine: str = "auto"
    method: str | None = None
    port_step: int = 0
    cwd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is asked of a node before a run.

    Attributes:
        arms: What may be started, for what fits.
        gpu: A card that the user names in the place of the node's own.
    """

    service: Service
    arms: tuple[Arm, ...] = ()
    gpu: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The answer.

    Attributes:
        draftmark: Its version there.
        engine_version: Of the engine, where something tells it.
        missing: What keeps the service from being started there, in words; None when nothing is seen.
        fit: What each arm leaves of that node's memory; None where nobody can tell.
        notes: Why not, in words.
        cpu_bound: It computes on the node's CPUs, so that others' work falsifies the figures.
        facts: Of the node, as in `run.json`.
    """

    draftmark: str
    engine_version: str | None = None
    missing: str | None = None
    fit: Fit | None = None
    notes: tuple[str, ...] = ()
    cpu_bound: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One trial.

    Attributes:
        node: Name of the node, for the record.
        api: Wire format of the load.
    """

    service: Service
    node: str
    slot: Slot
    axes: tuple[Axis, ...]
    limits: Limits
    api: str
    baseline_start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An error of the program itself, as `draftmark.errors` has them."""

    what: str
    evidence: tuple[str, ...] = ()
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One line of what a trial says; one of its parts is there.

    Attributes:
        phase: What is awaited now, and for how long at most.
        progress: Requests ended, of how many, tokens per second so far, errors.
        act: What was done to the service, with its detail.
        failed: No trial came of it.
        sight: Answer to a look.
    """

    phase: tuple[str, float | None] | None = None
    progress: tuple[int, int, float | None, int] | None = None
    act: tuple[str, dict[str, Any]] | None = None
    failed: Failed | None = None
    sight: Sight | None = None
