"""What a server is: its command line, its memory, its HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from draftmark.model import (
    Activity,
    Arm,
    Counters,
    DrainFacts,
    Evidence,
    Fit,
    FitFigures,
    Gpu,
    Health,
    KnobSpec,
    Refusal,
    ServerLimits,
    SpeculationState,
)


class EngineClient(Protocol):
    """A running server, spoken to over HTTP in its engine's own words. Blocking calls, short timeouts."""

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:8080`."""
        ...

    def health(self) -> Health:
        """Never raises: what cannot be reached is `UNREACHABLE`."""
        ...

    def generate_one(self) -> None:
        """One token, to prove that it serves.

        Raises:
            StartError: It did not answer with a token.
        """
        ...

    def speculation(self) -> SpeculationState:
        """Whether it really speculates, by its own word."""
        ...

    def limits(self) -> ServerLimits:
        """How much it takes at once, by its own word."""
        ...

    def counters(self) -> Counters:
        """Cumulative counters now; fields are None where the engine does not expose them."""
        ...

    def activity(self) -> Activity:
        """Requests running and queued now."""
        ...

    def fresh(self) -> None:
        """Forget cached prompts, as far as the engine can: no measurement is to profit from the one before."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FitScene:
    """What an engine may look at to tell what fits.

    Attributes:
        read: The beginning of a file of the service's host; OSError where it cannot be read.
        gpus: Asks for those that the service would use; empty when they are not known.
        log: Lines of the log of a start of this service, for calibration; `log_name`: as people call it.
        version: Of the engine, where the user or the host tells it.
        model_dir: Where `config.json` is, if elsewhere than the command line says.
        environment: Variables set for the service.
    """

    read: Callable[[str], bytes]
    gpus: Callable[[], tuple[Gpu, ...]] = tuple
    log: Iterable[str] | None = None
    log_name: str | None = None
    version: str | None = None
    model_dir: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """What an engine's folder offers: its flags, its log, its HTTP surface. Pure but for `client`."""

    @property
    def name(self) -> str:
        """`llamacpp`, `sglang`, `vllm`."""
        ...

    def recognises(self, command: Sequence[str]) -> bool:
        """Whether this command line starts this engine."""
        ...

    def base_url(self, command: Sequence[str]) -> str:
        """Where that command line will listen."""
        ...

    def depth(self, command: Sequence[str]) -> int:
        """Depth that this command line asks for; 0 when speculation is off."""
        ...

    def arm(self, command: Sequence[str]) -> Arm:
        """The arm that a command line is: its depth, and what else of the engine's flags changes how it drafts."""
        ...

    def adaptive(self, command: Sequence[str]) -> Arm:
        """The arm in which the engine itself varies the depth while it serves.

        Whether its version has that is for `refuse`.

        Raises:
            UsageError: This engine never does so.
        """
        ...

    def knobs(self, command: Sequence[str]) -> tuple[KnobSpec, ...]:
        """Flags beside the depth that may be searched, in this version, with what the command line sets of them."""
        ...

    def with_arm(self, command: Sequence[str], arm: Arm) -> tuple[str, ...]:
        """The command line with the arm's flags added, replaced or removed, and nothing else changed.

        Raises:
            UsageError: The command line has no speculation method, and none can be inferred.
        """
        ...

    def refuse(self, command: Sequence[str], arm: Arm) -> Refusal | None:
        """Why this arm need not be started, if that is known before a start."""
        ...

    def check(self, command: Sequence[str]) -> None:
        """Look at files that the command line names, before anything is started.

        Raises:
            BadInputError: A model file is missing or is not what it should be.
        """
        ...

    def fit(self, command: Sequence[str], arms: Sequence[Arm], scene: FitScene) -> Fit | None:
        """What each arm leaves of the memory, before anything is started; None where the engine cannot tell.

        An empty command line takes the flags from the scene's log.

        Raises:
            UsageError: Something is missing that would tell.
            BadInputError: The model's config or the log cannot be used.
        """
        ...

    def fit_figures(self, log: Sequence[str]) -> FitFigures | None:
        """What a server that started has, by its own log; None where that does not tell."""
        ...

    def decisive(self, log: Sequence[str], file: str) -> Evidence | None:
        """The line of a failed start's log that says why, if any does."""
        ...

    def summary(self, command: Sequence[str]) -> dict[str, str]:
        """Facts for `inspect`, in the engine's own terms: model, context, slots, method, …."""
        ...

    def speculation_lost(self, log: Sequence[str], file: str) -> Evidence | None:
        """The line by which a server says that it goes on without the speculation it was asked for."""
        ...

    def cpu_bound(self, command: Sequence[str]) -> bool | None:
        """Whether generation runs on this host's CPUs, so that a neighbour's work falsifies the figures.

        None when the command line leaves it to what the host has.
        """
        ...

    def gpus(self, command: Sequence[str]) -> int | None:
        """How many it takes of one computer; None for as many as there are, none included."""
        ...

    def with_port(self, command: Sequence[str], port: int) -> tuple[str, ...]:
        """The command line listening on another port, and nothing else changed."""
        ...

    def headers(self, command: Sequence[str]) -> dict[str, str]:
        """HTTP headers that the server wants, such as an API key given on the command line."""
        ...

    def hazards(self, command: Sequence[str]) -> list[dict[str, str]]:
        """What in the command line would spoil a tuning: `what`, `evidence`, `next_step` of each."""
        ...

    def drain(self, command: Sequence[str]) -> DrainFacts:
        """What the server does when it is asked to end."""
        ...

    def request_extra(self) -> dict[str, object]:
        """Fields added to every measured request's body, such as a switch that turns the prompt cache off."""
        ...

    def client(self, base_url: str, headers: Mapping[str, str]) -> EngineClient:
        """A client for a server at `base_url`."""
        ...
