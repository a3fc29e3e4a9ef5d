"""The two ends of a run: what serves is stopped without cutting a request, and the service is put back or kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmark.errors import BusyError, HostError, RefusedError, StartError, UnrestoredError
from draftmark.model import Arm, Health, StopReport
from draftmark.ports import Clock, Engine, EngineClient, Supervisor
from draftmark.tune.drain import Drain
from draftmark.tune.foreign import Watch
from draftmark.tune.startup import Starter

_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What happens to the service before the first trial and after the last.

    Attributes:
        starter: Starts the arm that is to be kept.
        ready_s: How long the original may take to serve again.
        on_wait: Told what is waited for, and for how long at most.
        look: Commands for people, should the service not come back.
    """

    engine: Engine
    supervisor: Supervisor
    drain: Drain
    clock: Clock
    starter: Starter
    watch: Watch | None
    reach: Callable[[str], str]
    ready_s: float
    on_wait: Callable[[str, float | None], None]
    look: Sequence[str] = ()

    def _client(self) -> EngineClient:
        original = self.supervisor.original
        return self.engine.client(self.reach(self.engine.base_url(original)), self.engine.headers(original))

    def vacate(self) -> StopReport | None:
        """Stop what runs already, once it is idle; None when nothing does.

        Raises:
            RefusedError: Others use it, and the policy is not to disturb them. It goes on serving.
        """
        if self.supervisor.identity() is None:
            return None
        client = self._client()
        self._refuse_if_used(client)
        self.on_wait("stopping the service, once it is idle", self.drain.timeout_s)
        return self.drain.stop(client)

    def refuse_if_used(self) -> None:
        """Look before what runs is measured.

        Raises:
            RefusedError: Others use it, and the policy is not to disturb them.
        """
        self._refuse_if_used(self._client())

    def _refuse_if_used(self, client: EngineClient) -> None:
        if self.watch is not None:
            self.on_wait("looking for others' requests", self.watch.look_s)
            if (reason := self.watch.settled(client)) is not None:
                raise RefusedError(
                    "others use the service, and a run would disturb them",
                    evidence=(reason,),
                    next_step="come back when it is quiet, or --foreign wait, or --foreign ignore",
                )

    def put_back(self, *, hurry: bool, untouched: bool = False) -> bool:
        """The service as it was found; whether it serves again.

        Args:
            hurry: Somebody waits for the end.
            untouched: It was neither stopped nor started: all there is to do is to let go of it.

        Raises:
            UnrestoredError: It does not come back, or its host does not.
            FailedError: Its host has put it back by itself.
        """
        while True:
            try:
                return self._put_back(hurry=hurry, untouched=untouched)
            except HostError as error:
                self.supervisor.await_host(error)

    def _put_back(self, *, hurry: bool, untouched: bool) -> bool:
        self.on_wait("letting go of the service" if untouched else "putting the service back", None)
        running = self.supervisor.identity() is not None
        if not self.drain.restore(self._client() if running else None, hurry=hurry):
            return False
        client = self._client()
        began = self.clock.monotonic()
        while (health := client.health()) is not Health.READY:
            waited = self.clock.monotonic() - began
            if waited > self.ready_s:
                self._unrestored(f"it is {health.value} after {waited:.0f} s")
            if self.supervisor.identity() is None and waited > _POLL_S * 5:
                self._unrestored(f"it ended with exit status {self.supervisor.exit_code()}")
            self.on_wait("waiting for the service as it was", self.ready_s - waited)
            self.clock.sleep(_POLL_S)
        return True

    def _unrestored(self, seen: str) -> None:
        altered = self.supervisor.altered
        raise UnrestoredError(
            "somebody else has changed the service meanwhile, and so it does not serve"
            if altered
            else "the service is configured as it was, and does not serve",
            evidence=(seen, *altered),
            next_step="; ".join(self.look) or "see its log",
        )

    def keep(self, arm: Arm, log: Path) -> None:
        """Let an arm serve from now on.

        Raises:
            StartError: It did not start, though it did before: nothing is kept.
        """
        self.on_wait(f"starting {arm.label} to stay", self.starter.timeout_s)
        command = self.engine.with_arm(self.supervisor.original, arm)
        ready = self.starter.start(command, log)
        try:
            self.supervisor.keep(command)
        except BaseException:
            try:
                self.drain.stop(ready.client)
            except BusyError as error:
                raise StartError(f"{arm.label} serves, and could not be kept", evidence=(str(error),)) from error
            raise
