"""Puts the pieces together: from a reference and options to an engine, a supervisor and a plan.

The only place that knows which engine and which supervisor there are.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from draftmark.cli import services
from draftmark.cli.engines import EMBEDDED, known_engines, starts, version_of
from draftmark.cli.hosts import is_remote
from draftmark.cli.target import CommandTarget, Target
from draftmark.errors import UsageError
from draftmark.model import Arm, ServiceKind
from draftmark.run.redact import Redactor
from draftmark.service.reference import parse_cmd, parse_reference
from draftmark.tune.plan import parse_arms

_EMBEDDED_DEPTHS = "off,4,8,16"
_EMBEDDED_ROUNDS = 3

_DRAFT_DEPTHS = "off,1,2,3,4,5,6,8"
_NGRAM_DEPTHS = "off,4,8,16,32"
_ROUNDS = 2


def target(args: argparse.Namespace) -> Target:
    """The startable service that the arguments name.

    Raises:
        UsageError: It cannot be started by Draftmark, or no engine recognises its command line.
        ProvisionError: The embedded engine or model could not be had.
    """
    if (members := _members(args)) is not None:
        from draftmark.cli.unit_target import unit_target

        return unit_target(args, members)
    ref = parse_reference(args.service)
    if is_remote(args):
        raise UsageError(
            f"--host is for unit: services, and {ref.kind.value}: runs here",
            evidence=(str(ref), f"--host {args.host}"),
            next_step="name the unit on that host, or leave --host out",
        )
    if ref.kind is ServiceKind.EMBEDDED:
        if args.engine not in EMBEDDED:
            raise UsageError(
                f"embedded: is not served by {args.engine}", next_step=f"--engine {' or '.join(EMBEDDED[1:])}"
            )
        from draftmark.embedded.progress import RichProgress
        from draftmark.embedded.provision import provision

        from .output import progress_console

        with RichProgress(progress_console()) as progress:
            ready = provision(progress, engine=args.engine)
        return CommandTarget(
            ref=ref,
            shown="embedded:",
            engine=known_engines(args)[0],
            command=ready.command,
            env=dict(ready.env),
            version=f"{ready.engine} {ready.version}",
        )
    if ref.kind is ServiceKind.CMD:
        spec = parse_cmd(ref.target)
        engine = starts(spec.argv, known_engines(args))
        if engine is None:
            raise UsageError(
                "no known engine in this command line",
                evidence=(ref.target,),
                next_step="name llama-server or SGLang's server in it; vLLM is not supported yet",
            )
        if getattr(args, "cluster", None) is None:  # else its files are on the nodes
            engine.check(spec.argv)
        words = Redactor.of(spec.argv, spec.env).command(
            (*(f"{name}={value}" for name, value in spec.env.items()), *spec.argv)
        )
        return CommandTarget(
            ref=ref,
            shown="cmd:" + shlex.join(words),
            engine=engine,
            command=spec.argv,
            env=dict(spec.env),
            version=version_of(engine, spec.argv),
        )
    raise UsageError(
        f"{ref.kind.value}: services cannot be started by this version",
        evidence=(str(ref),),
        next_step='use unit:NAME, cmd:"COMMAND LINE" or embedded:; '
        "a running server can be measured: draftmark bench url:http://…",
    )


def moved(chosen: Target, step: int) -> Target:
    """The same service on a port so many further on."""
    if not step or not isinstance(chosen, CommandTarget):
        return chosen
    engine, command = chosen.engine, chosen.command
    port = urlsplit(engine.base_url(command)).port or 0
    return replace(chosen, command=engine.with_port(command, (port + step) % 65536))


def _members(args: argparse.Namespace) -> tuple[services.Member, ...] | None:
    """The units of a live service; None for any other kind."""
    found = services.asked(args)
    if isinstance(found, services.Named):
        return found.members
    return (services.Member(found.target, args.host),) if found.kind is ServiceKind.UNIT else None


def arms(args: argparse.Namespace, chosen: Target) -> tuple[Arm, tuple[Arm, ...]]:
    """The baseline, which is what the command line asks for today, and all arms with it."""
    engine, command = chosen.engine, chosen.command
    baseline = engine.arm(command)
    text = args.depth
    if text is None and args.knob:
        return baseline, (baseline,)
    if text is None:
        if chosen.embedded:
            text = _EMBEDDED_DEPTHS
        else:
            method = engine.summary(engine.with_arm(command, Arm(1))).get("method", "")
            text = _NGRAM_DEPTHS if method.startswith("ngram") else _DRAFT_DEPTHS
    found = parse_arms(text, lambda: engine.adaptive(command))
    return baseline, found if baseline in found else (baseline, *found)


def rounds(args: argparse.Namespace, *, embedded: bool, forecast: bool = False) -> int:
    """How often each arm is started; of a forecast, how often its choice is at most."""
    return int(args.rounds or (_EMBEDDED_ROUNDS if embedded and not forecast else _ROUNDS))


def default_run_directory(started_at: str, shown: str) -> Path:
    """`draftmark-runs/20261129-175027-embedded`, in the working directory."""
    stamp = started_at[:19].replace("-", "").replace(":", "").replace("T", "-")
    return Path("draftmark-runs") / f"{stamp}-{shown.partition(':')[0]}"
