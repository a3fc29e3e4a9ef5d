"""What `plan`, `tune`, `bench` and `inspect` know of a service that can be started."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from draftmark.cli.leaving import told
from draftmark.cli.rig import OnWait, Rig, looks_away
from draftmark.cli.trial_postmortem import TrialPostMortem
from draftmark.model import ServiceKind, ServiceRef
from draftmark.ports import Clock, Engine, EngineClient
from draftmark.run.redact import Redactor
from draftmark.service.command import CommandSupervisor
from draftmark.service.host import listener_at
from draftmark.service.local import LocalHost
from draftmark.service.neighbours import LocalLoad
from draftmark.tune.trial import Load

_GRACE_S = 10.0


class Target(Protocol):
    """A service that can be started with other flags."""

    @property
    def shown(self) -> str:
        """The reference for records, secrets cut out."""
        ...

    @property
    def engine(self) -> Engine:
        """What runs in it."""
        ...

    @property
    def command(self) -> tuple[str, ...]:
        """The server's command line, as found."""
        ...

    @property
    def version(self) -> str | None:
        """Of the engine, where something tells it."""
        ...

    @property
    def embedded(self) -> bool:
        """Whether it is our own engine and model."""
        ...

    @property
    def local(self) -> bool:
        """Whether it is on this computer."""
        ...

    @property
    def may_run(self) -> bool:
        """Whether it is a live service, which runs already."""
        ...

    @property
    def load_from(self) -> str:
        """Where requests are sent from, in words."""
        ...

    @property
    def load(self) -> Load | None:
        """What sends them from elsewhere than here; None from here."""
        ...

    @property
    def redactor(self) -> Redactor:
        """Knows the secrets of the command line and of the variables set for it."""
        ...

    @property
    def lock(self) -> str | None:
        """What two runs on this computer must not share; None where the service itself is held."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know before a run begins."""
        ...

    def refuse_if_held(self) -> None:
        """See that what runs is the service's own.

        Raises:
            RefusedError: A Draftmark is at work on it.
        """
        ...

    def client(self) -> EngineClient:
        """A client for the server as it runs, or would run."""
        ...

    def shown_line(self, command: tuple[str, ...]) -> str:
        """A command line of it for people, secrets hidden."""
        ...

    def to_run(self, command: tuple[str, ...], options: str = "") -> str:
        """How people make it run with that command line.

        Args:
            command: Of an arm.
            options: Those by which it was found.
        """
        ...

    def change(self, command: tuple[str, ...]) -> dict[str, Any]:
        """What would be written to make it run with that command line; empty when nothing is."""
        ...

    def rig(self, clock: Clock, on_wait: OnWait = looks_away) -> AbstractContextManager[Rig]:
        """What a run needs of it; afterwards it is as it was."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """A command line that Draftmark starts and stops.

    Attributes:
        ref: As the user named it.
        env: Variables set for it.
    """

    ref: ServiceRef
    shown: str
    engine: Engine
    command: tuple[str, ...]
    env: dict[str, str]
    version: str | None
    local: bool = True
    may_run: bool = False
    load_from: str = "this computer"
    notes: tuple[str, ...] = ()
    load: Load | None = None

    @property
    def redactor(self) -> Redactor:
        """Knows the secrets of the command line and of the variables set for it."""
        return Redactor.of(self.command, self.env)

    @property
    def lock(self) -> str | None:
        """Where it listens."""
        return self.engine.base_url(self.command)

    def _line(self, command: tuple[str, ...]) -> str:
        return shlex.join([*(f"{name}={value}" for name, value in self.env.items()), *command])

    def refuse_if_held(self) -> None:
        """Nothing runs of it but what is started here."""

    def client(self) -> EngineClient:
        """A client for the server, once it runs."""
        return self.engine.client(self.engine.base_url(self.command), self.engine.headers(self.command))

    def shown_line(self, command: tuple[str, ...]) -> str:
        """With the variables it needs, ready for a shell or for `cmd:`, secrets hidden."""
        return self.redactor.text(self._line(self.redactor.command(command)))

    def to_run(self, command: tuple[str, ...], options: str = "") -> str:  # noqa: ARG002 - as every target
        """The same with its secrets: to be typed."""
        return self._line(command)

    def change(self, command: tuple[str, ...]) -> dict[str, Any]:  # noqa: ARG002 - as every target
        """Nothing is written anywhere."""
        return {}

    @contextmanager
    def rig(self, clock: Clock, on_wait: OnWait = looks_away) -> Iterator[Rig]:  # noqa: ARG002 - as every target
        """A supervisor for it; nothing is started yet, and nothing is left running afterwards."""
        drain = self.engine.drain(self.command)
        supervisor = CommandSupervisor(
            self.command,
            env=self.env,
            grace_s=max(_GRACE_S, drain.worst_s or 0.0),
            main_only=drain.children_need_main_only,
        )
        with told(lambda: supervisor.if_left), supervisor:
            yield Rig(
                engine=self.engine,
                supervisor=supervisor,
                port_holder=listener_at,
                post_mortem=TrialPostMortem(LocalHost()),
                host=LocalLoad(clock),
            )

    @property
    def embedded(self) -> bool:
        """Whether it is our own engine and model."""
        return self.ref.kind is ServiceKind.EMBEDDED
