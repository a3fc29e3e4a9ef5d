"""From a command line to a server that is ready: it listens, it is ours, it has generated a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmark.errors import RefusedError, StartError
from draftmark.model import Evidence, Hand, Health, Identity, Intervention
from draftmark.ports import Clock, Engine, EngineClient, Supervisor

_POLL_S = 0.05
_LOG_BYTES = 4 << 20


def as_it_stands(url: str) -> str:
    """The server is on this computer."""
    return url


class NotReadyError(StartError):
    """The server was started and did not become ready.

    Attributes:
        seen: What was seen from outside, without the log.
        line: The line of its log that says why, if one does.
    """

    def __init__(self, what: str, line: Evidence | None, log: Path, lines: Sequence[str]) -> None:
        last = next((text.strip() for text in reversed(lines) if text.strip()), "")[:300]
        shown = (
            (what,) if line is not None else (f"the last line of its log: {last}" if last else "its log is empty",)
        )
        super().__init__(
            what if line is None else f"the server did not start: {line.text}",
            evidence=shown,
            next_step=f"see {log}",
        )
        self.seen = what
        self.because = line.text if line is not None else f"{what}; {shown[0]}"
        self.line = line


class InterventionError(RefusedError):
    """Somebody else has stopped or started the service, and that stands.

    Attributes:
        started: By then we had started it ourselves; else what runs, if anything does, is not ours.
    """

    def __init__(self, intervention: Intervention, *, started: bool = False) -> None:
        super().__init__(
            f"{intervention.what}: the run is ended, "
            + ("and it is left so" if intervention.hand is Hand.STOPPED else "and the service put back"),
            evidence=(intervention.evidence,),
            next_step="ask who did; tune --resume RUN goes on with the trials that are left",
        )
        self.intervention = intervention
        self.started = started


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A server that answers.

    Attributes:
        start_s: From the start to the first token.
    """

    client: EngineClient
    identity: Identity
    start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Starts a service's command lines and waits until they serve.

    Attributes:
        port_holder: Says who listens at a base URL; None when nobody does.
        timeout_s: Longest wait for ready.
        reach: From the URL on the server's host to the one by which it is reached from here.
    """

    engine: Engine
    supervisor: Supervisor
    clock: Clock
    port_holder: Callable[[str], str | None]
    timeout_s: float
    reach: Callable[[str], str] = as_it_stands

    def start(self, command: Sequence[str], log: Path) -> Ready:
        """Start and wait.

        Raises:
            RefusedError: Something else listens where the server should.
            InterventionError: Somebody else has stopped or started the service meanwhile.
            StartError: The program cannot be run.
            NotReadyError: It was started and ended, hung, or does not generate.
        """
        self._heed(started=False)
        base_url = self.engine.base_url(command)
        refuse_taken(base_url, self.port_holder(base_url))
        began = self.clock.monotonic()
        identity = self.supervisor.start(command, log)
        client = self.engine.client(self.reach(base_url), self.engine.headers(command))
        while client.health() is not Health.READY:
            if self.supervisor.identity() is None:
                code = self.supervisor.exit_code()
                raise self._not_ready(log, f"the server ended with exit status {code} before it was ready")
            waited = self.clock.monotonic() - began
            if waited > self.timeout_s:
                raise self._not_ready(log, f"not ready after {waited:.0f} s")
            self.clock.sleep(_POLL_S)
        if self.supervisor.identity() != identity:
            # Health came from whoever holds the port: ours is dead or was replaced.
            raise self._not_ready(log, "another process answers on the server's port")
        try:
            client.generate_one()
        except StartError as error:
            raise self._not_ready(log, str(error)) from None
        self.supervisor.gather_log()
        return Ready(client=client, identity=identity, start_s=self.clock.monotonic() - began)

    def _heed(self, *, started: bool) -> None:
        if (intervention := self.supervisor.heed()) is not None:
            raise InterventionError(intervention, started=started)

    def _not_ready(self, log: Path, what: str) -> NotReadyError:
        self._heed(started=True)
        self.supervisor.gather_log()
        lines = log_lines(log)
        return NotReadyError(what, self.engine.decisive(lines, log.name), log, lines)


def refuse_taken(base_url: str, holder: str | None) -> None:
    """Nothing may listen where a server is to be started.

    Raises:
        RefusedError: `holder` does.
    """
    if holder is not None:
        raise RefusedError(
            f"something else listens on {base_url}",
            evidence=(holder,),
            next_step="stop it, or give the server another port",
        )


def log_lines(log: Path) -> list[str]:
    """A log's lines; of a huge one the first and the last part, since the reason stands in either."""
    try:
        with log.open("rb") as file:
            data = file.read(_LOG_BYTES)
            if len(data) == _LOG_BYTES:
                file.seek(0, 2)
                file.seek(max(_LOG_BYTES, file.tell() - _LOG_BYTES))
                data += file.read(_LOG_BYTES)
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()
