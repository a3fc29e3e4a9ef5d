"""The seams to the world. Every side effect is behind one of these; fakes are in `draftmark.testing`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from draftmark.errors import HostError
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
    Identity,
    Intervention,
    KnobSpec,
    Refusal,
    ServerLimits,
    SpeculationState,
    StopReport,
)


class Clock(Protocol):
    """Time, so that a test can own it."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        ...

    def now_iso(self) -> str:
        """Wall clock, ISO 8601, UTC, milliseconds: `2026-11-29T17:50:27.123Z`."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


@dataclass(frozen=True, slots=True)
class CpuSample:
    """CPU seconds since boot, and of one process group.

    Attributes:
        busy_s: All CPUs, everything but idle and iowait; steal included.
        group_s: The server's processes, live and reaped.
        own_s: This process and its reaped children, without what was the server's.
        cpus: Number of CPUs online.
    """

    busy_s: float
    group_s: float
    own_s: float
    cpus: int


@dataclass(frozen=True, slots=True)
class ForeignLoad:
    """CPU that others use while nothing of ours runs.

    Attributes:
        cores: CPU cores in use, steal included.
        busiest: The process that used most, in words; None when none stands out.
    """

    cores: float
    busiest: str | None


class HostLoad(Protocol):
    """How busy the server's host is by itself."""

    def foreign(self, seconds: float) -> ForeignLoad | None:
        """Look for so many seconds; None where it cannot be told."""
        ...


class Supervisor(Protocol):
    """Starts and stops one service, and in the end leaves it as it was found, whatever kills us meanwhile."""

    @property
    def original(self) -> tuple[str, ...]:
        """The service's own command line, as found."""
        ...

    @property
    def altered(self) -> tuple[str, ...]:
        """What somebody else was found to have changed of the service's configuration meanwhile, in words.

        Looked for before each start, and when the service is put back.
        """
        ...

    def heed(self) -> Intervention | None:
        """See whether somebody else has stopped or started the service since we last did; None when nobody has.

        A service that somebody else has stopped stays so: `restore` leaves it down from then on. That is told again
        each time.

        Raises:
            FailedError: The hold on it is lost.
            HostError: Its host does not answer.
        """
        ...

    def start(self, command: Sequence[str], log: Path) -> Identity:
        """Start `command`, its stdout and stderr appended to `log`.

        Raises:
            FailedError: Somebody else has changed its configuration: what was measured is another service.
            StartError: The program cannot be executed.
            StorageError: The log cannot be written.
            RefusedError: An instance is running already.
        """
        ...

    def identity(self) -> Identity | None:
        """Who is running now; None when nothing is."""
        ...

    def exit_code(self) -> int | None:
        """Exit status of the last main process, negative for a signal; None while it runs or if unknown."""
        ...

    def gather_log(self) -> None:
        """Bring the log that `start` was given up to date."""
        ...

    def measuring(self) -> AbstractContextManager[None]:
        """While inside, whatever would stop, change or restart the service raises MeasuringError."""
        ...

    def check(self) -> None:
        """See that the service is still ours to measure.

        Raises:
            HostError: Its host did not answer lately.
        """
        ...

    def look(self) -> None:
        """Note who is connected to the service, before its engine is asked whether it is idle."""
        ...

    def stop(self, *, hurry: bool = False, force: bool = False) -> StopReport:
        """Ask it to end, and see that every process of the service is gone. Idempotent.

        Args:
            hurry: The user wants to leave: give it no more than a few seconds in all, where that is ours to say.
            force: Also when requests came in since the last `look`.

        Raises:
            BusyError: Requests came in since the last `look`; it goes on serving. Not every supervisor can tell.
            MeasuringError: A measurement runs.
            UnrestoredError: A process does not end even at SIGKILL.
        """
        ...

    def keep(self, command: Sequence[str]) -> None:
        """What runs now, started with `command`, becomes the service's own configuration.

        Raises:
            RefusedError: This kind of service has no configuration that could be changed.
            StorageError: It cannot be written; nothing is changed.
        """
        ...

    def restore(self, *, force: bool = False) -> bool:
        """Put the service back as it was found; whether it should now serve again. Idempotent.

        Args:
            force: Also when requests came in since the last `look`.

        Raises:
            BusyError: As for `stop`.
            MeasuringError: A measurement runs.
            UnrestoredError: It could not; the commands that do are in it.
        """
        ...

    def await_host(self, error: HostError) -> None:
        """The service's host could not be reached: wait until it can be again.

        Raises:
            FailedError: It can be, and has put the service back by itself.
            UnrestoredError: It cannot be for longer than it leaves a service alone.
            HostError: `error`, where nothing is to be waited for.
        """
        ...

    def commands(self) -> list[tuple[str, ...]]:
        """Command lines of the service's processes as the kernel has them; empty where they cannot be read."""
        ...

    def cpu(self) -> CpuSample | None:
        """CPU accounting for telling a neighbour's work from the server's; None where it cannot be read."""
        ...


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A server that did not become ready, or died, as its trial saw it. Nothing has been stopped by us yet.

    Attributes:
        log: Its stdout and stderr.
        exit_code: Of its main process, negative for a signal; None while it runs or if unknown.
        alive: Its main process runs: it did not become ready in time, but nothing died.
        because: What was seen from outside, without the log: `not ready after 600 s`.
        refusal: Why the system would not run the program at all; None when it ran.
    """

    log: Path
    exit_code: int | None
    alive: bool
    because: str
    refusal: str | None = None


class PostMortem(Protocol):
    """Says why a server failed, from what is left of it."""

    def watch(self) -> None:
        """A server is about to start: what the host's logs say from now on may be about it."""
        ...

    def examine(self, failure: Failure) -> dict[str, object]:
        """The `draftmark.why/1` document, as plain values. Secrets that only the caller knows are still in it.

        It may fail with any exception, and a run goes on without it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended.

    Attributes:
        status: Exit status, negative for a signal; None when it never ran (`missing`) or had to be left behind.
        stdout: As far as it was kept; empty after a stream, which has handed it out already.
        stderr: The beginning, made printable.
        cut: The output was longer than the limit, or nobody wanted the rest: the command was killed.
        timed_out: The time was up: the command was killed.
        missing: There is no such program, or it may not be executed.
    """

    status: int | None
    stdout: bytes = b""
    stderr: str = ""
    cut: bool = False
    timed_out: bool = False
    missing: bool = False

    @property
    def ok(self) -> bool:
        """It ran to its end and says that all went well."""
        return self.status == 0 and not self.timed_out


class Stream(Protocol):
    """The output of a command that runs: iterate over it, then close it, also half-way."""

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of stdout as they come; they do not end where lines do."""
        ...

    def close(self) -> Completed:
        """Kill the command if it still runs, and say how it ended. Idempotent."""
        ...


class Host(Protocol):
    """A computer whose services are looked at or changed. Safe to use from several threads.

    Commands run without a shell, a terminal, a pager or a locale.
    """

    @property
    def name(self) -> str:
        """Host name, for people."""
        ...

    @property
    def is_root(self) -> bool:
        """Whether commands run as root there."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - the name that subprocess gave it
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        """Run a command to its end, `input` on its stdin, and keep its output.

        Whatever goes wrong with it is in the answer.

        Raises:
            HostError: The host itself cannot be reached any more.
        """
        ...

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> Stream:
        """Start a command whose output may be larger than memory."""
        ...

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """The beginning of a file.

        Raises:
            OSError: Not there, not readable, not a file.
        """
        ...

    def reach(self, address: str, port: int) -> tuple[str, int]:
        """Where, from here, one reaches what listens at this address and port of that host.

        Raises:
            HostError: The host itself cannot be reached any more.
        """
        ...
