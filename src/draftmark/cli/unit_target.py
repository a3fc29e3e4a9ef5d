"""A live systemd unit as a target: here, or on a host over SSH."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from draftmark import __version__
from draftmark.cli.engines import api_of, known_engines, starts, version_of
from draftmark.cli.hosts import host_at, is_remote
from draftmark.cli.leaving import told
from draftmark.cli.output import progress_console
from draftmark.cli.rig import OnWait, Rig, looks_away
from draftmark.cli.services import Member
from draftmark.cli.unit_postmortem import UnitPostMortem
from draftmark.errors import RefusedError, UsageError
from draftmark.load.on_host import OnHostLoad, find_program
from draftmark.model import Foreign
from draftmark.ports import Clock, Engine, EngineClient, Host
from draftmark.run.redact import Redactor
from draftmark.service.elevation import check_elevation, elevated
from draftmark.service.host import SystemClock
from draftmark.service.listeners import listener_on
from draftmark.service.members import MembersSupervisor
from draftmark.service.neighbours import LocalLoad
from draftmark.service.systemd.discover import FoundUnit, discover
from draftmark.service.systemd.dropin import TRIAL, render
from draftmark.service.systemd.hold import Hold, hold_of
from draftmark.service.systemd.kept import mark, outdated
from draftmark.service.systemd.lease import LEASE_S, MIN_LEASE_S
from draftmark.service.systemd.reconcile import Reconciled, reconcile
from draftmark.service.systemd.restore import restore
from draftmark.service.systemd.supervisor import SystemdSupervisor, Terms
from draftmark.service.systemd.triggers import refuse
from draftmark.tune.trial import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUnit:
    """One unit of a service, read.

    Attributes:
        host: Where it is, as the user sees it.
        privileged: The same with the rights to change it.
        remote: The destination over SSH; None on this computer.
        engine: What runs in it.
        safe: What its drop-in sets besides the command line.
    """

    host: Host
    privileged: Host
    remote: str | None
    engine: Engine
    unit: FoundUnit
    safe: Reconciled

    @property
    def shown(self) -> str:
        """`unit:llm.service on gpu1`."""
        return f"unit:{self.unit.name}" + (f" on {self.remote}" if self.remote else "")

    @property
    def flags(self) -> str:
        """As it is named on a command line."""
        return f"unit:{self.unit.name}" + (f" --host {self.remote}" if self.remote else "")

    def hold(self) -> Hold | None:
        """What there is of a tuning of it; None where there is nothing."""
        manager = self.unit.manager
        return hold_of(manager.unit, user_scope=manager.user, hosts=(self.privileged, self.host))

    def exec_start(self, command: Sequence[str]) -> str:
        """ExecStart= for a command line of the server."""
        return self.unit.command.rewritten(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTarget:
    """A live service of one unit or several; nothing of it is changed before `rig` is entered.

    Attributes:
        members: In rank order; the first answers requests.
        asked: The service as the user named it.
        program: How Draftmark is called on the first member's host, to send the load from there; None to send it
            from here.
        api: Of the load.
    """

    engine: Engine
    members: tuple[MemberUnit, ...]
    asked: str
    foreign: Foreign
    patience_s: float
    lease_s: int
    program: tuple[str, ...] | None
    api: str
    version: str | None = None
    embedded: bool = False
    may_run: bool = True
    lock: str | None = None

    @property
    def first(self) -> MemberUnit:
        """Rank 0."""
        return self.members[0]

    @property
    def shown(self) -> str:
        """For records."""
        return ", ".join(member.shown for member in self.members)

    @property
    def command(self) -> tuple[str, ...]:
        """The server's command line in the unit."""
        return self.first.unit.command.argv

    @property
    def local(self) -> bool:
        """Whether all of it is on this computer."""
        return all(member.remote is None for member in self.members)

    @property
    def redactor(self) -> Redactor:
        """Knows the secrets of the command lines and of the units' variables."""
        words = [word for member in self.members for word in member.unit.command.argv]
        variables = {k: v for member in self.members for k, v in member.unit.environment.items()}
        return Redactor.of(words, variables)

    @property
    def notes(self) -> tuple[str, ...]:
        """How its words were found, and what its drop-ins set for the time of a run."""
        return tuple(note for member in self.members for note in _notes(member))

    def refuse_if_held(self) -> None:
        """See that what runs is the service's own.

        Raises:
            RefusedError: A Draftmark is at work on it, or has left a trial in force.
        """
        for member in self.members:
            hold = member.hold()
            if hold is None:
                continue
            alive = hold.held and not hold.gone
            what = "tries arms on" if alive else "that is gone has left an arm in force on"
            raise RefusedError(
                f"a Draftmark {what} {member.unit.name}: these would be the figures of one, and spoil it",
                evidence=(f"held by {hold.holder}",) if hold.held else (f"{hold.trial} is in force",),
                next_step=f"wait until it is done, or end it ({hold.holder.how_to_end})"
                if alive
                else f"draftmark restore {member.flags}",
            )

    def client(self) -> EngineClient:
        """A client for the server as it runs."""
        base_url = self.reach(self.engine.base_url(self.command))
        return self.engine.client(base_url, self.engine.headers(self.command))

    def shown_line(self, command: tuple[str, ...]) -> str:
        """The unit's ExecStart= for it, secrets hidden."""
        return self.redactor.text(self.first.exec_start(command))

    def to_run(self, command: tuple[str, ...], options: str = "") -> str:
        """What keeps that arm, if it is found better once more: against what the unit has, and no other."""
        arm = self.engine.arm(command)
        depth = "adaptive" if arm.knobs else str(arm.depth or "off")
        return " ".join(filter(None, (f"draftmark tune {self.asked} --depth {depth}", options, "--keep")))

    def change(self, command: tuple[str, ...]) -> dict[str, Any]:
        """The drop-in of a trial, of rank 0, and the line that it stands for."""
        first = self.first
        line = None if tuple(command) == self.command else first.exec_start(command)
        if line is None and not first.safe.settings:
            return {}
        text = render(exec_start=line, settings=first.safe.settings, header=())
        return {
            "drop_in": self.redactor.text(text).strip(),
            "instead_of": self.redactor.text(first.unit.command.line),
        }

    @contextmanager
    def rig(self, clock: Clock, on_wait: OnWait = looks_away) -> Iterator[Rig]:
        """The units, held: their hosts put them back when we are gone."""
        for member in self.members:
            if member.safe.refusal is not None:
                raise member.safe.refusal
            refuse(member.unit.manager, member.unit.triggers)
            if not member.unit.manager.user:
                check_elevation(member.privileged)
        settled = replace(self, members=tuple(_settled(member, self.engine) for member in self.members))
        with ExitStack() as stack:
            held = [settled._held(settled._supervisor(member, clock, on_wait), stack) for member in settled.members]
            first = settled.first
            yield Rig(
                engine=self.engine,
                supervisor=held[0] if len(held) == 1 else MembersSupervisor(held, self._follow),
                port_holder=lambda url: listener_on(first.privileged, url),
                post_mortem=UnitPostMortem(first.privileged, first.unit.name),
                host=LocalLoad(clock) if self.local else None,
                foreign=self.foreign,
                patience_s=self.patience_s,
                reach=self.reach,
                look=(first.unit.manager.for_people("status"), first.unit.manager.journal_for_people),
                load=self.load,
                kept=lambda: [f"kept in {each.kept}; to undo: {each.terms.undo}" for each in held if each.kept],
            )

    @staticmethod
    def _held(supervisor: SystemdSupervisor, stack: ExitStack) -> SystemdSupervisor:
        stack.enter_context(told(lambda: supervisor.if_left))
        return stack.enter_context(supervisor)

    def _follow(self, original: Sequence[str], command: Sequence[str]) -> tuple[str, ...]:
        """What another member runs when rank 0 runs `command`: the same arm."""
        return self.engine.with_arm(original, self.engine.arm(command))

    def _supervisor(self, member: MemberUnit, clock: Clock, on_wait: OnWait) -> SystemdSupervisor:
        port = urlsplit(self.engine.base_url(self.command)).port if member is self.first else None
        undo = f"Undo it: draftmark restore {member.flags}"
        terms = Terms(
            settings=dict(member.safe.settings),
            stop_timeout_s=member.safe.stop_timeout_s,
            port=port,
            header=(f"Written by draftmark {__version__} for one trial; it vanishes by itself.", undo),
            keep_header=lambda command: self._keep_header(member, command, undo),
            undo=f"draftmark restore {member.flags}",
            lease_s=self.lease_s,
        )
        return SystemdSupervisor(
            host=member.privileged,
            unit=member.unit,
            terms=terms,
            clock=clock,
            same_host=member.remote is None,
            on_wait=on_wait,
        )

    @property
    def load_from(self) -> str:
        """Where requests are sent from."""
        remote = self.first.remote
        if remote is None:
            return "this computer"
        return f"{remote} itself" if self.program else f"this computer, through an SSH tunnel to {remote}"

    @property
    def load(self) -> Load | None:
        """What sends them from the service's host; None where they are sent from here."""
        if self.program is None:
            return None
        on_host = self.engine.base_url(self.command)
        return OnHostLoad(host=self.first.host, program=self.program, there=lambda _url: on_host, api=self.api)

    def reach(self, url: str) -> str:
        """A URL of the service's host as it is reached from here."""
        parts = urlsplit(url)
        address, port = self.first.host.reach(parts.hostname or "127.0.0.1", parts.port or 80)
        shown = f"[{address}]" if ":" in address else address
        return urlunsplit((parts.scheme, f"{shown}:{port}", parts.path, parts.query, ""))

    def _keep_header(self, member: MemberUnit, command: Sequence[str], undo: str) -> tuple[str, ...]:
        now, was = (self.engine.arm(words).label for words in (command, member.unit.command.argv))
        return (
            f"Written by draftmark {__version__} at {SystemClock().now_iso()}: tune --keep.",
            f"Speculation: {now} in place of {was}. Only its flags differ from the line in",
            f"{':'.join(map(str, member.unit.command.where))}.",
            mark(member.unit.files),
            undo,
            "or by hand: remove this file, then systemctl daemon-reload, then "
            + member.unit.manager.for_people("restart"),
        )


def _notes(member: MemberUnit) -> Iterator[str]:
    yield from member.unit.command.notes
    if (own := outdated(member.unit.files)) is not None:
        yield (
            f"the unit's own ExecStart= ({own.where}) has changed since a choice was kept: the arms are of the "
            "line before; draftmark restore takes what was kept away"
        )
    if not member.unit.active:
        yield _down(member)
    for trigger in member.unit.triggers:
        if trigger.active:
            yield f"tune would be refused: {trigger.what} ({trigger.line})"
    for each in member.safe.because:
        yield f"while it is tuned, {each.setting}: {each.reason} ({each.line})"


def _down(member: MemberUnit) -> str:
    """Of a unit that does not run: a start of it makes systemd forget how it had ended."""
    state, result = (member.unit.properties.get(name) for name in ("ActiveState", "Result"))
    found = (
        f"{member.unit.name} does not run now ({state}" + (f", Result={result}" if state == "failed" else "") + ")"
    )
    left = f"{found}: a run starts it and leaves it stopped"
    if state != "failed":
        return left
    return f"{left}, and systemd then calls it inactive; draftmark why {member.flags} says why it failed"


def unit_target(args: argparse.Namespace, members: Sequence[Member], engine: Engine | None = None) -> UnitTarget:
    """Read the units of a service.

    Args:
        args: Of the verb: `foreign`, `patience` and `lease`, where it has them.
        members: In rank order.
        engine: What runs in them; None to see which of those that are known.

    Raises:
        BadInputError: There is no such unit.
        RefusedError: One cannot be changed safely; the reason is in it.
        HostError: A host or its systemd cannot be reached.
    """
    lease_s = getattr(args, "lease", LEASE_S)
    if lease_s < MIN_LEASE_S:
        raise UsageError(f"--lease {lease_s} is too short to be kept alive", next_step=f"--lease {MIN_LEASE_S}")
    with progress_console().status(f"reading {args.service} …"):
        read = tuple(
            _read(member, lambda host: (engine,) if engine else known_engines(args, host)) for member in members
        )
    first = read[0]
    _same_engine(read)
    return UnitTarget(
        engine=first.engine,
        members=read,
        asked=args.service + (f" --host {args.host}" if is_remote(args) else ""),
        foreign=getattr(args, "foreign", Foreign.ABORT),
        patience_s=getattr(args, "patience", 120.0),
        lease_s=lease_s,
        program=_program(first, getattr(args, "load_from", "here")),
        api=api_of(args, first.engine, first.unit.command.argv),
        version=version_of(first.engine, first.unit.command.argv),
    )


def _same_engine(members: Sequence[MemberUnit]) -> None:
    """Ranks of one service are one engine's, and an arm is written the same way for each."""
    other = next((member for member in members if member.engine.name != members[0].engine.name), None)
    if other is not None:
        raise UsageError(
            f"{members[0].shown} runs {members[0].engine.name}, and {other.shown} runs {other.engine.name}",
            next_step="name units of one engine as one service",
        )


def _program(first: MemberUnit, wanted: str) -> tuple[str, ...] | None:
    """Where the load is sent from: on the host neither link nor tunnel is in the figures."""
    if first.remote is None or wanted == "here":
        return None
    program = find_program(first.host, __version__)
    if program is None and wanted == "host":
        raise RefusedError(
            f"draftmark {__version__} is not installed on {first.remote}",
            evidence=("neither `draftmark --version` nor `python3 -m draftmark --version` says so there",),
            next_step="install it there, or --load-from here",
        )
    return program


def _settled(member: MemberUnit, engine: Engine) -> MemberUnit:
    """The unit without what a run that died has left in force: its settings are not the user's."""
    if all(PurePosixPath(file.path).name != TRIAL for file in member.unit.files):
        return member
    manager = member.unit.manager
    restore(member.privileged, manager.unit, user_scope=manager.user, leave_kept=True)
    return _read(Member(unit=manager.unit, host=member.remote), lambda _host: (engine,))


def _read(member: Member, engines_at: Callable[[Host | None], Sequence[Engine]]) -> MemberUnit:
    host = host_at(member.host)
    privileged = elevated(host)
    engines = engines_at(host if member.host else None)
    unit = discover(
        host, member.unit, is_server=lambda words: starts(words, engines) is not None, read_as=privileged
    )
    found = starts(unit.command.argv, engines)
    assert found is not None  # noqa: S101 - by that it was discovered
    return MemberUnit(
        host=host,
        privileged=host if unit.manager.user else privileged,
        remote=member.host,
        engine=found,
        unit=unit,
        safe=reconcile(unit.properties, found.drain(unit.command.argv), unit.files),
    )
