"""Requests that are not ours: seen at the engine while we ask nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmark.model import Foreign, RequestRecord
from draftmark.ports import Clock, EngineClient
from draftmark.tune.drain import busy

_LOOK_S = 0.05
_LINGER_S = 0.5  # a server may count our own last request as running until its loop comes round


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Looks for others' requests.

    Attributes:
        policy: What is to be done about them.
        look_s: How long a look takes. Requests shorter than that and rarer can go unseen here; those that fall into
            a measurement are seen by the server's counters.
        patience_s: How long their end is awaited, where the policy is to wait.
    """

    clock: Clock
    policy: Foreign = Foreign.ABORT
    look_s: float = 1.0
    patience_s: float = 600.0

    def seen(self, client: EngineClient) -> str | None:
        """In words, what others do now; None when nothing is seen."""
        until = self.clock.monotonic() + self.look_s
        before = client.counters().output_tokens
        most = 0
        while True:
            most = max(most, busy(client.activity()))
            if most or self.clock.monotonic() >= until:
                break
            self.clock.sleep(_LOOK_S)
        if most:
            return _in_flight(most)
        after = client.counters().output_tokens
        if before is not None and after is not None and after > before:
            return f"the server put out {after - before} tokens in {self.look_s:.0f} s, none of them for us"
        return None

    def settled(self, client: EngineClient) -> str | None:
        """As `seen`, after waiting for quiet where that is the policy; None where others are to be ignored."""
        if self.policy is Foreign.IGNORE:
            return None
        until = self.clock.monotonic() + (self.patience_s if self.policy is Foreign.WAIT else 0.0)
        while (reason := self.seen(client)) is not None and self.clock.monotonic() < until:
            self.clock.sleep(_LOOK_S)
        return reason


def requests_of_others(client: EngineClient, ours: Sequence[RequestRecord], clock: Clock) -> str | None:
    """In words, what is in flight when a measurement has ended; None when nothing is.

    A server counts the tokens of a request when it ends, so that its counters do not know of these yet. Where a
    request of ours failed it may be inside still, and nothing is told.
    """
    if any(record.error is not None for record in ours):
        return None
    until = clock.monotonic() + _LINGER_S
    while (inside := busy(client.activity())) and clock.monotonic() < until:
        clock.sleep(_LOOK_S)
    return _in_flight(inside) if inside else None


def _in_flight(number: int) -> str:
    return f"{number} request{'s' if number > 1 else ''} in flight that {'are' if number > 1 else 'is'} not ours"
