"""A live systemd unit as a target: here, or on a host over SSH."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from draftmark import __version__
from draftmark.cli.hosts import host_of, is_remote
from draftmark.cli.output import progress_console
from draftmark.cli.rig import Rig
from draftmark.cli.unit_postmortem import UnitPostMortem
from draftmark.errors import UsageError
from draftmark.model import Foreign, ServiceRef
from draftmark.ports import Clock, Engine, Host
from draftmark.run.redact import Redactor
from draftmark.service.elevation import check_elevation, elevated
from draftmark.service.host import SystemClock
from draftmark.service.listeners import listener_on
from draftmark.service.neighbours import LocalLoad
from draftmark.service.systemd.discover import FoundUnit, discover
from draftmark.service.systemd.dropin import render
from draftmark.service.systemd.lease import MIN_LEASE_S
from draftmark.service.systemd.reconcile import Reconciled, reconcile
from draftmark.service.systemd.supervisor import SystemdSupervisor, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTarget:
    """A unit that could be tuned; nothing of it is changed before `rig` is entered.

    Attributes:
        host: Where it is, as the user sees it.
        privileged: The same with the rights to change it.
        remote: The destination over SSH; None on this computer.
    """

    shown: str
    engine: Engine
    host: Host
    privileged: Host
    remote: str | None
    unit: FoundUnit
    safe: Reconciled
    version: str | None
    foreign: Foreign
    patience_s: float
    lease_s: int
    embedded: bool = False
    may_run: bool = True
    lock: str | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """The server's command line in the unit."""
        return self.unit.command.argv

    @property
    def local(self) -> bool:
        """Whether it is on this computer."""
        return self.remote is None

    @property
    def redactor(self) -> Redactor:
        """Knows the secrets of the command line and of the unit's variables."""
        return Redactor.of(self.command, self.unit.environment)

    def shown_line(self, command: tuple[str, ...]) -> str:
        """The unit's ExecStart= for it, secrets hidden."""
        return self.redactor.text(self._exec_start(command))

    def to_run(self, command: tuple[str, ...]) -> str:
        """What `--keep` does."""
        del command
        where = f" --host {self.remote}" if self.remote else ""
        return f"draftmark tune {self.shown.partition(' ')[0]}{where} --keep"

    def change(self, command: tuple[str, ...]) -> dict[str, Any]:
        """The drop-in of a trial, and what else of the unit it sets."""
        if tuple(command) == self.command and not self.safe.settings:
            return {}
        line = None if tuple(command) == self.command else self._exec_start(command)
        text = render(exec_start=line, settings=self.safe.settings, header=())
        return {"drop_in": self.redactor.text(text).strip(), "instead_of": self.unit.command.line}

    def _exec_start(self, command: Sequence[str]) -> str:
        if tuple(command) == self.command:
            return self.unit.command.line
        return self.unit.command.rewritten(command)

    @contextmanager
    def rig(self, clock: Clock) -> Iterator[Rig]:
        """The unit, held: its host puts it back when we are gone."""
        if self.safe.refusal is not None:
            raise self.safe.refusal
        if not self.unit.manager.user:
            check_elevation(self.privileged)
        port = urlsplit(self.engine.base_url(self.command)).port
        terms = Terms(
            settings=dict(self.safe.settings),
            stop_timeout_s=self.safe.stop_timeout_s,
            port=port,
            header=self._header("for one trial; it vanishes by itself"),
            keep_header=self._keep_header,
            lease_s=self.lease_s,
        )
        with SystemdSupervisor(
            host=self.privileged, unit=self.unit, terms=terms, clock=clock, same_host=self.local
        ) as supervisor:
            yield Rig(
                engine=self.engine,
                supervisor=supervisor,
                port_holder=lambda url: listener_on(self.privileged, url),
                post_mortem=UnitPostMortem(self.privileged, self.unit.name),
                host=LocalLoad(clock) if self.local else None,
                foreign=self.foreign,
                patience_s=self.patience_s,
                reach=self.reach,
                look=(self.unit.manager.for_people("status"), self.unit.manager.journal_for_people),
                load_from=self.load_from,
            )

    @property
    def load_from(self) -> str:
        """Where requests are sent from."""
        return "this computer" if self.remote is None else f"this computer, through an SSH tunnel to {self.remote}"

    def reach(self, url: str) -> str:
        """A URL of the service's host as it is reached from here."""
        parts = urlsplit(url)
        address, port = self.host.reach(parts.hostname or "127.0.0.1", parts.port or 80)
        shown = f"[{address}]" if ":" in address else address
        return urlunsplit((parts.scheme, f"{shown}:{port}", parts.path, parts.query, ""))

    def _header(self, why: str) -> tuple[str, ...]:
        return (
            f"Written by draftmark {__version__}, {why}.",
            f"Undo it: {self.undo}",
        )

    @property
    def undo(self) -> str:
        """The command that puts the unit back."""
        where = f" --host {self.remote}" if self.remote else ""
        return f"draftmark restore unit:{self.unit.name}{where}"

    def _keep_header(self, command: Sequence[str]) -> tuple[str, ...]:
        depth = self.engine.depth(command)
        was = self.engine.depth(self.command)
        return (
            f"Written by draftmark {__version__} at {SystemClock().now_iso()}: tune --keep.",
            f"Speculation: depth {depth} in place of {was or 'off'}. Only its flags differ from the line that was"
            f" in {':'.join(map(str, self.unit.command.where))}.",
            f"Undo it: {self.undo}",
            "or by hand: remove this file, then systemctl daemon-reload, then "
            + self.unit.manager.for_people("restart"),
        )


def unit_target(args: argparse.Namespace, ref: ServiceRef, engine: Engine) -> UnitTarget:
    """Read the unit that the arguments name.

    Raises:
        BadInputError: There is no such unit.
        RefusedError: It cannot be changed safely; the reason is in it.
        HostError: The host or its systemd cannot be reached.
    """
    lease_s = getattr(args, "lease", 60)
    if lease_s < MIN_LEASE_S:
        raise UsageError(f"--lease {lease_s} is too short to be kept alive", next_step=f"--lease {MIN_LEASE_S}")
    with progress_console().status(f"reading {ref} …"):
        host = host_of(args)
        privileged = elevated(host)
        unit = discover(host, ref.target, is_server=engine.recognises, read_as=privileged)
        if unit.manager.user:
            privileged = host
    remote = args.host if is_remote(args) else None
    return UnitTarget(
        shown=f"unit:{unit.name}" + (f" on {remote}" if remote else ""),
        engine=engine,
        host=host,
        privileged=privileged,
        remote=remote,
        unit=unit,
        safe=reconcile(unit.properties, engine.drain(unit.command.argv), unit.files),
        version=None,
        foreign=getattr(args, "foreign", Foreign.ABORT),
        patience_s=getattr(args, "patience", 120.0),
        lease_s=lease_s,
    )
