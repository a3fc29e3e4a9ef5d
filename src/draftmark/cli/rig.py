"""What a run needs of a service beside its engine: how it is started, stopped, reached and looked after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftmark.model import Foreign
from draftmark.ports import Clock, Engine, HostLoad, PostMortem, Supervisor
from draftmark.tune.closing import Ends
from draftmark.tune.drain import Drain
from draftmark.tune.foreign import Watch
from draftmark.tune.startup import Starter, as_it_stands
from draftmark.tune.trial import Load

OnWait = Callable[[str, float | None], None]
"""Told what is waited for, and for how many seconds at most."""
_OWN_REQUESTS_S = 5.0  # for what we have just cancelled ourselves, where others' requests are not waited for


def looks_away(_what: str, _limit_s: float | None) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """One service, ready for a run.

    Attributes:
        foreign: What to do about others' requests; None where there can be none, the server being our own.
        patience_s: How long requests are awaited.
        port_holder: Who listens at a URL of the server's host; None when nobody does.
        reach: From a URL on the server's host to the one by which it is reached from here.
        look: Commands by which people look after the service.
        load: Sends the requests from elsewhere than here; None from here.
        kept: Where what is kept lies, and how to undo it, a line each; none where nothing is.
    """

    engine: Engine
    supervisor: Supervisor
    port_holder: Callable[[str], str | None]
    post_mortem: PostMortem | None
    host: HostLoad | None
    foreign: Foreign | None = None
    patience_s: float = _OWN_REQUESTS_S
    reach: Callable[[str], str] = as_it_stands
    look: tuple[str, ...] = ()
    load: Load | None = None
    kept: Callable[[], Sequence[str]] = tuple

    def drain(self, clock: Clock, on_wait: OnWait) -> Drain:
        """How it is stopped."""
        foreign = self.foreign or Foreign.IGNORE
        return Drain(
            supervisor=self.supervisor,
            clock=clock,
            timeout_s=min(self.patience_s, _OWN_REQUESTS_S) if foreign is Foreign.IGNORE else self.patience_s,
            foreign=foreign,
            on_wait=on_wait,
        )

    def watch(self, clock: Clock) -> Watch | None:
        """Who looks for others' requests."""
        return None if self.foreign is None else Watch(clock=clock, policy=self.foreign, patience_s=self.patience_s)

    def starter(self, clock: Clock, timeout_s: float) -> Starter:
        """How it is started."""
        return Starter(
            engine=self.engine,
            supervisor=self.supervisor,
            clock=clock,
            port_holder=self.port_holder,
            timeout_s=timeout_s,
            reach=self.reach,
        )

    def ends(self, clock: Clock, timeout_s: float, on_wait: OnWait) -> Ends:
        """What happens to it before the first trial and after the last."""
        return Ends(
            engine=self.engine,
            supervisor=self.supervisor,
            drain=self.drain(clock, on_wait),
            clock=clock,
            starter=self.starter(clock, timeout_s),
            watch=self.watch(clock),
            reach=self.reach,
            ready_s=timeout_s,
            on_wait=on_wait,
            look=self.look,
        )
