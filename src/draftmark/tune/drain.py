"""How a service is stopped without cutting a request: it is idle, nothing comes in meanwhile, it is asked to end.

The order matters: who is connected is noted, then the engine is asked, then the supervisor compares and stops. What
arrives in between shows as a difference, and the supervisor says BusyError instead of stopping.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from draftmark.errors import BusyError
from draftmark.model import Activity, Foreign, Health, StopReport
from draftmark.ports import Clock, EngineClient, Supervisor

_LOOK_S = 0.1
_HURRY_S = 5.0
_Ended = TypeVar("_Ended")


def _silent(_what: str, _limit_s: float) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Stops a service when it is idle.

    Attributes:
        timeout_s: Longest wait for requests to finish.
        foreign: What to do when the time is up and requests are in flight, which can then not be ours.
        on_wait: Told what is waited for, and for how long at most.
    """

    supervisor: Supervisor
    clock: Clock
    timeout_s: float = 60.0
    foreign: Foreign = Foreign.ABORT
    on_wait: Callable[[str, float], None] = _silent

    def stop(self, client: EngineClient | None, *, hurry: bool = False) -> StopReport:
        """Wait for idle, then stop.

        Args:
            client: Of the server that runs; None when none became ready, so that it has no requests.
            hurry: The user wants to leave.

        Raises:
            BusyError: Others keep using it, and they are not to be ignored. It still runs.
        """
        began = self.clock.monotonic()
        limit = min(self.timeout_s, _HURRY_S) if hurry else self.timeout_s

        def end(force: bool, waited_s: float, in_flight: int | None) -> StopReport:
            report = self.supervisor.stop(hurry=hurry, force=force)
            return dataclasses.replace(report, waited_s=round(waited_s, 3), in_flight=in_flight)

        return self._when_idle(client, began + limit, began, end)

    def restore(self, client: EngineClient | None, *, hurry: bool = False) -> bool:
        """Wait for idle, then put the service back; whether it should now serve again.

        A service is not left changed because others use it: when the time is up it is restarted all the same, and
        its own drain looks after their requests.
        """
        began = self.clock.monotonic()
        limit = min(self.timeout_s, _HURRY_S) if hurry else self.timeout_s
        try:
            return self._when_idle(
                client, began + limit, began, lambda force, *_: self.supervisor.restore(force=force)
            )
        except BusyError:
            return self.supervisor.restore(force=True)

    def _when_idle(
        self,
        client: EngineClient | None,
        deadline: float,
        began: float,
        end: Callable[[bool, float, int | None], _Ended],
    ) -> _Ended:
        while client is not None:
            self.supervisor.look()
            inside = client.activity()
            reason = None
            if not busy(inside):
                try:
                    return end(False, self.clock.monotonic() - began, inside.running)
                except BusyError as error:
                    reason = error
            left = deadline - self.clock.monotonic()
            if left <= 0:
                if self.foreign is Foreign.IGNORE or client.health() is Health.UNREACHABLE:
                    break
                raise reason or BusyError(
                    "others use the service: it does not become idle",
                    evidence=(f"{busy(inside)} requests in flight after {self.clock.monotonic() - began:.0f} s",),
                    next_step="try again when they are done, or --foreign wait, or --foreign ignore",
                )
            self.on_wait(f"waiting for {busy(inside) or 'new'} requests to finish", left)
            self.clock.sleep(_LOOK_S)
        in_flight = client.activity().running if client is not None else None
        return end(True, self.clock.monotonic() - began, in_flight)


def busy(activity: Activity) -> int:
    """Requests inside a server, as far as it says."""
    return (activity.running or 0) + (activity.queued or 0)
